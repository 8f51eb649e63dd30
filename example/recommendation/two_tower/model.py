"""The two networks: history and user in, a vector out; features of a film in, a vector out."""

from __future__ import annotations

import math

import torch
from torch import nn

HISTORY, WIDTH = 50, 64
"""Items of a history that are looked at, and numbers of a vector."""


class Query(nn.Module):
    """Makes a vector of a history and of what is known of a user.

    The items of the history are added up, each weighted by a number that belongs to its place and one of its own; two
    matrices change the sum, to which the rows of the user's fields are added first.

    Args:
        items: number of items; they are numbered from 1, and 0 is padding.
        users: rows of the table of the user's fields. history, width: sizes. dropout: while it learns.
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
        """Return N x D of N x L int64, whose beginning may be zeros, and the rows of the user's fields, N x F int64."""
        there = (history > 0).to(self.places.dtype)
        shares = torch.exp(self.places + self.weight(history)[:, :, 0]) * there
        shares = shares / shares.sum(1, keepdim=True)
        mean = (self.items(history) * shares[:, :, None]).sum(1)
        mean = self.drop(mean) + self.users(user).sum(1)
        found: torch.Tensor = mean + self.second(self.drop(torch.relu(self.first(mean))))
        return found


class Item(nn.Module):
    """Makes a vector of an item: the rows of its name and its decade, and two matrices on its genres.

    Args:
        rows: of the table; a name that the training did not have is a row too. genres: how many there are.
        width: of the vector.
    """

    def __init__(self, rows: int, genres: int, width: int = WIDTH) -> None:
        super().__init__()
        self.items = nn.Embedding(rows, width)
        self.first, self.second = nn.Linear(genres, width), nn.Linear(width, width)
        nn.init.normal_(self.items.weight, 0, 1 / math.sqrt(width))

    def forward(self, item: torch.Tensor, genres: torch.Tensor) -> torch.Tensor:
        """Return N x D of N x 2 int64 and N x G float32, the genres' shares."""
        found: torch.Tensor = self.items(item).sum(1) + self.second(torch.relu(self.first(genres)))
        return found
