"""JinaBERT, version 2: BERT with ALiBi attention biases instead of positions, and gated linear units.

Günther et al. 2023, "Jina Embeddings 2" (arXiv:2310.19923): head h has the bias ``-slope(h) * |i - j|`` between tokens
i and j. Weights are named as in the published files (``encoder.layer.0.mlp.gated_layers.weight``).
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
"""Gate activations by ``feed_forward_type`` of ``config.json``."""


def jina_sizes(config: Mapping[str, Any], origin: str) -> Sizes:
    """Return the sizes in JinaBERT's ``config.json``; raise ModelError (with its name, ``origin``) if invalid."""
    if config.get("position_embedding_type") != "alibi":
        found = config.get("position_embedding_type", "absolute")
        raise ModelError(f"{origin}: position_embedding_type {found!r}; JinaBERT has 'alibi'; export this as BERT")
    gate = config.get("feed_forward_type", "original")
    if gate not in GATES:
        raise ModelError(f"{origin}: feed_forward_type {gate!r}; supported are {', '.join(GATES)}")
    return replace(sizes_of({**config, "position_embedding_type": "absolute"}, origin), activation=GATES[gate])


def slopes(heads: int) -> list[float]:
    """Return the ALiBi slope per head (Press, Smith and Lewis 2022, "Train short, test long").

    For n heads, n a power of two: 2**(-8/n) and its powers. For others: those of the next lower power of two, then
    every second one of twice as many.
    """
    most = 2 ** int(math.log2(heads))
    own = [2 ** (-8 * place / most) for place in range(1, most + 1)]
    return own + [2 ** (-4 * place / most) for place in range(1, 2 * most + 1, 2)][: heads - most]


class JinaEmbeddings(nn.Module):  # type: ignore[misc]
    """Sum of token and segment embeddings, normalized."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(sizes.vocabulary, sizes.width)
        self.token_type_embeddings = nn.Embedding(sizes.types, sizes.width)
        self.LayerNorm = nn.LayerNorm(sizes.width, sizes.epsilon)

    def forward(self, ids: torch.Tensor, types: torch.Tensor | None) -> torch.Tensor:
        """Return N x L x D for N x L token ids; ``types`` ``None``: all of the first segment."""
        kinds = self.token_type_embeddings.weight[0] if types is None else self.token_type_embeddings(types)
        found: torch.Tensor = self.LayerNorm(self.word_embeddings(ids) + kinds)
        return found


class Gated(nn.Module):  # type: ignore[misc]
    """Gated linear unit with residual connection and layer norm."""

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
    """Attention and a gated linear unit."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention = nn.ModuleDict({"self": SelfAttention(sizes), "output": Added(sizes.width, sizes)})
        self.mlp = Gated(sizes)

    def forward(self, x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Return N x L x D; ``bias`` N x H x L x L is added to the scores."""
        found: torch.Tensor = self.mlp(self.attention["output"](self.attention["self"](x, bias), x))
        return found


class JinaEncoder(nn.Module):  # type: ignore[misc]
    """Encoder from token ids to a vector per token."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.embeddings = JinaEmbeddings(sizes)
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(JinaLayer(sizes) for _ in range(sizes.layers))})
        self.register_buffer("slopes", torch.tensor(slopes(sizes.heads))[:, None, None], persistent=False)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, types: torch.Tensor | None = None) -> torch.Tensor:
        """Return N x L x D for N x L token ids, masks (1: token, 0: padding) and segments."""
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
