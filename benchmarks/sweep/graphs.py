"""Networks on graphs: a dense adjacency per sample, edges in lists that are scattered, and point clouds."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from sweep.row import Row, floats

NODES, FEATURES, EDGES = 10, 8, 4


def _dense(rng: np.random.Generator, count: int) -> list[np.ndarray]:
    """Return features (count, nodes, features) and a symmetric adjacency with loops (count, nodes, nodes)."""
    found = rng.random((count, NODES, NODES)) < 0.3
    adjacent = (found | found.transpose(0, 2, 1) | np.eye(NODES, dtype=bool)).astype(np.float32)
    return [rng.standard_normal((count, NODES, FEATURES), np.float32), adjacent]


def _packed(rng: np.random.Generator, count: int) -> list[np.ndarray]:
    """Return ``count`` graphs as one: features (nodes, features), edges (2, edges), each node's graph (nodes,)."""
    ends = rng.integers(0, NODES, (2, count, NODES * EDGES)) + np.arange(count)[:, None] * NODES
    return [
        rng.standard_normal((count * NODES, FEATURES), np.float32),
        ends.reshape(2, -1).astype(np.int64),
        np.repeat(np.arange(count), NODES).astype(np.int64),
    ]


class Gcn(nn.Module):
    """Graph convolutions (Kipf and Welling, 2017) by the normalised adjacency, and the mean over the nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(FEATURES, 16), nn.Linear(16, 16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor, adjacent: torch.Tensor) -> torch.Tensor:
        """Return scores per graph."""
        scale = adjacent.sum(-1).rsqrt()
        norm = adjacent * scale[:, :, None] * scale[:, None]
        x = torch.relu(norm @ self.first(x))
        return self.head(torch.relu(norm @ self.second(x)).mean(1))


class Gat(nn.Module):
    """Attention over neighbours (Velickovic et al., 2018), masked by the adjacency."""

    def __init__(self, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.into = heads, nn.Linear(FEATURES, heads * 8)
        self.left, self.right = nn.Parameter(torch.randn(heads, 8) * 0.3), nn.Parameter(torch.randn(heads, 8) * 0.3)
        self.head = nn.Linear(heads * 8, 3)

    def forward(self, x: torch.Tensor, adjacent: torch.Tensor) -> torch.Tensor:
        """Return scores per node."""
        batch, nodes, _ = x.shape
        h = self.into(x).view(batch, nodes, self.heads, 8)
        scores = (h * self.left).sum(-1)[:, :, None] + (h * self.right).sum(-1)[:, None]
        scores = nn.functional.leaky_relu(scores, 0.2).masked_fill(adjacent[..., None] == 0, float("-inf"))
        mixed = torch.einsum("bijh,bjhd->bihd", scores.softmax(2), h)
        return self.head(nn.functional.elu(mixed.flatten(2)))


class Sage(nn.Module):
    """GraphSAGE (Hamilton et al., 2017): the mean of neighbours, summed over a list of edges; scores per node."""

    def __init__(self) -> None:
        super().__init__()
        self.own = nn.ModuleList([nn.Linear(FEATURES, 16), nn.Linear(16, 3)])
        self.near = nn.ModuleList([nn.Linear(FEATURES, 16, False), nn.Linear(16, 3, False)])

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """Return scores per node."""
        for own, near in zip(self.own, self.near, strict=True):
            total = torch.zeros_like(x).index_add(0, edges[1], x[edges[0]])
            count = torch.zeros_like(x[:, :1]).index_add(0, edges[1], torch.ones_like(edges[1])[:, None].to(x.dtype))
            x = torch.relu(own(x) + near(total / count.clamp(min=1)))
        return x


class Gin(nn.Module):
    """Graph isomorphism network (Xu et al., 2019): sums over edges, then sums over the nodes of every graph."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(a, 16), nn.ReLU(), nn.Linear(16, 16)) for a in (FEATURES, 16)
        )
        self.head = nn.Linear(16, 3)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, graph: torch.Tensor) -> torch.Tensor:
        """Return scores per graph, for as many graphs as ``graph`` numbers."""
        for layer in self.layers:
            near = x[edges[0]]
            x = layer(x + torch.zeros_like(x).scatter_add(0, edges[1][:, None].expand_as(near), near))
        member = (graph[:, None] == torch.arange(7)).to(x.dtype)
        return self.head(member.T @ x)


class PointNet(nn.Module):
    """Points of a cloud, each by itself, then their maximum (Qi et al., 2017)."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [(3, 16), (16, 32), (32, 64)]
        self.points = nn.Sequential(*(part for a, b in sizes for part in (
            nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU())))  # fmt: skip
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores per cloud."""
        return self.head(self.points(x).amax(-1))


BOTH = ("x", "adjacent")
PACKED = {"x": {0: "nodes"}, "edges": {1: "edges"}}
ROWS = (
    Row("gcn (dense)", Gcn, _dense, BOTH),
    Row("gat (dense, masked)", Gat, _dense, BOTH),
    Row("graphsage (scatter)", Sage, lambda rng, count: _packed(rng, count)[:2], ("x", "edges"), axes=PACKED,
        dependent=True, refusals={"torchscript/export": "largest relative error .* is above the tolerance"}),
    Row("gin (scatter, pooled)", Gin, _packed, ("x", "edges", "graph"), axes={**PACKED, "graph": {0: "nodes"}},
        dependent=True),
    Row("pointnet", PointNet, floats(3, 64)),
)  # fmt: skip
