"""Diffusion: networks that take a noisy image and a timestep, and an autoencoder's decoder."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

from sweep.row import Row, floats, images, numbers, several

STEPS = 1000


def waves(step: torch.Tensor, width: int, dtype: torch.dtype) -> torch.Tensor:
    """Return sines and cosines of a timestep, computed in float32: (batch, width)."""
    rates = torch.exp(-math.log(10000.0) * torch.arange(width // 2, dtype=torch.float32) / (width // 2))
    angles = step.to(torch.float32)[:, None] * rates[None]
    return torch.cat([angles.sin(), angles.cos()], 1).to(dtype)


class Residual(nn.Module):
    """A residual block with time embedding."""

    def __init__(self, a: int, b: int, time: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(4, a), nn.SiLU(), nn.Conv2d(a, b, 3, padding=1))
        self.time = nn.Linear(time, 2 * b)
        self.norm, self.last = nn.GroupNorm(4, b), nn.Conv2d(b, b, 3, padding=1)
        self.side = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Return new features."""
        scale, shift = self.time(time)[:, :, None, None].chunk(2, 1)
        y = self.norm(self.first(x)) * (1 + scale) + shift
        return self.side(x) + self.last(nn.functional.silu(y))


class Attention(nn.Module):
    """Attention over all positions of a feature map, or from them to a text."""

    def __init__(self, width: int, context: int | None = None) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.core = nn.MultiheadAttention(width, 4, kdim=context, vdim=context, batch_first=True)

    def forward(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        """Return new features."""
        flat = self.norm(x).flatten(2).transpose(1, 2)
        other = flat if context is None else context
        mixed = self.core(flat, other, other, need_weights=False)[0]
        return x + mixed.transpose(1, 2).reshape(x.shape)


class DiffusionUNet(nn.Module):
    """A small U-Net of DDPM (Ho et al., 2020); with ``context`` one that also attends to a text."""

    def __init__(self, context: int | None = None, channels: int = 3) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 64))
        self.into = nn.Conv2d(channels, 16, 3, padding=1)
        self.down, self.shrink = Residual(16, 16, 64), nn.Conv2d(16, 32, 3, 2, 1)
        self.middle, self.mix, self.after = Residual(32, 32, 64), Attention(32, context), Residual(32, 32, 64)
        self.grow, self.up = nn.Conv2d(32, 16, 3, padding=1), Residual(32, 16, 64)
        self.out = nn.Sequential(nn.GroupNorm(4, 16), nn.SiLU(), nn.Conv2d(16, channels, 3, padding=1))

    def forward(self, x: torch.Tensor, step: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        """Return the noise."""
        time = self.time(waves(step, 32, x.dtype))
        kept = self.down(self.into(x), time)
        y = self.middle(self.shrink(kept), time)
        y = self.after(self.mix(y, context), time)
        y = self.grow(nn.functional.interpolate(y, scale_factor=2.0, mode="nearest"))
        return self.out(self.up(torch.cat([y, kept], 1), time))


class Dit(nn.Module):
    """A diffusion transformer (Peebles and Xie, 2023): patches, time and class modulate every layer norm."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.patches, self.kinds = nn.Conv2d(4, width, 2, 2), nn.Embedding(10, width)
        self.time = nn.Sequential(nn.Linear(32, width), nn.SiLU(), nn.Linear(width, width))
        self.places = nn.Parameter(torch.randn(64, width) * 0.2)
        self.shifts = nn.ModuleList(nn.Linear(width, 6 * width) for _ in range(2))
        self.cores = nn.ModuleList(nn.MultiheadAttention(width, 4, batch_first=True) for _ in range(2))
        self.wide = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 96), nn.GELU("tanh"), nn.Linear(96, width)) for _ in range(2)
        )
        self.norm, self.out = nn.LayerNorm(width, elementwise_affine=False), nn.Linear(width, 16)

    def forward(self, x: torch.Tensor, step: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        """Return the noise of a latent image (batch, 4, 16, 16)."""
        y = self.patches(x).flatten(2).transpose(1, 2) + self.places
        conditions = nn.functional.silu(self.time(waves(step, 32, x.dtype)) + self.kinds(kind))
        for shifts, core, wide in zip(self.shifts, self.cores, self.wide, strict=True):
            a, b, c, d, e, f = shifts(conditions)[:, None].chunk(6, -1)
            z = self.norm(y) * (1 + a) + b
            y = y + c * core(z, z, z, need_weights=False)[0]
            y = y + f * wide(self.norm(y) * (1 + d) + e)
        y = self.out(self.norm(y)).view(-1, 8, 8, 2, 2, 4)
        return torch.einsum("nhwpqc->nchpwq", y).reshape(-1, 4, 16, 16)


class LatentDecoder(nn.Module):
    """From a latent image back to pixels: residual blocks, attention, upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.mix = nn.Conv2d(4, 32, 3, padding=1), Attention(32)
        self.up = nn.ModuleList(nn.Conv2d(a, b, 3, padding=1) for a, b in ((32, 16), (16, 16)))
        self.out = nn.Sequential(nn.GroupNorm(4, 16), nn.SiLU(), nn.Conv2d(16, 3, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return images in -1 to 1."""
        x = self.mix(self.into(x))
        for conv in self.up:
            x = nn.functional.silu(conv(nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")))
        return torch.tanh(self.out(x))


def times(rng: np.random.Generator, count: int) -> list[np.ndarray]:
    """Return timesteps that bfloat16 cannot represent: odd numbers above 256."""
    return [257 + 2 * rng.integers(0, (STEPS - 257) // 2, count)]


ROWS = (
    Row("diffusion u-net", DiffusionUNet, several(images(16), times), ("x", "step")),
    Row("diffusion u-net (text)", lambda: DiffusionUNet(24, 4), several(images(16, 4), times, floats(6, 24)),
        ("x", "step", "context")),
    Row("diffusion transformer", Dit, several(images(16, 4), times, numbers(10)), ("x", "step", "kind")),
    Row("latent decoder", LatentDecoder, images(8, 4)),
)  # fmt: skip
