"""The policy of the two-link pendulum, and the critic, which only the training uses."""

from __future__ import annotations

import sys
from pathlib import Path

from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from utils.export.networks.policies import Perceptron

ENVIRONMENT = "Acrobot-v1"
OBSERVATION, ACTIONS = 6, 3


def policy() -> nn.Module:
    """Return the network from observations, N x 6, to logits of the 3 actions; initially uniform."""
    return Perceptron(OBSERVATION, ACTIONS, gain=0.01)


def critic() -> nn.Module:
    """Return the network from observations to the expected return of the rest of the episode, N x 1."""
    return Perceptron(OBSERVATION, 1)
