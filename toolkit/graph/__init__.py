"""Models as graphs of named nodes: their inputs and weights, and the values inside them."""
