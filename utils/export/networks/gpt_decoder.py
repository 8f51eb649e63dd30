"""GPT-2 decoder with a key/value cache of planned sizes.

Radford et al., "Language Models are Unsupervised Multitask Learners" (2019): layer norm before attention and before the
feed-forward network, learned positions, output weights shared with the embedding. State dict keys as in transformers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine import ModelError
from utils.export.networks.bert_encoder import read_config

MASKED = -10000.0
"""Score of an empty slot: its softmax is 0, and it is in the range of float16, unlike -3e38."""

_GELU = {"gelu_new": "tanh", "gelu_pytorch_tanh": "tanh", "gelu_fast": "tanh", "gelu": "none"}
"""GELU approximations by the name in ``config.json``; the first three agree to float32 precision."""


@dataclass(frozen=True)
class Form:
    """The sizes of a decoder.

    Attributes:
        vocabulary: number of tokens. positions: maximum length. width: hidden size. inner: feed-forward size.
        activation: name in ``config.json``. epsilon: of the norms. begin, end: ids of the begin and end tokens.
    """

    vocabulary: int = 50257
    positions: int = 1024
    width: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072
    activation: str = "gelu_new"
    epsilon: float = 1e-5
    begin: int | None = None
    end: int | None = None


SIZES: Mapping[str, Form] = {
    "small": Form(begin=50256, end=50256),
    "medium": Form(width=1024, layers=24, heads=16, inner=4096, begin=50256, end=50256),
    "large": Form(width=1280, layers=36, heads=20, inner=5120, begin=50256, end=50256),
    "xl": Form(width=1600, layers=48, heads=25, inner=6400, begin=50256, end=50256),
}
"""The four published sizes of GPT-2."""


def read_form(path: Path) -> Form:
    """Read a ``config.json`` of model type ``gpt2``; raise ModelError if it is invalid or unsupported."""
    found = read_config(path)
    kind = found.get("model_type")
    if kind != "gpt2":
        raise ModelError(f"{path}: model_type is {kind!r}, not 'gpt2'; use the folder of a GPT-2 style model")
    _check_supported(found, path)
    width, heads = _count(found, "n_embd", 768, path), _count(found, "n_head", 12, path)
    if width % heads:
        raise ModelError(f"{path}: n_embd {width} is not a multiple of n_head {heads}; correct the file")
    return Form(
        vocabulary=_count(found, "vocab_size", 50257, path),
        positions=_count(found, "n_positions", 1024, path),
        width=width,
        layers=_count(found, "n_layer", 12, path),
        heads=heads,
        inner=_count(found, "n_inner", 4 * width, path),
        activation=str(found.get("activation_function", "gelu_new")),
        epsilon=float(found.get("layer_norm_epsilon", 1e-5)),
        begin=_whole(found, "bos_token_id", path),
        end=_whole(found, "eos_token_id", path),
    )


def _check_supported(found: Mapping[str, Any], path: Path) -> None:
    activation = found.get("activation_function", "gelu_new")
    if activation not in _GELU:
        fix = f"supported are {', '.join(_GELU)}"
        raise ModelError(f"{path}: activation_function {activation!r} is not supported; {fix}")
    for key, usual in (("scale_attn_weights", True), ("scale_attn_by_inverse_layer_idx", False)):
        if bool(found.get(key, usual)) is not usual:
            raise ModelError(f"{path}: {key} {found[key]} is not supported; GPT-2's own models have {usual}")
    if found.get("add_cross_attention"):
        raise ModelError(f"{path}: add_cross_attention is not supported; use a decoder without an encoder")


def _count(found: Mapping[str, Any], key: str, usual: int, path: Path) -> int:
    value = _whole(found, key, path, 1)
    return usual if value is None else value


def _whole(found: Mapping[str, Any], key: str, path: Path, least: int = 0) -> int | None:
    value = found.get(key)
    if value is not None and (type(value) is not int or value < least):
        raise ModelError(f"{path}: {key} {value!r} is not an integer of at least {least}; correct the file")
    return value


Past: TypeAlias = "tuple[Tensor, Tensor, Tensor]"
"""A layer's keys and values, and the score bias of their slots."""


def _later(count: int) -> Tensor:
    """Return the causal score bias of new tokens, T x T."""
    places = torch.arange(count)
    return (places[:, None] < places).float() * MASKED


