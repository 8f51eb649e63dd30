"""Text encoders such as BERT, RoBERTa, DistilBERT, ELECTRA and ALBERT as PyTorch modules, of ``config.json`` and a file
of weights with the names of transformers (``encoder.layer.0.attention.self.query.weight``), which is not needed itself.
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
"""Attention bias of a masked token; large enough to remove it, and in the range of float16."""

PADDED_PLACES = ("roberta", "xlm-roberta", "camembert")
"""Kinds whose positions start after the padding id and skip padding tokens."""

DISTILBERT, ELECTRA, ALBERT = "distilbert", "electra", "albert"

KINDS = ("bert", *PADDED_PLACES, DISTILBERT, ELECTRA, ALBERT)
"""Supported values of ``model_type`` in ``config.json``."""

OTHER_KEYS = {
    DISTILBERT: {
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
    }
}
"""Keys of ``config.json`` by kind and by the key of the others."""

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
    """Sizes of an encoder in ``config.json``.

    Attributes:
        kind: one of :data:`KINDS`. vocabulary: number of tokens. width: hidden size. inner: feed-forward size.
        places: rows of the position table. types: number of segment types, 1 without pairs, 0 without a table.
        pad: id of the padding token. epsilon: of the norms. activation: one of :data:`ACTIVATIONS`.
        dropout: probability in training.
        embedding: width of the embeddings; 0: the hidden size. shared: whether all layers have the same weights.
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
    embedding: int = 0
    shared: bool = False

    @property
    def embedded(self) -> int:
        """Return the width of the embeddings."""
        return self.embedding or self.width

    @property
    def first(self) -> int:
        """Return the position of the first token."""
        return self.pad + 1 if self.kind in PADDED_PLACES else 0

    @property
    def longest(self) -> int:
        """Return the maximum number of tokens of a text."""
        return self.places - self.first


