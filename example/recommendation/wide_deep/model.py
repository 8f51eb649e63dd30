"""Wide & Deep: a linear model of values and of pairs of values, and an MLP over embeddings.

Cheng et al., 2016 (https://arxiv.org/abs/1606.07792). Parameters have the names of DeepCTR-Torch's ``WDL``, so its
weights load; it has no pairs, which are additional tables here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

PRIME = 1_000_003
"""Factor of the first value of a pair, which makes the hash of a pair depend on the order of its values."""


@dataclass(frozen=True)
class Size:
    """Sizes of a Wide & Deep.

    Attributes:
        width: size of an embedding. rows: number of rows of each category's table. hidden: units of the MLP's layers.
        crosses: pairs of categories, by index, that have a weight per pair of values. cross_rows: rows of each pair's
            table.
        counts: number of numeric inputs.
    """

    width: int
    rows: tuple[int, ...]
    hidden: tuple[int, ...]
    crosses: tuple[tuple[int, int], ...] = ()
    cross_rows: int = 0
    counts: int = 13


def tables(rows: Sequence[int], width: int) -> nn.ModuleDict:
    """Return a table for each category, by its name C1, C2, ..."""
    made = nn.ModuleDict({f"C{place}": nn.Embedding(count, width) for place, count in enumerate(rows, start=1)})
    for table in made.values():
        nn.init.normal_(table.weight, std=0.01)
    return made


class Wide(nn.Module):
    """The linear model: a weight for each value of a category, and one for each count."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.embedding_dict = tables(size.rows, 1)
        self.weight = nn.Parameter(torch.randn(size.counts, 1) * 0.01)

    def forward(self, ids: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        """Return the sum of the weights, N x 1."""
        known = [table(ids[:, place]) for place, table in enumerate(self.embedding_dict.values())]
        return torch.cat(known, 1).sum(1, keepdim=True) + dense @ self.weight


class Deep(nn.Module):
    """Linear layers, each followed by a ReLU."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.linears = nn.ModuleList(nn.Linear(sizes[place], sizes[place + 1]) for place in range(len(sizes) - 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map N x inputs to N x units of the last layer."""
        for layer in self.linears:
            x = torch.relu(layer(x))
        return x


class Bias(nn.Module):
    """A scalar bias."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``x`` plus the bias."""
        return x + self.bias


class WideDeep(nn.Module):
    """The network of a :class:`Size`."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.embedding_dict, self.linear_model = tables(size.rows, size.width), Wide(size)
        self.dnn = Deep([len(size.rows) * size.width + size.counts, *size.hidden])
        self.dnn_linear, self.out = nn.Linear(size.hidden[-1], 1, bias=False), Bias()
        self.crosses = nn.ModuleList(nn.Embedding(size.cross_rows, 1) for _ in size.crosses)
        for table in self.crosses:
            nn.init.normal_(table.weight, std=0.01)

    def forward(self, ids: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        """Return the probability of a click, N.

        Args:
            ids: N x categories int64. dense: N x counts.
        """
        known = [table(ids[:, place]) for place, table in enumerate(self.embedding_dict.values())]
        total = self.linear_model(ids, dense) + self.dnn_linear(self.dnn(torch.cat([*known, dense], 1)))
        for table, (one, other) in zip(self.crosses, self.size.crosses, strict=True):
            total = total + table((ids[:, one] * PRIME + ids[:, other]) % self.size.cross_rows)
        return torch.sigmoid(self.out(total)).squeeze(1)
