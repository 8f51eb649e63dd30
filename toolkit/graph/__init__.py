"""Models as graphs of named nodes: inputs, weights and the values of all tensors."""
