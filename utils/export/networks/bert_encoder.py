"""Encoders of text like BERT and RoBERTa as plain torch modules, filled from ``config.json`` and a file of weights.

The names of the weights are those of transformers (``embeddings.word_embeddings.weight``,
``encoder.layer.0.attention.self.query.weight``), so a folder that ``save_pretrained`` wrote fits; transformers itself
is not needed. What a masked token adds to attention is -1e4, which float16 has and which leaves nothing of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from engine import ModelError
from tecoinfer_modelzoo.files import text_of
from tecoinfer_modelzoo.text import did_you_mean
from utils.export.graphs import first_line

MASKED = -1e4
"""What is added to the attention that a masked token gets."""

PADDED_PLACES = ("roberta", "xlm-roberta", "camembert")
"""Kinds whose places are counted from the padding's number on, over the tokens that are no padding."""

KINDS = ("bert", *PADDED_PLACES)
"""Values of ``model_type`` in ``config.json`` that the encoder is right for."""

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": functional.gelu,
    "gelu_new": partial(functional.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
}
"""``hidden_act`` of ``config.json``."""


@dataclass(frozen=True)
class Sizes:
    """What ``config.json`` says of an encoder.

    Attributes:
        kind: one of :data:`KINDS`.
        vocabulary: tokens. width: numbers per token. layers, heads: of attention. inner: width between two matrices.
        places: rows of the table of places. types: kinds of segments, 1 where there are no pairs.
        pad: number of the padding token. epsilon: of the norms. activation: one of :data:`ACTIVATIONS`.
        dropout: share of numbers that training drops.
    """

    kind: str
    vocabulary: int
    width: int
    layers: int
    heads: int
    inner: int
    places: int = 512
    types: int = 2
    pad: int = 0
    epsilon: float = 1e-12
    activation: str = "gelu"
    dropout: float = 0.1

    @property
    def first(self) -> int:
        """Return the place of the first token."""
        return self.pad + 1 if self.kind in PADDED_PLACES else 0

    @property
    def longest(self) -> int:
        """Return how many tokens a text may have."""
        return self.places - self.first


def read_config(path: Path) -> dict[str, Any]:
    """Return the object in a ``config.json``.

    Raises:
        ModelError: the file is missing or holds no JSON object.
    """
    try:
        found = json.loads(text_of(path))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: cannot be read as JSON ({first_line(error)}); get the file again") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path}: holds no JSON object; give a model's config.json")
    return found


def sizes_of(config: Mapping[str, Any], told: str) -> Sizes:
    """Return the sizes that a ``config.json`` states; ``told``: what errors call it.

    Raises:
        ModelError: it is of another kind of model, or a number is missing or cannot be.
    """
    kind = config.get("model_type")
    if kind not in KINDS:
        raise ModelError(
            f"{told}: model_type {kind!r};{did_you_mean(str(kind), KINDS)} this export knows {', '.join(KINDS)}"
        )
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise ModelError(
            f"{told}: position_embedding_type {config['position_embedding_type']!r}; only 'absolute' is known"
        )
    if config.get("is_decoder") or config.get("add_cross_attention"):
        raise ModelError(f"{told}: it is a decoder; this export is for encoders")
    activation = config.get("hidden_act", "gelu")
    if activation not in ACTIVATIONS:
        raise ModelError(f"{told}: hidden_act {activation!r}; this export knows {', '.join(ACTIVATIONS)}")
    found = Sizes(
        kind=kind,
        vocabulary=_number(config, "vocab_size", told),
        width=_number(config, "hidden_size", told),
        layers=_number(config, "num_hidden_layers", told),
        heads=_number(config, "num_attention_heads", told),
        inner=_number(config, "intermediate_size", told),
        places=_number(config, "max_position_embeddings", told, 512),
        types=_number(config, "type_vocab_size", told, 2),
        pad=_number(config, "pad_token_id", told, 1 if kind in PADDED_PLACES else 0, least=0),
        epsilon=float(config.get("layer_norm_eps", 1e-12)),
        activation=activation,
        dropout=float(config.get("hidden_dropout_prob", 0.1)),
    )
    if found.width % found.heads:
        raise ModelError(f"{told}: hidden_size {found.width} is no multiple of num_attention_heads {found.heads}")
    return found