def read_config(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; raise ModelError if it is missing or not a JSON object."""
    try:
        found = json.loads(text_of(path))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: cannot be read as JSON ({first_line(error)}); get the file again") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path}: does not contain a JSON object; get the file again")
    return found


def sizes_of(config: Mapping[str, Any], origin: str) -> Sizes:
    """Return the sizes in a ``config.json``; raise ModelError (with its name, ``origin``) if unsupported or invalid."""
    kind = config.get("model_type")
    if kind not in KINDS:
        raise ModelError(
            f"{origin}: model_type {kind!r};{did_you_mean(str(kind), KINDS)} supported are {', '.join(KINDS)}"
        )
    others = OTHER_KEYS.get(str(kind), {})
    config = {**config, **{own: config[other] for own, other in others.items() if other in config}}
    dropout = config.get("hidden_dropout_prob")
    if config.get("position_embedding_type", "absolute") != "absolute":
        fix = "only 'absolute' is supported"
        raise ModelError(f"{origin}: position_embedding_type {config['position_embedding_type']!r}; {fix}")
    if config.get("is_decoder") or config.get("add_cross_attention"):
        raise ModelError(f"{origin}: decoders are not supported; use an encoder")
    groups = next((key for key in ("num_hidden_groups", "inner_group_num") if config.get(key, 1) != 1), None)
    if kind == ALBERT and groups is not None:
        raise ModelError(f"{origin}: {groups} {config[groups]!r}; only 1 is supported: one layer, used again and again")
    activation = config.get("hidden_act", "gelu")
    if activation not in ACTIVATIONS:
        raise ModelError(f"{origin}: hidden_act {activation!r}; supported are {', '.join(ACTIVATIONS)}")
    found = Sizes(
        kind=kind,
        vocabulary=_number(config, "vocab_size", origin),
        width=_number(config, "hidden_size", origin),
        layers=_number(config, "num_hidden_layers", origin),
        heads=_number(config, "num_attention_heads", origin),
        inner=_number(config, "intermediate_size", origin),
        places=_number(config, "max_position_embeddings", origin, 512),
        types=0 if kind == DISTILBERT else _number(config, "type_vocab_size", origin, 2),
        pad=_number(config, "pad_token_id", origin, 1 if kind in PADDED_PLACES else 0, least=0),
        epsilon=float(config.get("layer_norm_eps", 1e-12)),
        activation=activation,
        dropout=0.1 if dropout is None else float(dropout),
        embedding=_number(config, "embedding_size", origin, 128) if kind in (ELECTRA, ALBERT) else 0,
        shared=kind == ALBERT,
    )
    if found.width % found.heads:
        raise ModelError(f"{origin}: hidden_size {found.width} is not a multiple of num_attention_heads {found.heads}")
    return found


def _number(config: Mapping[str, Any], key: str, origin: str, usual: int | None = None, least: int = 1) -> int:
    found = config.get(key, usual)
    if type(found) is not int or found < least:
        raise ModelError(f"{origin}: {key} is {found!r}; use an integer of at least {least}")
    return found


class Embeddings(nn.Module):  # type: ignore[misc]
    """Sum of token, position and segment embeddings, normalized."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.word_embeddings = nn.Embedding(sizes.vocabulary, sizes.embedded)
        self.position_embeddings = nn.Embedding(sizes.places, sizes.embedded)
        if sizes.types:
            self.token_type_embeddings = nn.Embedding(sizes.types, sizes.embedded)
        self.LayerNorm = nn.LayerNorm(sizes.embedded, sizes.epsilon)
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, ids: torch.Tensor, types: torch.Tensor | None) -> torch.Tensor:
        """Return N x L x E for N x L token ids; ``types`` ``None``: all of the first segment."""
        found = self.word_embeddings(ids)
        if self.sizes.types:
            table = self.token_type_embeddings
            found = found + (table.weight[0] if types is None else table(types))
        found = found + self.position_embeddings(self.places(ids))
        normed: torch.Tensor = self.dropout(self.LayerNorm(found))
        return normed

    def places(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the positions of the tokens, 1 x L or N x L."""
        if self.sizes.kind not in PADDED_PLACES:
            return torch.arange(ids.shape[1], device=ids.device)[None]
        known = (ids != self.sizes.pad).to(torch.int64)
        return known.cumsum(1) * known + self.sizes.pad


class SelfAttention(nn.Module):  # type: ignore[misc]
    """Multi-head self-attention."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.heads = sizes.heads
        self.query, self.key, self.value = (nn.Linear(sizes.width, sizes.width) for _ in range(3))
        self.dropout = nn.Dropout(sizes.dropout)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Return N x L x D; ``bias`` N x 1 x 1 x L is added to the scores."""
        query, key, value = (self.split(one(x)) for one in (self.query, self.key, self.value))
        scores = query @ key.transpose(2, 3) * (x.shape[2] // self.heads) ** -0.5 + bias
        seen = self.dropout(scores.softmax(-1)) @ value
        return seen.transpose(1, 2).flatten(2)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        """Return N x L x D as N x H x L x D/H."""
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


class Added(nn.Module):  # type: ignore[misc]
    """Linear layer with residual connection and layer norm."""

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
    """Transformer layer: attention and feed-forward network."""

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
    """Encoder from token ids to a vector per token."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.embeddings = Embeddings(sizes)
        self.projects = sizes.shared or sizes.embedded != sizes.width
        if self.projects:
            self.embeddings_project = nn.Linear(sizes.embedded, sizes.width)
        many = 1 if sizes.shared else sizes.layers
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(Layer(sizes) for _ in range(many))})

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor | None = None) -> torch.Tensor:
        """Return N x L x D for N x L token ids, masks (1: token, 0: padding) and segments."""
        x = self.embeddings(ids, types)
        if self.projects:
            x = self.embeddings_project(x)
        bias, layers = masked(mask, x.dtype), self.encoder["layer"]
        for place in range(self.sizes.layers):
            x = layers[place % len(layers)](x, bias)
        return x


def masked(mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the attention bias of N x L masks, N x 1 x 1 x L: 0 or :data:`MASKED`."""
    return (1 - mask.to(dtype))[:, None, None, :] * MASKED
