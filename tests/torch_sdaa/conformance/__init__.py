"""The device against PyTorch's own databases: ``python -m tests.torch_sdaa.conformance``."""