def _number(config: Mapping[str, Any], key: str, told: str, usual: int | None = None, least: int = 1) -> int:
    found = config.get(key, usual)
    if type(found) is not int or found < least:
        raise ModelError(f"{told}: {key} is {found!r}; write a whole number of at least {least}")
    return found


class Embeddings(nn.Module):  # type: ignore[misc]
    """Token, place and segment, added and normed."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.word_embeddings = nn.Embedding(sizes.vocabulary, sizes.width)
        self.position_embeddings = nn.Embedding(sizes.places, sizes.width)
        self.token_type_embeddings = nn.Embedding(sizes.types, sizes.width)
        self.LayerNorm = nn.LayerNorm(sizes.width, sizes.epsilon)
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, ids: torch.Tensor, types: torch.Tensor | None) -> torch.Tensor:
        """Return N x L x D of N x L numbers; ``types`` ``None``: all of the first segment."""
        kinds = self.token_type_embeddings.weight[0] if types is None else self.token_type_embeddings(types)
        found = self.word_embeddings(ids) + kinds + self.position_embeddings(self.places(ids))
        normed: torch.Tensor = self.dropout(self.LayerNorm(found))
        return normed

    def places(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the places of the tokens, 1 x L or N x L."""
        if self.sizes.kind not in PADDED_PLACES:
            return torch.arange(ids.shape[1], device=ids.device)[None]
        known = (ids != self.sizes.pad).to(torch.int64)
        return known.cumsum(1) * known + self.sizes.pad


class SelfAttention(nn.Module):  # type: ignore[misc]
    """Each token looks at all tokens that are not masked."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.query, self.key, self.value = (nn.Linear(sizes.width, sizes.width) for _ in range(3))
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Return N x L x D; ``bias`` N x 1 x 1 x L is added to what is looked at."""
        query, key, value = (self.split(one(x)) for one in (self.query, self.key, self.value))
        looks = query @ key.transpose(2, 3) * (x.shape[2] // self.heads) ** -0.5 + bias
        seen = self.dropout(looks.softmax(-1)) @ value
        return seen.transpose(1, 2).flatten(2)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        """Return N x L x D as N x H x L x D/H."""
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


class Added(nn.Module):  # type: ignore[misc]
    """A matrix whose result is added to what was there, and normed."""

    def __init__(self, inputs: int, sizes: Sizes) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, sizes.width)
        self.LayerNorm = nn.LayerNorm(sizes.width, sizes.epsilon)
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, x: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """Return N x L x D of N x L x ``inputs``."""
        normed: torch.Tensor = self.LayerNorm(before + self.dropout(self.dense(x)))
        return normed


class Layer(nn.Module):  # type: ignore[misc]
    """Attention and two matrices."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention = nn.ModuleDict({"self": SelfAttention(sizes), "output": Added(sizes.width, sizes)})
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(sizes.width, sizes.inner)})
        self.output = Added(sizes.inner, sizes)
        self.activation = ACTIVATIONS[sizes.activation]

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Return N x L x D of N x L x D."""
        x = self.attention["output"](self.attention["self"](x, bias), x)
        found: torch.Tensor = self.output(self.activation(self.intermediate["dense"](x)), x)
        return found


class Encoder(nn.Module):  # type: ignore[misc]
    """Numbers of tokens in, a vector for each out."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.embeddings = Embeddings(sizes)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(Layer(sizes) for _ in range(sizes.layers))})

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor | None = None) -> torch.Tensor:
        """Return N x L x D of N x L numbers, masks (1: a token, 0: padding) and segments."""
        x = self.embeddings(ids, types)
        bias = masked(mask, x.dtype)
        for layer in self.encoder["layer"]:
            x = layer(x, bias)
        return x


def masked(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return what N x L masks add to attention, N x 1 x 1 x L: 0 or :data:`MASKED`."""
    return (1 - mask.to(dtype))[:, None, None, :] * MASKED
