"""The sweep over architectures: one file per family of models, and the code that runs and judges them."""
