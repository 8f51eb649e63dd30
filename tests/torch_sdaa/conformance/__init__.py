"""The device against PyTorch's own databases of operators, modules and optimizers: ``python -m tests.torch_sdaa.conformance``."""
