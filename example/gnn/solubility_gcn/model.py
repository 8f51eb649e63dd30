"""The network: a molecule as a graph in, the logarithm of its solubility in water out; in two equivalent forms."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from utils.datasets.graphs.molecules import AtomFeatures

FEATURES = AtomFeatures()
"""The 22 features of an atom."""

WIDTH, LAYERS, HEAD = 96, 4, 64

TOTAL = 0.05
"""Factor of the sum over the atoms, which brings it to the scale of their mean."""


class SolubilityGCN(nn.Module):
    """Four graph convolutions (Kipf and Welling, 2017), each with a linear self-connection and a residual.

    Two linear layers map the sum and the mean over the atoms to the output. 89 thousand parameters.
    """

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES.width, WIDTH)
        self.around = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.own = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))
        self.head = nn.Sequential(nn.Linear(2 * WIDTH, HEAD), nn.ReLU(), nn.Linear(HEAD, 1))

    def forward(self, x: torch.Tensor, adjacency: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return log S, N x 1, for ``x`` N x n x 22, ``adjacency`` N x n x n and ``mask`` N x n."""
        h = functional.relu(self.first(x))
        for around, own in zip(self.around, self.own, strict=True):
            h = h + functional.relu(adjacency @ around(h) + own(h))
        total = (h * mask.unsqueeze(2)).sum(1)
        return self.answer(total, mask.sum(1, keepdim=True))

    def answer(self, total: torch.Tensor, atoms: torch.Tensor) -> torch.Tensor:
        """Return log S, N x 1, from the sum over the atoms, N x 96, and their number, N x 1."""
        found: torch.Tensor = self.head(torch.cat([total * TOTAL, total / atoms], 1))
        return found


class PackedGCN(nn.Module):
    """The same network on many molecules as one graph with an edge list: messages are gathered and scatter-added."""

    def __init__(self, network: SolubilityGCN) -> None:
        super().__init__()
        self.network = network

    def forward(
        self,
        x: torch.Tensor,
        edges: torch.Tensor,
        weights: torch.Tensor,
        member: torch.Tensor,
        share: torch.Tensor,
        sizes: torch.Tensor,
    ) -> torch.Tensor:
        """Return log S, G x 1, for n atoms, E messages and G molecules (``utils.preprocess.graphs.sparse.Packed``)."""
        network = self.network
        h = functional.relu(network.first(x))
        for around, own in zip(network.around, network.own, strict=True):
            said = around(h)[edges[0]] * weights.unsqueeze(1)
            h = h + functional.relu(added(torch.zeros_like(h), edges[1], said) + own(h))
        total = added(sizes.unsqueeze(1).expand(-1, WIDTH) * 0, member, h * share.unsqueeze(1))
        return network.answer(total, sizes.unsqueeze(1))


def added(rows: torch.Tensor, to: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return the rows with each value added to the row of its index in ``to``."""
    return rows.scatter_add(0, to.unsqueeze(1).expand_as(values), values)
