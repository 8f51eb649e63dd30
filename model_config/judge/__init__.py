"""Judging a run: its accuracy beside the baseline, its speed beside what is stored."""
