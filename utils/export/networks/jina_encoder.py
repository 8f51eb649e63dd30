"""JinaBERT, version 2: an encoder like BERT without places, whose attention falls off with the distance (ALiBi).

Günther et al. 2023, "Jina Embeddings 2" (arXiv:2310.19923): the bias of head h on token j as seen from token i is
``-slope(h) * |i - j|``, and the two matrices of a layer are a gated linear unit. The names of the weights are those of
the published files (``encoder.layer.0.mlp.gated_layers.weight``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from engine import ModelError
from utils.export.networks.bert_encoder import ACTIVATIONS, Added, SelfAttention, Sizes, masked, sizes_of
from utils.export.networks.bert_heads import Embedded, checked

GATES = {"geglu": "gelu", "reglu": "relu"}
"""``feed_forward_type`` of ``config.json``, and the activation of its gate."""


def jina_sizes(config: Mapping[str, Any], told: str) -> Sizes:
    """Return the sizes that a ``config.json`` of JinaBERT states; ``told``: what errors call it.

    Raises:
        ModelError: it is of another kind of model, or a number is missing or cannot be.
    """
    if config.get("position_embedding_type") != "alibi":
        found = config.get("position_embedding_type", "absolute")
        raise ModelError(f"{told}: position_embedding_type {found!r}; JinaBERT has 'alibi': export this as BERT")
    gate = config.get("feed_forward_type", "original")
    if gate not in GATES:
        raise ModelError(f"{told}: feed_forward_type {gate!r}; this export knows {', '.join(GATES)}")
    return replace(sizes_of({**config, "position_embedding_type": "absolute"}, told), activation=GATES[gate])


def slopes(heads: int) -> list[float]:
    """Return how steeply attention falls off, per head.

    Of n heads, n a power of two: 2**(-8/n), its square, and so on. Of others: those of the power of two below, then
    every second one of twice as many (Press, Smith and Lewis 2022, "Train short, test long").
    """
    most = 2 ** int(math.log2(heads))
    own = [2 ** (-8 * place / most) for place in range(1, most + 1)]
    return (
        own
        if most == heads
        else own + [2 ** (-4 * place / most) for place in range(1, 2 * most + 1, 2)][: heads - most]
    )


class JinaEmbeddings(nn.Module):  # type: ignore[misc]
    """Token and segment, added and normed."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(sizes.vocabulary, sizes.width)
        self.token_type_embeddings = nn.Embedding(sizes.types, sizes.width)
        self.LayerNorm = nn.LayerNorm(sizes.width, sizes.epsilon)

    def forward(self, ids: torch.Tensor, types: torch.Tensor | None) -> torch.Tensor:
        """Return N x L x D of N x L numbers; ``types`` ``None``: all of the first segment."""
        kinds = self.token_type_embeddings.weight[0] if types is None else self.token_type_embeddings(types)
        found: torch.Tensor = self.LayerNorm(self.word_embeddings(ids) + kinds)
        return found


class Gated(nn.Module):  # type: ignore[misc]
    """Two matrices, of which the first makes values and their gates; added to what was there, and normed."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.gated_layers = nn.Linear(sizes.width, 2 * sizes.inner, bias=False)
        self.wo = nn.Linear(sizes.inner, sizes.width)
        self.layernorm = nn.LayerNorm(sizes.width, sizes.epsilon)
        self.activation = ACTIVATIONS[sizes.activation]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return N x L x D of N x L x D."""
        gates, values = self.gated_layers(x).chunk(2, dim=-1)
        found: torch.Tensor = self.layernorm(self.wo(self.activation(gates) * values) + x)
        return found


class JinaLayer(nn.Module):  # type: ignore[misc]
    """Attention and a gated unit."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention = nn.ModuleDict({"self": SelfAttention(sizes), "output": Added(sizes.width, sizes)})
        self.mlp = Gated(sizes)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Return N x L x D of N x L x D; ``bias`` N x H x L x L is added to what is looked at."""
        found: torch.Tensor = self.mlp(self.attention["output"](self.attention["self"](x, bias), x))
        return found


class JinaEncoder(nn.Module):  # type: ignore[misc]
    """Numbers of tokens in, a vector for each out."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.embeddings = JinaEmbeddings(sizes)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(JinaLayer(sizes) for _ in range(sizes.layers))})
        self.register_buffer("slopes", torch.tensor(slopes(sizes.heads))[:, None, None], persistent=False)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor | None = None) -> torch.Tensor:
        """Return N x L x D of N x L numbers, masks (1: a token, 0: padding) and segments."""
        x = self.embeddings(ids, types)
        places = torch.arange(ids.shape[1], device=ids.device)
        away = (places[:, None] - places[None, :]).abs().to(x.dtype)
        bias = masked(mask, x.dtype) - self.slopes.to(x.dtype) * away
        for layer in self.encoder["layer"]:
            x = layer(x, bias)
        return x


class JinaEmbedded(Embedded):
    """One vector for each text."""

    def __init__(self, sizes: Sizes, pooling: str = "mean", normalize: bool = True) -> None:
        nn.Module.__init__(self)
        self.base = JinaEncoder(sizes)
        self.pooling, self.normalize = checked(pooling), normalize
