"""The sweep over architectures: one file per family of models, and what runs and judges them."""
