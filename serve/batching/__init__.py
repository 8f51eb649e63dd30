"""The queue of a model, and the engine processes that compute what waits in it."""
