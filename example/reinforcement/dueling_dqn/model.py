"""The dueling Q-networks of the export: one for vectors of numbers, one for frames."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import ConfigError
from utils.environments import facts_of, gymnasium
from utils.export.networks.policies import Dueling


class Arch(NamedTuple):
    """A network, and its default environment.

    Attributes:
        env: name of the environment. dimensions: of an observation.
        width: of the hidden layers; for frames, of the head's layers.
    """

    env: str
    dimensions: int
    width: int


ARCHS = {"vector": Arch("CartPole-v1", 1, 128), "frames": Arch("frames:CartPoleFrames-v0", 3, 512)}
FRAME = 36
"""Smallest height and width of frames that the convolutions accept."""


def network_for(arch: str, env: str | None, width: int | None) -> tuple[Dueling, tuple[int, ...], str]:
    """Return a network for an environment, the shape of an observation, and the environment's name.

    Raises:
        ConfigError: the network does not support the environment's observations or actions.
    """
    chosen = ARCHS[arch]
    name = env or chosen.env
    facts = facts_of(name)
    shape, actions = tuple(facts.observations.shape or ()), facts.actions
    fits = len(shape) == chosen.dimensions and (len(shape) == 1 or min(shape[1:]) >= FRAME)
    if not fits or not isinstance(actions, gymnasium().spaces.Discrete):
        raise ConfigError(
            f"--arch {arch} is for observations of {chosen.dimensions} dimensions (frames: channels, height and width, "
            f"at least {FRAME} pixels) and one discrete action; {name} has shape {list(shape)} and {actions}"
        )
    if width is not None and width < 1:
        raise ConfigError(f"--width {width} must be at least 1")
    return Dueling(shape, int(actions.n), width or chosen.width), shape, name