class Projection(nn.Module):  # type: ignore[misc]
    """Linear layer with a weight of shape in x out, as in GPT-2's files."""

    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.empty(wide, out)), nn.Parameter(torch.zeros(out))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Return x @ weight + bias."""
        return x @ self.weight + self.bias


class Attention(nn.Module):  # type: ignore[misc]
    """Causal attention of T new tokens to P slots of a cache and to each other."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.heads, self.size = form.heads, form.width // form.heads
        self.c_attn = Projection(form.width, 3 * form.width)
        self.c_proj = Projection(form.width, form.width)

    def parts(self, x: Tensor) -> list[Tensor]:
        """Return queries (scaled), keys and values, N x heads x T x size each."""
        found = self.c_attn(x).reshape(x.shape[0], x.shape[1], 3, self.heads, self.size).permute(2, 0, 3, 1, 4)
        return [found[0] * self.size**-0.5, found[1], found[2]]

    def forward(self, x: Tensor, later: Tensor, past: Past | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the attention output, N x T x width, and the keys and values of the new tokens.

        Scores of slots and new tokens are concatenated instead of keys, so that the cache is not copied.

        Args:
            x: N x T x width. later: causal bias, T x T.
            past: keys and values, N x heads x P x size, and their score bias, N x 1 x 1 x P; or ``None``.
        """
        q, k, v = self.parts(x)
        near = q @ k.transpose(2, 3) + later
        if past is None:
            mixed = torch.softmax(near, dim=-1) @ v
        else:
            slots = past[0].shape[2]
            share = torch.softmax(torch.cat([q @ past[0].transpose(2, 3) + past[2], near], dim=-1), dim=-1)
            mixed = share[..., :slots] @ past[1] + share[..., slots:] @ v
        return self.c_proj(mixed.transpose(1, 2).reshape(x.shape[0], x.shape[1], self.heads * self.size)), k, v


class FeedForward(nn.Module):  # type: ignore[misc]
    """Two linear layers with GELU."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.c_fc, self.c_proj = Projection(form.width, form.inner), Projection(form.inner, form.width)
        self.approximate = _GELU[form.activation]

    def forward(self, x: Tensor) -> Tensor:
        """Return N x T x width."""
        out: Tensor = self.c_proj(functional.gelu(self.c_fc(x), approximate=self.approximate))
        return out


class Block(nn.Module):  # type: ignore[misc]
    """One layer of the decoder."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = (nn.LayerNorm(form.width, form.epsilon) for _ in range(2))
        self.attn, self.mlp = Attention(form), FeedForward(form)

    def forward(self, x: Tensor, later: Tensor, past: Past | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the hidden state after this layer, and the new keys and values."""
        seen, k, v = self.attn(self.ln_1(x), later, past)
        x = x + seen
        return x + self.mlp(self.ln_2(x)), k, v


class GptDecoder(nn.Module):  # type: ignore[misc]
    """GPT-2 style decoder that reads a cache of a planned size and returns the keys and values of new tokens only.

    The caller writes them into the cache. Returning the whole cache would transfer P times the bytes per token, plus a
    copy on the host (measured by ``benchmarks/generation.py --cache``).
    """

    def __init__(self, form: Form) -> None:
        super().__init__()
        self.form = form
        parts = {
            "wte": nn.Embedding(form.vocabulary, form.width),
            "wpe": nn.Embedding(form.positions, form.width),
            "h": nn.ModuleList(Block(form) for _ in range(form.layers)),
            "ln_f": nn.LayerNorm(form.width, form.epsilon),
        }
        nn.init.normal_(parts["wte"].weight, std=0.02)
        nn.init.normal_(parts["wpe"].weight, std=0.01)
        self.transformer = nn.ModuleDict(parts)

    def embedded(self, ids: Tensor) -> Tensor:
        """Return N x T x width for tokens, from the transposed table of the output, which a file stores once."""
        table = self.transformer["wte"].weight.T
        picked = torch.index_select(table, 1, ids.flatten()).T
        return picked.reshape(ids.shape[0], ids.shape[1], table.shape[0])

    def logits(self, x: Tensor) -> Tensor:
        """Return N x T x vocabulary for the last hidden state."""
        out: Tensor = self.transformer["ln_f"](x) @ self.transformer["wte"].weight.T
        return out

    def whole(self, ids: Tensor) -> Tensor:
        """Return the logits of whole texts, N x T, without a cache, for training."""
        count = ids.shape[1]
        x = self.transformer["wte"](ids) + self.transformer["wpe"].weight[:count]
        later = _later(count)
        for block in self.transformer["h"]:
            x, _, _ = block(x, later, None)
        return self.logits(x)

    def forward(self, ids: Tensor, positions: Tensor, mask: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        """Return the logits of new tokens, and their keys and values by layer.

        Args:
            ids, positions: N x T int64, tokens and their positions; tokens may be padded at the end.
            mask: N x P float, 1 for a filled slot of the cache, else 0.
            past: the caches, key and value alternating, N x heads x P x size each.
        """
        x = self.embedded(ids) + self.transformer["wpe"](positions)
        later, slots = _later(ids.shape[1]), ((1 - mask) * MASKED)[:, None, None, :]
        new: list[Tensor] = []
        for i, block in enumerate(self.transformer["h"]):
            x, k, v = block(x, later, (past[2 * i], past[2 * i + 1], slots))
            new += [k, v]
        return (self.logits(x), *new)


def cache_names(layers: int, prefix: str) -> list[str]:
    """Return the names of the caches: ``past.0.key``, ``past.0.value``, ..."""
    return [f"{prefix}.{layer}.{what}" for layer in range(layers) for what in ("key", "value")]


def fitted_state(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights under this network's keys, without the masks of older files.

    ``lm_head.weight`` is the embedding. Files of the model without a head have keys without ``transformer.``.
    """
    found = {key: value.float() for key, value in state.items() if key != "lm_head.weight"}
    found = {key if key.startswith("transformer.") else f"transformer.{key}": value for key, value in found.items()}
    return {key: value for key, value in found.items() if not key.endswith((".attn.bias", ".attn.masked_bias"))}


def example(form: Form, slots: int = 8, tokens: int = 4, rows: int = 2) -> Sequence[Tensor]:
    """Return example inputs with a different number of filled slots per row."""
    made = torch.Generator().manual_seed(0)
    ids = torch.randint(0, form.vocabulary, (rows, tokens), generator=made)
    filled = torch.arange(rows) % slots + 1
    places = (filled[:, None] + torch.arange(tokens)).clamp(max=form.positions - 1)
    mask = (torch.arange(slots) < filled[:, None]).float()
    shape = rows, form.heads, slots, form.width // form.heads
    past = [torch.randn(shape, generator=made) for _ in range(2 * form.layers)]
    return [ids, places, mask, *past]
