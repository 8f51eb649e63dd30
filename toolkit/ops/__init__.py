"""Operators of a model, their support on a target, and fixes for unsupported ones."""
