"""Execution of a case: each step in its own limited process, which leaves no processes behind."""
