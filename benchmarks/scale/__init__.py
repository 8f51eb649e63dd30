"""Checks of the scaling model: a list of a million files, thousands of parts, and workers of one core each."""
