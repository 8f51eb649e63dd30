"""RTMPose (Jiang et al., 2023): CSPNeXt, and a head that classifies the column and the row of each key point.

The names of the weights are those of MMPose's checkpoints of input 256 x 192 (``rtmpose-m_simcc-...-256x192``).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional


class Form(NamedTuple):
    """Factors of the numbers of blocks and of channels of CSPNeXt."""

    depth: float
    width: float


FORMS = {"t": Form(0.167, 0.375), "s": Form(0.33, 0.5), "m": Form(0.67, 0.75), "l": Form(1.0, 1.0)}

STAGES = ((64, 128, 3), (128, 256, 6), (256, 512, 6), (512, 1024, 3))
"""Channels in and out, and blocks of each stage, for factors of 1."""

STRIDE, BINS = 32, 2.0
"""Pixels of the input per cell of the features, and SimCC's bins per pixel."""

HIDDEN, KEYS = 256, 128
"""Numbers per point in the head, and of its attention's queries and keys."""

LEAST = 1e-5
"""Smallest norm that is divided by."""


class Unit(nn.Module):  # type: ignore[misc]  # torch is not typed here
    """Convolution with batch norm and SiLU."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return N x outputs x H/stride x W/stride."""
        return functional.silu(self.bn(self.conv(x)))


