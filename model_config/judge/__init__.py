"""Judgement of a run: accuracy compared with the baseline, speed compared with stored figures."""
