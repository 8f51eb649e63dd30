"""Conformer-CTC: alternating convolution and attention over log-mels, and a class per step (Gulati et al., 2020).

Parameters have NeMo's names, so its weights load without conversion. Attention uses relative positions (Dai et al.,
2019).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Size:
    """Sizes of a Conformer.

    Attributes:
        width: size of a step's state. layers, heads: of attention. kernel: size of a layer's convolution in steps.
        factor: frames per step, a power of 2. separable: the front end's convolutions are depthwise (FastConformer).
        channels: of the front end. bands: of the features. expansion: of the feed-forward parts. classes: with blank.
        scaled: the front end's output is scaled by the root of the width. biased: linear and other layers have biases.
    """

    width: int
    layers: int
    heads: int
    kernel: int = 31
    factor: int = 4
    separable: bool = False
    channels: int = 0
    bands: int = 80
    expansion: int = 4
    classes: int = 129
    scaled: bool = True
    biased: bool = True


SIZES = {
    "tiny": Size(32, 2, 2, kernel=9, bands=40, classes=29),
    "small": Size(176, 16, 4),
    "medium": Size(256, 18, 4),
    "large": Size(512, 18, 8),
    "fast_large": Size(512, 18, 8, kernel=9, factor=8, separable=True, channels=256, classes=1025),
}
"""``tiny`` is for tests. The others are those that NeMo has published; ``fast_large`` is FastConformer."""


def inside(lengths: torch.Tensor, steps: int) -> torch.Tensor:
    """Return the mask of the steps within recordings of these lengths, N x T."""
    return torch.arange(steps, device=lengths.device)[None] < lengths[:, None]


class Front(nn.Module):
    """3 x 3 convolutions that halve time and bands until a step covers ``factor`` frames."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        channels = size.channels or size.width
        parts: list[nn.Module] = []
        for place in range(int(math.log2(size.factor))):
            apart = size.separable and place > 0
            parts.append(nn.Conv2d(channels if place else 1, channels, 3, 2, 1, groups=channels if apart else 1))
            if apart:
                parts.append(nn.Conv2d(channels, channels, 1))
            parts.append(nn.ReLU())
        self.conv = nn.Sequential(*parts)
        bands = size.bands
        for _ in range(int(math.log2(size.factor))):
            bands = (bands + 1) // 2
        self.out = nn.Linear(channels * bands, size.width)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Map N x T x bands to N x T / factor x width; steps after the end of a recording are 0."""
        x = x[:, None] * inside(lengths, x.shape[1])[:, None, :, None]
        for part in self.conv:
            x = part(x)
            if isinstance(part, nn.Conv2d):
                if part.stride[0] == 2:
                    lengths = (lengths + 1) // 2
                x = x * inside(lengths, x.shape[2])[:, None, :, None]
        return self.out(x.transpose(1, 2).flatten(2)), lengths


class FeedForward(nn.Module):
    """Feed-forward part: two linear layers with a wider hidden layer."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.linear1 = nn.Linear(size.width, size.width * size.expansion, size.biased)
        self.linear2 = nn.Linear(size.width * size.expansion, size.width, size.biased)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map N x T x width to the same."""
        return self.linear2(functional.silu(self.linear1(x)))


class Attention(nn.Module):
    """Attention whose scores depend on the content and on the relative position of two steps."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.heads, self.each = size.heads, size.width // size.heads
        for name in ("linear_q", "linear_k", "linear_v", "linear_out"):
            setattr(self, name, nn.Linear(size.width, size.width, size.biased))
        self.linear_pos = nn.Linear(size.width, size.width, bias=False)
        self.pos_bias_u = nn.Parameter(torch.zeros(self.heads, self.each))
        self.pos_bias_v = nn.Parameter(torch.zeros(self.heads, self.each))

    def forward(self, x: torch.Tensor, places: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Map N x T x width to the same.

        Args:
            places: embeddings of the distances T - 1 to 1 - T, 2T - 1 x width.
            hidden: N x 1 x 1 x T, the masked steps.
        """
        query = self._split(self.linear_q(x))
        key, value = self._split(self.linear_k(x)).transpose(1, 2), self._split(self.linear_v(x)).transpose(1, 2)
        distance = self.linear_pos(places).unflatten(-1, (self.heads, self.each)).permute(1, 2, 0)
        content = (query + self.pos_bias_u).transpose(1, 2) @ key.transpose(-1, -2)
        apart = (query + self.pos_bias_v).transpose(1, 2) @ distance
        scores = (content + shifted(apart)) / math.sqrt(self.each)
        shares = torch.softmax(scores.masked_fill(hidden, -1e4), dim=-1).masked_fill(hidden, 0.0)
        return self.linear_out((shares @ value).transpose(1, 2).flatten(2))

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, self.each))


def shifted(scores: torch.Tensor) -> torch.Tensor:
    """Turn scores by distance, ... x T x 2T - 1 from T - 1 to 1 - T, into scores by step, ... x T x T.

    Row ``t`` is shifted by ``T - 1 - t``: a column is added, and the values are reshaped to rows that are one shorter.
    """
    batch, heads, steps, distances = scores.shape
    padded = functional.pad(scores, (1, 0)).reshape(batch, heads, distances + 1, steps)
    return padded[:, :, 1:].reshape(batch, heads, steps, distances)[..., :steps]


class Convolution(nn.Module):
    """Convolution part: a gated linear unit, a depthwise convolution along time and a pointwise convolution."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.pointwise_conv1 = nn.Conv1d(size.width, 2 * size.width, 1, bias=size.biased)
        self.depthwise_conv = nn.Conv1d(
            size.width, size.width, size.kernel, padding=size.kernel // 2, groups=size.width, bias=size.biased
        )
        self.batch_norm = nn.BatchNorm1d(size.width)
        self.pointwise_conv2 = nn.Conv1d(size.width, size.width, 1, bias=size.biased)

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """Map N x T x width to the same; ``seen``, N x 1 x T, are the steps within the recordings."""
        x = functional.glu(self.pointwise_conv1(x.transpose(1, 2)), dim=1) * seen
        return self.pointwise_conv2(functional.silu(self.batch_norm(self.depthwise_conv(x)))).transpose(1, 2)


class Layer(nn.Module):
    """A Conformer block: half a feed-forward part, attention, convolution, and the other half."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.feed_forward1, self.feed_forward2 = FeedForward(size), FeedForward(size)
        self.self_attn, self.conv = Attention(size), Convolution(size)
        for name in ("feed_forward1", "self_att", "conv", "feed_forward2", "out"):
            setattr(self, f"norm_{name}", nn.LayerNorm(size.width))

    def forward(self, x: torch.Tensor, places: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """Map N x T x width to the same."""
        x = x + 0.5 * self.feed_forward1(self.norm_feed_forward1(x))
        x = x + self.self_attn(self.norm_self_att(x), places, ~seen[:, None])
        x = x + self.conv(self.norm_conv(x), seen)
        return self.norm_out(x + 0.5 * self.feed_forward2(self.norm_feed_forward2(x)))


class Encoder(nn.Module):
    """The front end and the layers."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.scale = math.sqrt(size.width) if size.scaled else 1.0
        self.pre_encode = Front(size)
        self.layers = nn.ModuleList(Layer(size) for _ in range(size.layers))
        rates = torch.exp(torch.arange(0, size.width, 2) * (-math.log(10000.0) / size.width))
        self.register_buffer("rates", rates, persistent=False)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Map N x T x bands to N x T / factor x width, and numbers of frames to numbers of steps."""
        x, lengths = self.pre_encode(x, lengths)
        x = x * self.scale
        steps = x.shape[1]
        angles = torch.arange(steps - 1, -steps, -1)[:, None] * self.rates
        places = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
        seen = inside(lengths, steps)[:, None]
        for layer in self.layers:
            x = layer(x, places.to(x.dtype), seen)
        return x, lengths


class Decoder(nn.Module):
    """A class per step; its layer is a convolution of size 1, as in NeMo."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.decoder_layers = nn.Sequential(nn.Conv1d(size.width, size.classes, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map N x T x width to N x T x classes."""
        return self.decoder_layers(x.transpose(1, 2)).transpose(1, 2)


class ConformerCTC(nn.Module):
    """N x T x bands log-mels and the number of valid frames of each in, N x T / factor x classes logits out; the last
    class is the blank. Frames after the end of a recording do not change the logits before it."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.encoder, self.decoder = Encoder(size), Decoder(size)

    def forward(self, features: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """Return N x T / factor x classes logits."""
        return self.decoder(self.encoder(features, lengths)[0])