class Separable(nn.Module):  # type: ignore[misc]
    """A convolution of each channel, and one of 1 x 1 over the channels."""

    def __init__(self, channels: int, size: int) -> None:
        super().__init__()
        self.depthwise_conv = Unit(channels, channels, size, groups=channels)
        self.pointwise_conv = Unit(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return features of the same shape."""
        found: torch.Tensor = self.pointwise_conv(self.depthwise_conv(x))
        return found


class CSPNeXtBlock(nn.Module):  # type: ignore[misc]
    """A 3 x 3 convolution and a separable 5 x 5 one, added to the input if it is a shortcut."""

    def __init__(self, channels: int, shortcut: bool) -> None:
        super().__init__()
        self.conv1, self.conv2 = Unit(channels, channels, 3), Separable(channels, 5)
        self.shortcut = shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return features of the same shape."""
        found: torch.Tensor = self.conv2(self.conv1(x))
        return found + x if self.shortcut else found


class Attention(nn.Module):  # type: ignore[misc]
    """A factor for each channel, from the mean of all channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc = nn.Conv2d(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the features times the factors."""
        return x * functional.hardsigmoid(self.fc(x.mean(dim=(2, 3), keepdim=True)))


class CspLayer(nn.Module):  # type: ignore[misc]
    """Blocks on half of the channels, joined with the other half."""

    def __init__(self, channels: int, blocks: int, shortcut: bool) -> None:
        super().__init__()
        half = channels // 2
        self.main_conv, self.short_conv = Unit(channels, half, 1), Unit(channels, half, 1)
        self.final_conv = Unit(2 * half, channels, 1)
        self.blocks = nn.Sequential(*(CSPNeXtBlock(half, shortcut) for _ in range(blocks)))
        self.attention = Attention(2 * half)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return features of the same shape."""
        joined = torch.cat([self.blocks(self.main_conv(x)), self.short_conv(x)], dim=1)
        found: torch.Tensor = self.final_conv(self.attention(joined))
        return found


class Pyramid(nn.Module):  # type: ignore[misc]
    """Features, and their maxima of 5 x 5, 9 x 9 and 13 x 13 cells."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.conv1, self.conv2 = Unit(channels, half, 1), Unit(4 * half, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return features of the same shape."""
        x = self.conv1(x)
        pooled = [functional.max_pool2d(x, size, 1, size // 2) for size in (5, 9, 13)]
        found: torch.Tensor = self.conv2(torch.cat([x, *pooled], dim=1))
        return found


class CspNext(nn.Module):  # type: ignore[misc]
    """CSPNeXt (Lyu et al., 2022): N x 3 x H x W to N x C x H/32 x W/32."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        first = int(STAGES[0][0] * form.width)
        self.stem = nn.Sequential(
            Unit(3, first // 2, 3, 2), Unit(first // 2, first // 2, 3), Unit(first // 2, first, 3)
        )
        for number, (inputs, outputs, blocks) in enumerate(STAGES, start=1):
            wide, last = int(outputs * form.width), number == len(STAGES)
            layers: list[nn.Module] = [Unit(int(inputs * form.width), wide, 3, 2)]
            layers += [Pyramid(wide)] if last else []
            layers.append(CspLayer(wide, max(round(blocks * form.depth), 1), shortcut=not last))
            self.add_module(f"stage{number}", nn.Sequential(*layers))
        self.channels = wide

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the features."""
        x = self.stem(x)
        for layer in (self.stage1, self.stage2, self.stage3, self.stage4):
            x = layer(x)
        return x


class ScaleNorm(nn.Module):  # type: ignore[misc]
    """Rows divided by their root mean square, times one weight (Nguyen and Salazar, 2019)."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.g = nn.Parameter(torch.ones(1))
        self.factor = length**-0.5

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ... x length numbers."""
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True) * self.factor
        return x / size.clamp(min=LEAST) * self.g


class Scale(nn.Module):  # type: ignore[misc]
    """A factor for each of the last axis."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(length))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the product."""
        return x * self.scale


class GatedAttention(nn.Module):  # type: ignore[misc]
    """Gated attention unit (Hua et al., 2022) over the points: N x K x C to N x K x C."""

    def __init__(self, width: int, keys: int) -> None:
        super().__init__()
        self.inner, self.keys = 2 * width, keys
        self.o = nn.Linear(self.inner, width, bias=False)
        self.uv = nn.Linear(width, 2 * self.inner + keys, bias=False)
        self.gamma = nn.Parameter(torch.rand(2, keys))
        self.beta = nn.Parameter(torch.rand(2, keys))
        self.ln = ScaleNorm(width)
        self.res_scale = Scale(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the numbers of the points after they have seen each other."""
        gates, values, base = functional.silu(self.uv(self.ln(x))).split([self.inner, self.inner, self.keys], dim=2)
        queries, keys = (base * self.gamma[place] + self.beta[place] for place in (0, 1))
        shares = functional.relu(queries @ keys.transpose(1, 2) / self.keys**0.5).square()
        found: torch.Tensor = self.res_scale(x) + self.o(gates * (shares @ values))
        return found


class Head(nn.Module):  # type: ignore[misc]
    """Scores of the column and the row of each point, of features for one input size."""

    def __init__(self, channels: int, points: int, size: tuple[int, int]) -> None:
        super().__init__()
        height, width = size
        cells = (height // STRIDE) * (width // STRIDE)
        self.final_layer = nn.Conv2d(channels, points, 7, padding=3)
        self.mlp = nn.Sequential(ScaleNorm(cells), nn.Linear(cells, HIDDEN, bias=False))
        self.gau = GatedAttention(HIDDEN, KEYS)
        self.cls_x = nn.Linear(HIDDEN, int(width * BINS), bias=False)
        self.cls_y = nn.Linear(HIDDEN, int(height * BINS), bias=False)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return N x K x 2W and N x K x 2H from N x C x H/32 x W/32."""
        found = self.gau(self.mlp(self.final_layer(x).flatten(2)))
        return self.cls_x(found), self.cls_y(found)


class RtmPose(nn.Module):  # type: ignore[misc]
    """RTMPose: N x 3 x H x W to SimCC's vectors, N x K x 2W and N x K x 2H.

    Args:
        name: of :data:`FORMS`. points: K. size: height and width, multiples of 32, which the weights depend on.
    """

    def __init__(self, name: str, points: int, size: tuple[int, int]) -> None:
        super().__init__()
        self.backbone = CspNext(FORMS[name])
        self.head = Head(self.backbone.channels, points, size)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the scores of columns and rows."""
        found: tuple[torch.Tensor, torch.Tensor] = self.head(self.backbone(x))
        return found
