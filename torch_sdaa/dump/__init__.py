"""The operators of a training, recorded one by one: dumps, overflow, replay, and two runs that should be the same."""
