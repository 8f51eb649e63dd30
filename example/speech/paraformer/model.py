"""Paraformer as two networks: an encoder with a predictor of the frames' weights, and a decoder of all tokens at once.

The architecture is by Gao et al., "Paraformer: Fast and Accurate Parallel Transformer for Non-autoregressive End-to-End
Speech Recognition" (2022), with the memory blocks of Gao et al., "SAN-M: Memory Equipped Self-Attention" (2020). The
keys of the weights are those of FunASR's checkpoints.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

MASKED = -10000.0
"""Attention score of padding: exp() makes it 0 relative to any other; within the range of float16."""

EPS = 1e-12
"""Epsilon of FunASR's layer norms."""


@dataclass(frozen=True)
class Form:
    """The sizes of a model.

    Attributes:
        bands: mel bands. together, step: number of stacked frames, and the stride between stacks.
        width: of the hidden states. layers, heads, inner, kernel, shift: of the encoder; a memory block
            covers ``kernel`` frames, shifted by ``shift`` into the past.
        decoder_layers, decoder_heads, decoder_inner, decoder_kernel, decoder_shift: the same of the decoder.
        blind_layers: additional layers of the decoder without attention to the encoder.
        left, right: context in frames of a frame's weight. smooth, noise: weights are
            ``max(0, smooth * w - noise)``. tail: weight added after the last frame.
        vocabulary: number of tokens. positions: frames of the longest input.
    """

    bands: int = 80
    together: int = 7
    step: int = 6
    width: int = 512
    layers: int = 50
    heads: int = 4
    inner: int = 2048
    kernel: int = 11
    shift: int = 0
    decoder_layers: int = 16
    decoder_heads: int = 4
    decoder_inner: int = 2048
    decoder_kernel: int = 11
    decoder_shift: int = 0
    blind_layers: int = 0
    left: int = 1
    right: int = 1
    smooth: float = 1.0
    noise: float = 0.0
    tail: float = 0.45
    vocabulary: int = 8404
    positions: int = 1024

    @property
    def inputs(self) -> int:
        """Number of values of a stacked frame, the encoder's input size."""
        return self.bands * self.together


def positions(count: int, width: int) -> torch.Tensor:
    """Return sines and cosines of the positions 1, 2, ..., count x width, with wavelengths from 2 pi to 20000 pi."""
    half = width // 2
    rate = torch.exp(torch.arange(half, dtype=torch.float64) * (-math.log(10000.0) / (half - 1)))
    angle = torch.arange(1, count + 1, dtype=torch.float64)[:, None] * rate
    return torch.cat([angle.sin(), angle.cos()], dim=1).float()


