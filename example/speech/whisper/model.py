"""Whisper as two networks: an encoder that also returns the cross attention's keys and values, a decoder with a cache.

The architecture is that of Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision" (2022): two
convolutions over log-mel features, pre-norm layers, and a decoder whose output shares the weights of its embedding.
The keys of the weights are those of transformers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import ModelError

MASKED = -10000.0
"""Attention score of an empty slot: exp() makes it 0 relative to any other; within the range of float16."""


@dataclass(frozen=True)
class Form:
    """The sizes of a model.

    Attributes:
        bands: mel bands. frames: of the encoder's states, half of the features'. vocabulary: number of tokens.
        positions: longest text, in tokens. width: of the hidden states. layers, decoder_layers, heads, decoder_heads,
            inner, decoder_inner: of both parts.
    """

    bands: int = 80
    frames: int = 1500
    vocabulary: int = 51865
    positions: int = 448
    width: int = 384
    layers: int = 4
    decoder_layers: int = 4
    heads: int = 6
    decoder_heads: int = 6
    inner: int = 1536
    decoder_inner: int = 1536


def _form(width: int, layers: int, heads: int, bands: int = 80, vocabulary: int = 51865) -> Form:
    return Form(bands, 1500, vocabulary, 448, width, layers, layers, heads, heads, 4 * width, 4 * width)


SIZES = {
    "tiny": _form(384, 4, 6),
    "base": _form(512, 6, 8),
    "small": _form(768, 12, 12),
    "medium": _form(1024, 24, 16),
    "large": _form(1280, 32, 20),
    "large-v3": _form(1280, 32, 20, 128, 51866),
}
"""The published sizes of Whisper, multilingual models only."""

_KEYS = {
    "bands": "num_mel_bins",
    "frames": "max_source_positions",
    "vocabulary": "vocab_size",
    "positions": "max_target_positions",
    "width": "d_model",
    "layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "heads": "encoder_attention_heads",
    "decoder_heads": "decoder_attention_heads",
    "inner": "encoder_ffn_dim",
    "decoder_inner": "decoder_ffn_dim",
}
"""Names in ``config.json``."""


def read_json(path: Path) -> dict[str, Any]:
    """Return an object of a JSON file.

    Raises:
        ModelError: it cannot be read, or is not an object.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read ({error}); give a folder as transformers writes it") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path} holds no JSON object; give a folder as transformers writes it")
    return found


def read_form(path: Path) -> Form:
    """Read a ``config.json`` of model type ``whisper``.

    Raises:
        ModelError: it cannot be read, is of another model, or has unsupported settings.
    """
    found = read_json(path)
    if found.get("model_type") != "whisper":
        raise ModelError(
            f"{path}: model_type is {found.get('model_type')!r}, not 'whisper'; give a Whisper model's folder"
        )
    if found.get("activation_function", "gelu") != "gelu" or found.get("scale_embedding"):
        raise ModelError(f"{path}: another activation_function than gelu, or scale_embedding, is not supported")
    sizes = {}
    for name, key in _KEYS.items():
        value = found.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelError(f"{path}: {key} {value!r} must be a whole number of at least 1; correct the file")
        sizes[name] = value
    form = Form(**sizes)
    for heads in (form.heads, form.decoder_heads):
        if form.width % heads:
            raise ModelError(f"{path}: d_model {form.width} must be a multiple of {heads} heads; correct the file")
    return form


