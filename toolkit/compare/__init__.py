"""Compare every node of a model on two engines."""
