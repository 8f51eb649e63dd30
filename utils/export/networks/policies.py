"""Networks for reinforcement learning: a perceptron, and Q-networks with a dueling head."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn


class Perceptron(nn.Module):  # type: ignore[misc]
    """Perceptron with tanh and orthogonal initial weights; a small ``gain`` gives nearly uniform actions."""

    def __init__(self, inputs: int, outputs: int, width: int = 64, gain: float = 1.0) -> None:
        super().__init__()
        sizes = (inputs, width, width, outputs)
        layers: list[nn.Module] = []
        for place, (one, other) in enumerate(pairwise(sizes)):
            layer, last = nn.Linear(one, other), place == len(sizes) - 2
            nn.init.orthogonal_(layer.weight, gain if last else math.sqrt(2))
            nn.init.zeros_(layer.bias)
            layers += [layer] if last else [layer, nn.Tanh()]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map observations, N x inputs, to N x outputs."""
        found: torch.Tensor = self.layers(x)
        return found


class Dueling(nn.Module):  # type: ignore[misc]
    """Q-network with separate heads for the value of a state and the advantages of actions.

    Q(s, a) = V(s) + A(s, a) - mean over a' of A(s, a'):
    `Dueling Network Architectures for Deep Reinforcement Learning <https://arxiv.org/abs/1511.06581>`_, equation 9.

    Args:
        observation: shape of an observation: one number for a plain vector, or channels, height and width of stacked
            frames with values 0 to 255.
        actions: number of actions. width: of the hidden layers (for frames: of the head).
    """

    def __init__(self, observation: Sequence[int], actions: int, width: int) -> None:
        super().__init__()
        self.frames = len(observation) == 3
        if self.frames:
            self.body: nn.Module = _convolutions(observation[0])
            with torch.no_grad():
                features = self.body(torch.zeros(1, *observation)).shape[1]
        else:
            (inputs,) = observation
            self.body = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
            features = width
        self.value = nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, 1))
        self.advantage = nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, actions))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map observations, N x the observation's shape, to the actions' values, N x actions."""
        features = self.body(x / 255 if self.frames else x)
        advantage = self.advantage(features)
        found: torch.Tensor = self.value(features) + (advantage - advantage.mean(dim=1, keepdim=True))
        return found


class Acting(nn.Module):  # type: ignore[misc]
    """Export form of a dueling network: advantages and values of the actions.

    Actions are chosen by advantage: in float16, values of a few hundred are rounded to steps of 0.125 and more, and
    become equal. The mean over the actions is subtracted in the last layer's weights instead of at run time.
    """

    def __init__(self, network: Dueling) -> None:
        super().__init__()
        self.frames, self.body, self.value = network.frames, network.body, network.value
        *before, last = network.advantage
        centred = nn.Linear(last.in_features, last.out_features)
        with torch.no_grad():
            centred.weight.copy_(last.weight - last.weight.mean(dim=0, keepdim=True))
            centred.bias.copy_(last.bias - last.bias.mean())
        self.advantage = nn.Sequential(*before, centred)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Map observations, N x the observation's shape, to advantages and values of the actions, N x actions each."""
        features = self.body(x / 255 if self.frames else x)
        advantage: torch.Tensor = self.advantage(features)
        return advantage, self.value(features) + advantage


def _convolutions(channels: int) -> nn.Sequential:
    """Return the layers for frames of Mnih et al., 2015 (Human-level control)."""
    sizes = ((channels, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1))
    layers: list[nn.Module] = []
    for inputs, outputs, kernel, stride in sizes:
        layers += [nn.Conv2d(inputs, outputs, kernel, stride), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten())
