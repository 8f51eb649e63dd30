"""The network: a history of items in, a score of each item as the next one out."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

HISTORY, WIDTH, LAYERS, HEADS = 50, 64, 2, 2
"""Length of the history, size of an item's embedding, number of blocks, and heads per block."""

FORBIDDEN = -10000.0
"""Added to the attention scores of masked positions; within the range of float16."""


class Block(nn.Module):
    """Causal self-attention and a position-wise feed-forward network, each with a residual."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.scale = heads, 1 / math.sqrt(width // heads)
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Map N x L x D to N x L x D; ``mask``, N x 1 x L x L, is added to the attention scores."""
        normal = self.before(x)
        query, key, value = (self._apart(part(normal)) for part in (self.query, self.key, self.value))
        weights = torch.softmax(query @ key.transpose(2, 3) * self.scale + mask, 3)
        found = (self.drop(weights) @ value).transpose(1, 2).flatten(2)
        x = x + self.drop(self.out(found))
        inner = self.drop(functional.relu(self.first(self.between(x))))
        return x + self.drop(self.second(inner))

    def _apart(self, x: torch.Tensor) -> torch.Tensor:
        """Reshape N x L x D to N x heads x L x d."""
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)


class SASRec(nn.Module):
    """Self-attention over a history (Kang and McAuley, 2018): its last state times every item's embedding.

    Args:
        items: number of items; they are numbered from 1, and 0 is padding.
        history: length of a history. width, layers, heads: of the network. dropout: in training.
    """

    def __init__(
        self,
        items: int,
        history: int = HISTORY,
        width: int = WIDTH,
        layers: int = LAYERS,
        heads: int = HEADS,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.items = nn.Embedding(items + 1, width, padding_idx=0)
        self.places = nn.Parameter(torch.zeros(history, width))
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm, self.drop, self.scale = nn.LayerNorm(width), nn.Dropout(dropout), math.sqrt(width)
        nn.init.normal_(self.items.weight, 0, 1 / math.sqrt(width))
        nn.init.normal_(self.places, 0, 0.1)
        with torch.no_grad():
            self.items.weight[0] = 0
        earlier = torch.ones(history, history).tril()
        self.register_buffer("later", (1 - earlier) * FORBIDDEN, persistent=False)

    def states(self, history: torch.Tensor) -> torch.Tensor:
        """Return the state after each position, N x L x D, for N x L int64 padded with zeros at the start."""
        empty = (history == 0).to(self.places.dtype)[:, None, None] * FORBIDDEN
        mask = (self.later + empty).clamp(min=FORBIDDEN)
        x = self.drop(self.items(history) * self.scale + self.places)
        for block in self.blocks:
            x = block(x, mask)
        normal: torch.Tensor = self.norm(x)
        return normal

    def forward(self, history: torch.Tensor) -> torch.Tensor:
        """Return the scores of the items 1, 2, ... as the next one, N x items."""
        return self.states(history)[:, -1] @ self.items.weight[1:].T
