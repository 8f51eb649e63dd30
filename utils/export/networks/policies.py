"""Networks of reinforcement learning: a policy of two hidden layers, and Q-networks with a dueling head."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn


class Perceptron(nn.Module):  # type: ignore[misc]
    """Fully connected layers with tanh between them, orthogonal weights at the start.

    Args:
        inputs: values of an observation. outputs: values of an answer. width: of the two hidden layers.
        gain: of the last layer's first weights; small where an untrained network should prefer nothing.
    """

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
        """Map observations, N x inputs, to answers, N x outputs."""
        found: torch.Tensor = self.layers(x)
        return found


class Dueling(nn.Module):  # type: ignore[misc]
    """A Q-network whose head says apart how good a state is and how much better an action is than the mean of all.

    Q(s, a) = V(s) + A(s, a) - mean over a' of A(s, a'):
    `Dueling Network Architectures for Deep Reinforcement Learning <https://arxiv.org/abs/1511.06581>`_, equation 9.

    Args:
        observation: shape of an observation: one number for a plain vector, or channels, height and width of stacked
            frames with values 0 to 255.
        actions: how many there are. width: of the hidden layers (of frames: of the head's).
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
    """A dueling network as it is exported: what each action is better than the mean one, and its value.

    An action is chosen by the first, since the second adds V(s) to it: in float16 a sum of a few hundred is rounded to
    steps of 0.125 and more, and actions become equal. The mean over the actions is taken out of the last layer's
    weights, so that no sum of large numbers is left.

    Args:
        network: a trained one; it stays as it is.
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
    """Return the layers for frames of Mnih et al., 2015 (Human-level control), which the paper above keeps."""
    sizes = ((channels, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1))
    layers: list[nn.Module] = []
    for inputs, outputs, kernel, stride in sizes:
        layers += [nn.Conv2d(inputs, outputs, kernel, stride), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten())
