"""Sample recording of a policy: states of a pole on a cart, and the action of a fixed rule at each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from engine import Array

ENVIRONMENT = "CartPole-v1"

WEIGHTS = (0.1, 0.3, 1.0, 0.5)
"""Weights of the cart's position and speed, the pole's angle and angular speed: push right if the sum is above 0."""

EPISODES, FIRST, STATES = 8, 1000, 10


def fill(folder: Path) -> Mapping[str, str]:
    """Write states and actions into ``data/recorded.npz``; return further words."""
    from utils.datasets.episodes import Recording, write_recording

    (folder / "data").mkdir()
    states = _states()
    actions = (states @ np.array(WEIGHTS) > 0).astype(np.int64)
    seeds = np.arange(FIRST, FIRST + EPISODES).repeat(STATES)
    steps = np.tile(np.arange(STATES), EPISODES)
    write_recording(folder / "data" / "recorded.npz", Recording(ENVIRONMENT, seeds, steps, states, actions))
    return {"environment": ENVIRONMENT, "weights": repr(WEIGHTS), "first": str(FIRST), "episodes": str(EPISODES)}


def _states() -> Array:
    """Return random states, none of them so close to the rule's boundary that rounding decides."""
    drawn = np.random.default_rng(0).uniform(-1, 1, (4 * EPISODES * STATES, 4)) * (1.0, 1.0, 0.15, 1.0)
    states: Array = drawn.astype(np.float32)
    clear: Array = np.abs(states @ np.array(WEIGHTS)) > 0.05
    chosen: Array = states[clear][: EPISODES * STATES]
    return chosen


"""A written rule that balances the pole."""