class Attention(nn.Module):
    """Attention with the queries scaled; the keys have no bias."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj, self.q_proj, self.out_proj = (nn.Linear(width, width) for _ in range(3))

    def apart(self, x: torch.Tensor) -> torch.Tensor:
        """Return N x heads x T x size of N x T x width."""
        return x.reshape(x.shape[0], x.shape[1], self.heads, self.size).transpose(1, 2)

    def keys(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values of states, N x heads x T x size each."""
        return self.apart(self.k_proj(x)), self.apart(self.v_proj(x))

    def queries(self, x: torch.Tensor) -> torch.Tensor:
        """Return scaled queries, N x heads x T x size."""
        return self.apart(self.q_proj(x)) * self.size**-0.5

    def joined(self, x: torch.Tensor) -> torch.Tensor:
        """Map the heads' outputs to N x T x width."""
        out: torch.Tensor = self.out_proj(x.transpose(1, 2).reshape(x.shape[0], x.shape[2], self.heads * self.size))
        return out

    def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return the attention over the states, without a mask."""
        return self.joined(torch.softmax(self.queries(x) @ keys.transpose(2, 3), dim=-1) @ values)


class EncoderLayer(nn.Module):
    """One layer of the encoder."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.self_attn = Attention(form.width, form.heads)
        self.self_attn_layer_norm, self.final_layer_norm = (nn.LayerNorm(form.width) for _ in range(2))
        self.fc1, self.fc2 = nn.Linear(form.width, form.inner), nn.Linear(form.inner, form.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return N x T x width."""
        normal = self.self_attn_layer_norm(x)
        x = x + self.self_attn(normal, *self.self_attn.keys(normal))
        out: torch.Tensor = x + self.fc2(functional.gelu(self.fc1(self.final_layer_norm(x))))
        return out


class DecoderLayer(nn.Module):
    """One layer of the decoder."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.self_attn, self.encoder_attn = (Attention(form.width, form.decoder_heads) for _ in range(2))
        self.self_attn_layer_norm, self.encoder_attn_layer_norm, self.final_layer_norm = (
            nn.LayerNorm(form.width) for _ in range(3)
        )
        self.fc1, self.fc2 = nn.Linear(form.width, form.decoder_inner), nn.Linear(form.decoder_inner, form.width)

    def forward(
        self, x: torch.Tensor, later: torch.Tensor, past: tuple[torch.Tensor, ...], cross: tuple[torch.Tensor, ...]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the hidden states after this layer, and the new keys and values.

        Args:
            x: N x T x width. later: causal mask added to the scores of new tokens, T x T.
            past: keys and values of P slots, and the mask added to their scores, N x 1 x 1 x P.
            cross: keys and values of the encoder's states.
        """
        normal = self.self_attn_layer_norm(x)
        own = self.self_attn
        q, (k, v) = own.queries(normal), own.keys(normal)
        scores = torch.cat([q @ past[0].transpose(2, 3) + past[2], q @ k.transpose(2, 3) + later], dim=-1)
        share, slots = torch.softmax(scores, dim=-1), past[0].shape[2]
        x = x + own.joined(share[..., :slots] @ past[1] + share[..., slots:] @ v)
        x = x + self.encoder_attn(self.encoder_attn_layer_norm(x), *cross)
        return x + self.fc2(functional.gelu(self.fc1(self.final_layer_norm(x)))), k, v


class Encoder(nn.Module):
    """Features in, states out."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(form.bands, form.width, 3, padding=1)
        self.conv2 = nn.Conv1d(form.width, form.width, 3, stride=2, padding=1)
        self.embed_positions = nn.Embedding(form.frames, form.width)
        self.layers = nn.ModuleList(EncoderLayer(form) for _ in range(form.layers))
        self.layer_norm = nn.LayerNorm(form.width)

    def forward(self, mels: torch.Tensor) -> torch.Tensor:
        """Map N x bands x 2 frames to N x frames x width."""
        x = functional.gelu(self.conv2(functional.gelu(self.conv1(mels)))).transpose(1, 2)
        x = x + self.embed_positions.weight
        for layer in self.layers:
            x = layer(x)
        out: torch.Tensor = self.layer_norm(x)
        return out


class Decoder(nn.Module):
    """The decoder's weights; :class:`Writing` runs them."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(form.vocabulary, form.width)
        self.embed_positions = nn.Embedding(form.positions, form.width)
        self.layers = nn.ModuleList(DecoderLayer(form) for _ in range(form.decoder_layers))
        self.layer_norm = nn.LayerNorm(form.width)


class Whisper(nn.Module):
    """Both parts, with the keys of transformers' weights (without the prefix ``model.``)."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.form, self.encoder, self.decoder = form, Encoder(form), Decoder(form)


class Listening(nn.Module):
    """The first file: features in; keys and values of the decoder's cross attention out."""

    def __init__(self, whole: Whisper) -> None:
        super().__init__()
        self.encoder = whole.encoder
        self.cross = nn.ModuleList(layer.encoder_attn for layer in whole.decoder.layers)

    def forward(self, mels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values, N x layers x heads x frames x size each, for N x bands x 2 frames."""
        states = self.encoder(mels)
        found = [attention.keys(states) for attention in self.cross]
        return torch.stack([k for k, _ in found], dim=1), torch.stack([v for _, v in found], dim=1)


class Writing(nn.Module):
    """The second file: tokens, a cache and the encoder's keys and values in; logits, new keys and values out."""

    def __init__(self, whole: Whisper) -> None:
        super().__init__()
        self.decoder = whole.decoder

    def forward(
        self,
        ids: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor,
        cross_keys: torch.Tensor,
        cross_values: torch.Tensor,
        *past: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        """Return the logits of new tokens, N x T x vocabulary, and their keys and values by layer.

        Args:
            ids, positions: N x T int64. mask: N x P float, 1 for a slot that holds something, else 0.
            cross_keys, cross_values: as :class:`Listening` gives them.
            past: the caches, key and value alternating, N x heads x P x size each.
        """
        own = self.decoder
        x = own.embed_tokens(ids) + own.embed_positions(positions)
        count = torch.arange(ids.shape[1])
        later = (count[:, None] < count).float() * MASKED
        slots = ((1 - mask) * MASKED)[:, None, None, :]
        new: list[torch.Tensor] = []
        for i, layer in enumerate(own.layers):
            cross = cross_keys[:, i], cross_values[:, i]
            x, k, v = layer(x, later, (past[2 * i], past[2 * i + 1], slots), cross)
            new += [k, v]
        return (own.layer_norm(x) @ own.embed_tokens.weight.T, *new)


def fitted_state(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return weights under this network's keys: without ``model.``, and without the output, which is the embedding."""
    return {key.removeprefix("model."): value.float() for key, value in state.items() if key != "proj_out.weight"}


def cache_names(layers: int, prefix: str) -> list[str]:
    """Return the names of the caches: ``past.0.key``, ``past.0.value``, ..."""
    return [f"{prefix}.{layer}.{what}" for layer in range(layers) for what in ("key", "value")]


def example(form: Form, slots: int = 8, tokens: int = 4, rows: int = 2) -> list[torch.Tensor]:
    """Return inputs to trace :class:`Writing`; each row has another number of filled slots."""
    made = torch.Generator().manual_seed(0)
    ids = torch.randint(0, form.vocabulary, (rows, tokens), generator=made)
    filled = torch.arange(rows) % slots + 1
    places = (filled[:, None] + torch.arange(tokens)).clamp(max=form.positions - 1)
    mask = (torch.arange(slots) < filled[:, None]).float()
    size = form.width // form.decoder_heads
    heard = (rows, form.decoder_layers, form.decoder_heads, form.frames, size)
    cross = [torch.randn(heard, generator=made) for _ in range(2)]
    past = [
        torch.randn((rows, form.decoder_heads, slots, size), generator=made) for _ in range(2 * form.decoder_layers)
    ]
    return [ids, places, mask, *cross, *past]
