"""Forced alignment: the most likely CTC path of a given text, for its times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine import Array, ConfigError


def aligned(steps: Array, classes: Sequence[int], blank: int = 0) -> Array:
    """Return the first step of each class of a text on its most likely path, and the one after its last, int64 [L, 2].

    The path passes through the L classes with a blank before, between and after them, which may be skipped except
    between two equal ones (Graves et al., 2006); it is found by Viterbi's algorithm (1967). ``steps`` are T x C,
    logarithms of probabilities. Raises ConfigError if there are too few steps for the text.
    """
    if not len(classes):
        return np.zeros((0, 2), np.int64)
    states = np.full(2 * len(classes) + 1, blank)
    states[1::2] = classes
    jumps = np.zeros(len(states), bool)
    jumps[3::2] = states[3::2] != states[1:-2:2]
    came, score = _forward(steps, states, jumps)
    state = int(len(states) - 1 if score[-1] >= score[-2] else len(states) - 2)
    if score[state] == -np.inf:
        raise ConfigError(f"{len(steps)} steps are too few for the {len(classes)} characters of a text")
    spans = np.zeros((len(classes), 2), np.int64)
    for step in range(len(steps) - 1, -1, -1):
        if state % 2:
            place = state // 2
            spans[place] = step, spans[place][1] or step + 1
        state -= int(came[step, state])
    return spans


def _forward(steps: Array, states: Array, jumps: Array) -> tuple[Array, Array]:
    """Return how many states back the best path into each state came from, T x S, and the final scores."""
    score = np.full(len(states), -np.inf)
    score[:2] = steps[0][states[:2]]
    came = np.zeros((len(steps), len(states)), np.int8)
    ways = np.full((3, len(states)), -np.inf)
    for step in range(1, len(steps)):
        ways[0], ways[1, 1:] = score, score[:-1]
        ways[2, 2:] = np.where(jumps[2:], score[:-2], -np.inf)
        came[step] = ways.argmax(axis=0)
        score = ways.max(axis=0) + steps[step][states]
    return came, score
