"""Which operators a model needs, whether a target has them, and what to do about those that it lacks."""
