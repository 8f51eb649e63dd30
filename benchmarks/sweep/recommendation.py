"""Recommendation: tables of embeddings with dense features, and sequences of items."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from sweep.row import Row, floats, numbers, several

FIELDS, VALUES, DENSE, WIDTH = 6, 50, 5, 8


def _mlp(*sizes: int) -> nn.Sequential:
    layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


class Tables(nn.Module):
    """One table of embeddings for all fields; the rows of each field follow those of the previous field."""

    def __init__(self, width: int = WIDTH) -> None:
        super().__init__()
        self.table = nn.Embedding(FIELDS * VALUES, width)
        self.register_buffer("starts", torch.arange(FIELDS) * VALUES)

    def forward(self, fields: torch.Tensor) -> torch.Tensor:
        """Return (batch, fields, width)."""
        return self.table(fields + self.starts)


class Dlrm(nn.Module):
    """DLRM (Naumov et al., 2019): products of all pairs of features."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(VALUES, WIDTH, mode="sum") for _ in range(FIELDS))
        self.bottom, self.top = _mlp(DENSE, 16, WIDTH), _mlp(WIDTH + FIELDS * (FIELDS + 1) // 2, 32, 1)
        rows, columns = torch.tril_indices(FIELDS + 1, FIELDS + 1, -1)
        self.register_buffer("pairs", rows * (FIELDS + 1) + columns)

    def forward(self, dense: torch.Tensor, fields: torch.Tensor) -> torch.Tensor:
        """Return the probability of a click."""
        x = self.bottom(dense)
        every = torch.stack([x, *(table.weight[fields[:, i]] for i, table in enumerate(self.tables))], 1)
        products = (every @ every.transpose(1, 2)).flatten(1)
        return torch.sigmoid(self.top(torch.cat([x, products[:, self.pairs]], 1)))


class DeepFm(nn.Module):
    """DeepFM (Guo et al., 2017): a factorisation machine and a deep network."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.deep, self.mlp = Tables(1), Tables(), _mlp(FIELDS * WIDTH, 32, 1)

    def forward(self, fields: torch.Tensor) -> torch.Tensor:
        """Return the probability of a click."""
        x = self.deep(fields)
        pairs = 0.5 * (x.sum(1) ** 2 - (x**2).sum(1)).sum(1, keepdim=True)
        return torch.sigmoid(self.wide(fields).sum(1) + pairs + self.mlp(x.flatten(1)))


class Dcn(nn.Module):
    """Deep and cross network v2 (Wang et al., 2021)."""

    def __init__(self) -> None:
        super().__init__()
        size = FIELDS * WIDTH + DENSE
        self.tables, self.cross = Tables(), nn.ModuleList(nn.Linear(size, size) for _ in range(2))
        self.norm, self.mlp = nn.BatchNorm1d(size), _mlp(size, 32, 1)

    def forward(self, dense: torch.Tensor, fields: torch.Tensor) -> torch.Tensor:
        """Return the probability of a click."""
        first = x = self.norm(torch.cat([dense, self.tables(fields).flatten(1)], 1))
        for layer in self.cross:
            x = first * layer(x) + x
        return torch.sigmoid(self.mlp(x))


class Sasrec(nn.Module):
    """SASRec (Kang and McAuley, 2018): causal attention over a user's items; 0 is padding."""

    def __init__(self, longest: int = 10, width: int = 32) -> None:
        super().__init__()
        self.items, self.places = nn.Embedding(VALUES, width, padding_idx=0), nn.Embedding(longest, width)
        layer = nn.TransformerEncoderLayer(width, 2, 64, batch_first=True)
        self.core = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, items: torch.Tensor) -> torch.Tensor:
        """Return a score of every item to come next."""
        length = items.shape[1]
        x = self.items(items) + self.places(torch.arange(length))
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        return self.core(x, mask=later, is_causal=True)[:, -1] @ self.items.weight.T


class TwoTowers(nn.Module):
    """A tower for users and one for items; one item per user."""

    def __init__(self) -> None:
        super().__init__()
        self.user, self.item = nn.Embedding(VALUES, 16), nn.Embedding(VALUES, 16)
        self.left, self.right = _mlp(16, 32, 16), _mlp(16, 32, 16)

    def forward(self, user: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        """Return the cosine of each pair."""
        a, b = self.left(self.user(user)), self.right(self.item(item))
        return nn.functional.cosine_similarity(a, b, dim=1)


class Din(nn.Module):
    """Deep interest network (Zhou et al., 2018): a candidate attends to a user's history."""

    def __init__(self) -> None:
        super().__init__()
        self.items, self.score, self.mlp = nn.Embedding(VALUES, WIDTH), _mlp(4 * WIDTH, 16, 1), _mlp(2 * WIDTH, 16, 1)

    def forward(self, history: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        """Return the probability of a click; 0 in the history is padding."""
        h = self.items(history)
        c = self.items(item)[:, None].expand_as(h)
        weights = self.score(torch.cat([c, h, c - h, c * h], -1)) * (history != 0)[..., None].to(h.dtype)
        return torch.sigmoid(self.mlp(torch.cat([(weights * h).sum(1), c[:, 0]], 1)))


MIXED = several(floats(DENSE), numbers(VALUES, FIELDS))
ROWS = (
    Row("dlrm", Dlrm, MIXED, ("dense", "fields")),
    Row("deepfm", DeepFm, numbers(VALUES, FIELDS), ("fields",)),
    Row("dcn v2", Dcn, MIXED, ("dense", "fields")),
    Row("sasrec", Sasrec, numbers(VALUES, 10), ("items",)),
    Row("two towers", TwoTowers, several(numbers(VALUES), numbers(VALUES)), ("user", "item")),
    Row("din", Din, several(numbers(VALUES, 8), numbers(VALUES)), ("history", "item")),
)
