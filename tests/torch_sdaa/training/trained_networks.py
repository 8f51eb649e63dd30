"""Small networks for trainings on the device: a tagger, the two of a GAN, a diffusion U-Net."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from torch import Tensor, nn


class TaggedWords(nn.Module):
    """Words (batch x length) to scores of 5 tags, through a bidirectional LSTM of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 12)
        self.layers = nn.LSTM(12, 16, 2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 5)

    def forward(self, words: Tensor) -> Tensor:
        """Return batch x length x 5."""
        out: Tensor = self.head(self.layers(self.words(words))[0])
        return out


class Generator(nn.Sequential):
    """Noise (batch x 8 x 1 x 1) to images (batch x 3 x 16 x 16)."""

    def __init__(self) -> None:
        super().__init__(
            nn.ConvTranspose2d(8, 32, 4, 1, 0, bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(True),
            nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(True),
            nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False),
            nn.Tanh(),
        )


class Judge(nn.Sequential):
    """Images (batch x 3 x 16 x 16) to one score each."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 16, 4, 2, 1),
            nn.LeakyReLU(0.2, True),
            nn.Conv2d(16, 32, 4, 2, 1, bias=False),
            nn.BatchNorm2d(32),
            nn.LeakyReLU(0.2, True),
            nn.Dropout(0.2),
            nn.Conv2d(32, 1, 4),
            nn.Flatten(0),
        )


class Timed(nn.Module):
    """Two convolutions with a time embedding and a residual connection."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(inputs, outputs, 3, 1, 1), nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.norms = nn.ModuleList([nn.GroupNorm(1, inputs), nn.GroupNorm(4, outputs)])
        self.time = nn.Linear(16, outputs)
        self.around = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Return batch x outputs x height x width."""
        y = self.first(F.silu(self.norms[0](x))) + self.time(time)[:, :, None, None]
        out: Tensor = self.second(F.silu(self.norms[1](y))) + self.around(x)
        return out


class Denoiser(nn.Module):
    """Noisy images (batch x 3 x 16 x 16) and their times (batch) to their noise."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv2d(3, 16, 3, 1, 1), nn.Conv2d(16, 3, 3, 1, 1)
        self.down, self.middle, self.up = Timed(16, 32), Timed(32, 32), Timed(48, 16)
        self.shrink = nn.Conv2d(16, 16, 3, 2, 1)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        """Return batch x 3 x 16 x 16."""
        rates = torch.exp(-math.log(1e4) * torch.arange(8, device=x.device) / 8)
        angles = times[:, None] * rates
        time = torch.cat([angles.sin(), angles.cos()], 1)
        kept = self.enter(x)
        y = self.down(self.shrink(kept), time)
        cells = y.flatten(2).transpose(1, 2)
        y = y + self.attention(cells, cells, cells, need_weights=False)[0].transpose(1, 2).view_as(y)
        y = F.interpolate(self.middle(y, time), scale_factor=2)
        out: Tensor = self.leave(self.up(torch.cat([y, kept], 1), time))
        return out
