"""The two networks: history and features of a user in, an embedding out; features of a film in, an embedding out."""

from __future__ import annotations

import math

import torch
from torch import nn

HISTORY, WIDTH = 50, 64
"""Length of the history, and size of an embedding."""


class Query(nn.Module):
    """Computes an embedding from the history and the features of a user.

    The embeddings of the history are summed, each weighted by a factor of its position and a factor of the item. The
    embeddings of the user's fields are added, and two linear layers follow.

    Args:
        items: number of items; they are numbered from 1, and 0 is padding.
        users: rows of the table of the user's fields. history, width: sizes. dropout: in training.
    """

    def __init__(
        self, items: int, users: int, history: int = HISTORY, width: int = WIDTH, dropout: float = 0.2
    ) -> None:
        super().__init__()
        self.items, self.users = nn.Embedding(items + 1, width, padding_idx=0), nn.Embedding(users, width)
        self.weight = nn.Embedding(items + 1, 1)
        self.places = nn.Parameter(torch.linspace(-2, 0, history))
        self.first, self.second = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(dropout)
        nn.init.normal_(self.items.weight, 0, 1 / math.sqrt(width))
        nn.init.normal_(self.users.weight, 0, 0.01)
        nn.init.zeros_(self.weight.weight)

    def forward(self, history: torch.Tensor, user: torch.Tensor) -> torch.Tensor:
        """Return N x D for N x L int64, padded with zeros at the start, and the user's table rows, N x F int64."""
        there = (history > 0).to(self.places.dtype)
        shares = torch.exp(self.places + self.weight(history)[:, :, 0]) * there
        shares = shares / shares.sum(1, keepdim=True)
        mean = (self.items(history) * shares[:, :, None]).sum(1)
        mean = self.drop(mean) + self.users(user).sum(1)
        found: torch.Tensor = mean + self.second(self.drop(torch.relu(self.first(mean))))
        return found


class Item(nn.Module):
    """Computes an item's embedding: the table rows of its name and its decade, and two linear layers on its genres.

    Args:
        rows: of the table, one of which is for names not in the training set. genres: number of genres.
        width: of the embedding.
    """

    def __init__(self, rows: int, genres: int, width: int = WIDTH) -> None:
        super().__init__()
        self.items = nn.Embedding(rows, width)
        self.first, self.second = nn.Linear(genres, width), nn.Linear(width, width)
        nn.init.normal_(self.items.weight, 0, 1 / math.sqrt(width))

    def forward(self, item: torch.Tensor, genres: torch.Tensor) -> torch.Tensor:
        """Return N x D for N x 2 int64 and N x G float32, the shares of the genres."""
        found: torch.Tensor = self.items(item).sum(1) + self.second(torch.relu(self.first(genres)))
        return found
