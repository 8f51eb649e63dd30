"""Optimisation passes a model can choose, the options a pass file sets, and the check every pass goes through."""
