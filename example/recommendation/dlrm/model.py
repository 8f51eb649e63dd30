"""DLRM: embedding tables for categories, an MLP for counts, and the dot products of all pairs of their vectors.

Naumov et al., 2019 (https://arxiv.org/abs/1906.00091). Parameters have the names of the authors' program, whose
checkpoints load without conversion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Size:
    """Sizes of a DLRM.

    Attributes:
        width: size of an embedding. rows: number of rows of each category's table. counts: inputs of the bottom MLP.
        bottom: units of the layers of the bottom MLP, the last of them ``width``. top: units of the layers of the top
            MLP without the last, which is 1.
    """

    width: int
    rows: tuple[int, ...]
    bottom: tuple[int, ...]
    top: tuple[int, ...]
    counts: int = 13


def stack(sizes: Sequence[int], last: nn.Module) -> nn.Sequential:
    """Return linear layers, each followed by a ReLU except the last, which is followed by ``last``."""
    layers: list[nn.Module] = []
    for place in range(len(sizes) - 1):
        layers += [nn.Linear(sizes[place], sizes[place + 1]), nn.ReLU()]
    return nn.Sequential(*layers[:-1], last)


class DLRM(nn.Module):
    """The network of a :class:`Size`; the products are those below the diagonal, row by row."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.emb_l = nn.ModuleList(nn.Embedding(rows, size.width) for rows in size.rows)
        for table in self.emb_l:
            bound = table.weight.shape[0] ** -0.5
            nn.init.uniform_(table.weight, -bound, bound)
        self.bot_l = stack([size.counts, *size.bottom], nn.ReLU())
        vectors = len(size.rows) + 1
        self.top_l = stack([size.width + vectors * (vectors - 1) // 2, *size.top, 1], nn.Sigmoid())
        pairs = [row * vectors + column for row in range(vectors) for column in range(row)]
        self.register_buffer("pairs", torch.tensor(pairs), persistent=False)

    def forward(self, ids: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
        """Return the probability of a click, N.

        Args:
            ids: N x tables int64. dense: N x counts.
        """
        counts = self.bot_l(dense)
        vectors = torch.stack([counts, *(table(ids[:, place]) for place, table in enumerate(self.emb_l))], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).flatten(1)[:, self.pairs]
        found: torch.Tensor = self.top_l(torch.cat([counts, products], 1)).squeeze(1)
        return found