def attended(heads: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the attention output, N x L x width.

    Args:
        q: N x L x width. k, v: N x T x width. mask: N x T, 1 for a frame, else 0.
    """
    size = q.shape[2] // heads
    q, k, v = (one.reshape(one.shape[0], one.shape[1], heads, size).transpose(1, 2) for one in (q, k, v))
    scores = (q * size**-0.5) @ k.transpose(2, 3) + ((1 - mask) * MASKED)[:, None, None, :]
    found = (torch.softmax(scores, dim=-1) @ v).transpose(1, 2)
    return found.reshape(found.shape[0], found.shape[1], heads * size)


class Memory(nn.Module):
    """Memory block (FSMN): a depthwise convolution over neighbouring frames with a residual."""

    def __init__(self, width: int, kernel: int, shift: int) -> None:
        super().__init__()
        self.fsmn_block = nn.Conv1d(width, width, kernel, groups=width, bias=False)
        before = (kernel - 1) // 2 + max(0, shift)
        self.sides = (before, kernel - 1 - before)

    def remembered(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return N x T x width, 0 for padding."""
        held = mask[:, :, None]
        x = x * held
        return (self.fsmn_block(functional.pad(x.transpose(1, 2), self.sides)).transpose(1, 2) + x) * held


class Attention(Memory):
    """Self attention, plus a memory block over its values."""

    def __init__(self, inputs: int, form: Form) -> None:
        super().__init__(form.width, form.kernel, form.shift)
        self.heads = form.heads
        self.linear_q_k_v = nn.Linear(inputs, 3 * form.width)
        self.linear_out = nn.Linear(form.width, form.width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Map N x T x inputs to N x T x width."""
        q, k, v = self.linear_q_k_v(x).chunk(3, dim=-1)
        out: torch.Tensor = self.linear_out(attended(self.heads, q, k, v, mask))
        return out + self.remembered(v, mask)


class Crossed(nn.Module):
    """Attention of tokens to the encoder's states."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.linear_q, self.linear_out = nn.Linear(width, width), nn.Linear(width, width)
        self.linear_k_v = nn.Linear(width, 2 * width)

    def forward(self, x: torch.Tensor, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return N x L x width."""
        k, v = self.linear_k_v(states).chunk(2, dim=-1)
        out: torch.Tensor = self.linear_out(attended(self.heads, self.linear_q(x), k, v, mask))
        return out


class FeedForward(nn.Module):
    """Two layers; in the decoder with a norm between them, and without a bias in the second."""

    def __init__(self, width: int, inner: int, *, normed: bool) -> None:
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(width, inner), nn.Linear(inner, width, bias=not normed)
        if normed:
            self.norm = nn.LayerNorm(inner, EPS)
        self.normed = normed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the same shape."""
        x = torch.relu(self.w_1(x))
        out: torch.Tensor = self.w_2(self.norm(x) if self.normed else x)
        return out


class EncoderLayer(nn.Module):
    """One layer of the encoder; the first one takes features and has no residual around its attention."""

    def __init__(self, inputs: int, form: Form) -> None:
        super().__init__()
        self.self_attn = Attention(inputs, form)
        self.feed_forward = FeedForward(form.width, form.inner, normed=False)
        self.norm1, self.norm2 = nn.LayerNorm(inputs, EPS), nn.LayerNorm(form.width, EPS)
        self.past = inputs == form.width

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return N x T x width."""
        found = self.self_attn(self.norm1(x), mask)
        x = x + found if self.past else found
        out: torch.Tensor = x + self.feed_forward(self.norm2(x))
        return out


class DecoderLayer(nn.Module):
    """One layer of the decoder: feed forward first, then memory over the tokens, then attention to the sound."""

    def __init__(self, form: Form, *, remembers: bool, listens: bool) -> None:
        super().__init__()
        self.feed_forward = FeedForward(form.width, form.decoder_inner, normed=True)
        self.norm1 = nn.LayerNorm(form.width, EPS)
        self.remembers, self.listens = remembers, listens
        if remembers:
            self.self_attn = Memory(form.width, form.decoder_kernel, form.decoder_shift if listens else 0)
            self.norm2 = nn.LayerNorm(form.width, EPS)
        if listens:
            self.src_attn = Crossed(form.width, form.decoder_heads)
            self.norm3 = nn.LayerNorm(form.width, EPS)

    def forward(self, x: torch.Tensor, held: torch.Tensor, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return N x L x width for tokens (``held``: N x L) that attend to states (``mask``: N x T)."""
        found: torch.Tensor = self.feed_forward(self.norm1(x))
        if not self.remembers:
            return found
        x = x + self.self_attn.remembered(self.norm2(found), held)
        return x + self.src_attn(self.norm3(x), states, mask) if self.listens else x


class Encoder(nn.Module):
    """Features in, states out."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.encoders0 = nn.ModuleList([EncoderLayer(form.inputs, form)])
        self.encoders = nn.ModuleList(EncoderLayer(form.width, form) for _ in range(form.layers - 1))
        self.after_norm = nn.LayerNorm(form.width, EPS)
        self.scale = form.width**0.5
        self.places: torch.Tensor
        self.register_buffer("places", positions(form.positions, form.inputs), persistent=False)

    def forward(self, features: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Map N x T x inputs to N x T x width, 0 for padding."""
        x = features * self.scale + self.places[: features.shape[1]]
        for layer in [*self.encoders0, *self.encoders]:
            x = layer(x, mask)
        out: torch.Tensor = self.after_norm(x) * mask[:, :, None]
        return out


class Predictor(nn.Module):
    """Predictor of the weight of each frame (continuous integrate-and-fire: Dong and Xu, 2020)."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.cif_conv1d = nn.Conv1d(form.width, form.width, form.left + form.right + 1)
        self.cif_output = nn.Linear(form.width, 1)
        self.sides, self.smooth, self.noise = (form.left, form.right), form.smooth, form.noise

    def forward(self, states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return N x T, 0 to 1."""
        seen = self.cif_conv1d(functional.pad(states.transpose(1, 2), self.sides)).transpose(1, 2)
        weights = torch.sigmoid(self.cif_output(torch.relu(seen))).squeeze(-1)
        return torch.relu(weights * self.smooth - self.noise) * mask


class Decoder(nn.Module):
    """Acoustic embeddings of tokens in; logits of all tokens out."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.decoders = nn.ModuleList(
            DecoderLayer(form, remembers=True, listens=True) for _ in range(form.decoder_layers)
        )
        self.decoders2 = nn.ModuleList(
            DecoderLayer(form, remembers=True, listens=False) for _ in range(form.blind_layers)
        )
        self.decoders3 = nn.ModuleList([DecoderLayer(form, remembers=False, listens=False)])
        self.after_norm = nn.LayerNorm(form.width, EPS)
        self.output_layer = nn.Linear(form.width, form.vocabulary)

    def forward(
        self, tokens: torch.Tensor, held: torch.Tensor, states: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Return the logits of the second file, N x L x vocabulary.

        Args:
            tokens: N x L x width. held: N x L, 1 for a token, else 0. states, mask: the encoder's, N x T.
        """
        x = tokens
        for layer in [*self.decoders, *self.decoders2, *self.decoders3]:
            x = layer(x, held, states, mask)
        out: torch.Tensor = self.output_layer(self.after_norm(x))
        return out


class Paraformer(nn.Module):
    """All parts, with the keys of FunASR's weights."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.form, self.encoder, self.predictor, self.decoder = form, Encoder(form), Predictor(form), Decoder(form)


class Listening(nn.Module):
    """The first file: features and a mask in; states and their weights out."""

    def __init__(self, whole: Paraformer) -> None:
        super().__init__()
        self.encoder, self.predictor = whole.encoder, whole.predictor

    def forward(self, features: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return N x T x width and N x T for N x T x inputs and N x T (1 for a frame, else 0)."""
        states = self.encoder(features, mask)
        return states, self.predictor(states, mask)


def example(form: Form, frames: int = 12, tokens: int = 5) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return inputs to trace both files: two rows of different lengths."""
    made = torch.Generator().manual_seed(0)
    mask = (torch.arange(frames) < torch.tensor([[frames], [frames - 3]])).float()
    held = (torch.arange(tokens) < torch.tensor([[tokens], [tokens - 2]])).float()
    features = torch.randn((2, frames, form.inputs), generator=made) * mask[:, :, None]
    states = torch.randn((2, frames, form.width), generator=made) * mask[:, :, None]
    embedded = torch.randn((2, tokens, form.width), generator=made) * held[:, :, None]
    return [features, mask], [embedded, held, states, mask]
