"""Dumps of the tensors inside a model: write, read, compare and recover them."""
