"""Graph neural networks: GCN, GraphSAGE and GAT, each in three equivalent forms.

- ``dense``: inputs ``x`` N x n x F and ``adjacency`` N x n x n (row: node, column: neighbour), scores N x n x C. An
  aggregation is a matrix product.
- ``scatter``: inputs ``x`` n x F, ``edges`` 2 x E (sources, targets; int64) and ``weights`` E, scores n x C. An
  aggregation gathers the sources and adds to the targets.
- ``fanout`` (GraphSAGE only): sampled neighbours, and sampled neighbours of these: ``x0`` N x F, ``x1`` N x k1 x F,
  ``x2`` N x k1 x k2 x F, with weights ``w1`` N x k1 and ``w2`` N x k1 x k2 (0: missing), scores N x C. An aggregation
  is a weighted sum over an axis.

:mod:`utils.preprocess.graphs.neighbours` computes ``adjacency`` and ``weights``; GAT only tests them for 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine import ConfigError

KINDS = ("gcn", "graphsage", "gat")
DENSE, SCATTER, FANOUT = FORMS = ("dense", "scatter", "fanout")

NOTHING = -1e4
"""GAT's score before the softmax for a node that is not a neighbour; in the range of float16."""


@dataclass(frozen=True)
class GraphSizes:
    """Sizes of a network.

    Attributes:
        kind: one of :data:`KINDS`. features, hidden, classes: input, hidden (per head) and output columns.
        heads: of GAT's hidden layers; the last layer has one.
        norms: batch norm after every layer but the last, as in OGB's examples.
    """

    kind: str
    features: int
    hidden: int
    classes: int
    layers: int = 2
    heads: int = 1
    norms: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"unknown kind of graph network {self.kind!r}; use one of: {', '.join(KINDS)}")
        if min(self.features, self.hidden, self.classes, self.layers, self.heads) < 1:
            raise ConfigError(f"{self.kind}: features, hidden, classes, layers and heads must be at least 1: {self}")


class GCNConv(nn.Module):  # type: ignore[misc]
    """Layer of Kipf and Welling (2017): weighted sum of the neighbours, linear layer."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.lin = nn.Linear(before, after, bias=False)
        self.bias = nn.Parameter(torch.zeros(after))

    def dense(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """Return the layer's rows by a matrix of neighbours."""
        return adjacency @ self.lin(x) + self.bias

    def scatter(self, x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
        """Return the layer's rows by a list of edges."""
        return _added(self.lin(x), edges, weights) + self.bias


class SAGEConv(nn.Module):  # type: ignore[misc]
    """Layer of GraphSAGE with mean aggregation (Hamilton et al., 2017)."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.lin_l, self.lin_r = nn.Linear(before, after), nn.Linear(before, after, bias=False)

    def dense(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """Return the layer's rows by a matrix of neighbours."""
        return self.joined(x, adjacency @ x)

    def scatter(self, x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
        """Return the layer's rows by a list of edges."""
        return self.joined(x, _added(x, edges, weights))

    def joined(self, x: Tensor, around: Tensor) -> Tensor:
        """Return the layer's rows for nodes ``x`` with the mean ``around`` of their neighbours."""
        left: Tensor = self.lin_l(around)
        return left + self.lin_r(x)


class GATConv(nn.Module):  # type: ignore[misc]
    """Layer of graph attention (Veličković et al., 2018)."""

    def __init__(self, before: int, after: int, heads: int) -> None:
        super().__init__()
        self.heads, self.after = heads, after
        self.lin = nn.Linear(before, heads * after, bias=False)
        self.att_src = nn.Parameter(torch.empty(1, heads, after))
        self.att_dst = nn.Parameter(torch.empty(1, heads, after))
        self.bias = nn.Parameter(torch.zeros(heads * after))
        nn.init.xavier_uniform_(self.att_src)
        nn.init.xavier_uniform_(self.att_dst)

    def dense(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """Return the layer's rows by a matrix of neighbours, which is only tested for 0."""
        h = self.lin(x).unflatten(-1, (self.heads, self.after))
        source, target = (h * self.att_src).sum(-1), (h * self.att_dst).sum(-1)  # N x n x heads
        scores = functional.leaky_relu(target.transpose(1, 2).unsqueeze(3) + source.transpose(1, 2).unsqueeze(2), 0.2)
        there = (adjacency != 0).to(x.dtype).unsqueeze(1)
        shares = torch.softmax(scores * there + NOTHING * (1 - there), -1) * there
        return (shares @ h.transpose(1, 2)).transpose(1, 2).flatten(2) + self.bias

    def scatter(self, x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
        """Return the layer's rows by a list of edges, whose weights are only tested for 0."""
        h = self.lin(x).unflatten(-1, (self.heads, self.after))
        source, target = (h * self.att_src).sum(-1), (h * self.att_dst).sum(-1)  # n x heads
        there = (weights != 0).to(x.dtype).unsqueeze(1)
        scores = functional.leaky_relu(target[edges[1]] + source[edges[0]], 0.2) * there + NOTHING * (1 - there)
        to = edges[1].unsqueeze(1).expand_as(scores)
        highest = torch.full_like(target, NOTHING).scatter_reduce(0, to, scores, "amax")
        powers = torch.exp(scores - highest[edges[1]]) * there
        total = torch.zeros_like(target).scatter_add(0, to, powers)
        shares = (powers / (total[edges[1]] + (1 - there))).unsqueeze(2)
        messages = (h[edges[0]] * shares).flatten(1)
        to = edges[1].unsqueeze(1).expand_as(messages)
        return torch.zeros_like(h.flatten(1)).scatter_add(0, to, messages) + self.bias


def _added(rows: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum of the sources' rows for each node."""
    messages = rows[edges[0]] * weights.unsqueeze(1)
    return torch.zeros_like(rows).scatter_add(0, edges[1].unsqueeze(1).expand_as(messages), messages)


class GraphNetwork(nn.Module):  # type: ignore[misc]
    """Graph neural network with the forms :meth:`dense`, :meth:`scatter` and :meth:`fanout`; modules are named as in
    PyTorch Geometric and OGB's examples: ``convs.0.lin.weight``, ``bns.0.weight``.
    """

    def __init__(self, sizes: GraphSizes) -> None:
        super().__init__()
        self.sizes = sizes
        widths = [sizes.features, *[sizes.hidden * _heads(sizes)] * (sizes.layers - 1)]
        self.convs = nn.ModuleList(
            _layer(sizes, before, last=place == sizes.layers - 1) for place, before in enumerate(widths)
        )
        kept = widths[1:] if sizes.norms else []
        self.bns = nn.ModuleList(nn.BatchNorm1d(width) for width in kept)

    def dense(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """Return scores, N x n x C."""
        for place, conv in enumerate(self.convs):
            x = self.after(place, conv.dense(x, adjacency))
        return x

    def scatter(self, x: Tensor, edges: Tensor, weights: Tensor) -> Tensor:
        """Return scores, n x C."""
        for place, conv in enumerate(self.convs):
            x = self.after(place, conv.scatter(x, edges, weights))
        return x

    def fanout(self, x0: Tensor, x1: Tensor, x2: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
        """Return scores, N x C, of two layers of GraphSAGE with sampled neighbours."""
        first: Any
        first, second = self.convs
        near = self.after(0, first.joined(x0, (x1 * w1.unsqueeze(-1)).sum(1)))
        far = self.after(0, first.joined(x1, (x2 * w2.unsqueeze(-1)).sum(2)))
        found: Tensor = second.joined(near, (far * w1.unsqueeze(-1)).sum(1))
        return found

    def after(self, place: int, x: Tensor) -> Tensor:
        """Apply norm and activation after a layer, except the last."""
        if place == self.sizes.layers - 1:
            return x
        if self.sizes.norms:
            norm: Any = self.bns[place]
            shift = norm.bias - norm.running_mean * norm.weight / torch.sqrt(norm.running_var + norm.eps)
            x = norm(x) if self.training else x * (norm.weight / torch.sqrt(norm.running_var + norm.eps)) + shift
        return functional.elu(x) if self.sizes.kind == "gat" else functional.relu(x)


def _heads(sizes: GraphSizes) -> int:
    return sizes.heads if sizes.kind == "gat" else 1


def _layer(sizes: GraphSizes, before: int, last: bool) -> nn.Module:
    after = sizes.classes if last else sizes.hidden
    if sizes.kind == "gat":
        return GATConv(before, after, 1 if last else sizes.heads)
    return GCNConv(before, after) if sizes.kind == "gcn" else SAGEConv(before, after)


class InForm(nn.Module):  # type: ignore[misc]
    """A network with one of its forms as ``forward``; raises ConfigError for an unsupported form."""

    def __init__(self, network: GraphNetwork, form: str) -> None:
        super().__init__()
        if form not in FORMS:
            raise ConfigError(f"unknown form {form!r} of a graph network; use one of: {', '.join(FORMS)}")
        if form == FANOUT and (network.sizes.kind, network.sizes.layers) != ("graphsage", 2):
            raise ConfigError(
                f"form {FANOUT} is for GraphSAGE of 2 layers; of {network.sizes.kind} with {network.sizes.layers} "
                f"export {DENSE} or {SCATTER}, which also take sampled neighbours"
            )
        self.network, self.form = network, form

    def forward(self, *tensors: Tensor) -> Tensor:
        """Return the scores."""
        found: Tensor = getattr(self.network, self.form)(*tensors)
        return found


def with_names_of_geometric(state: dict[str, Any]) -> dict[str, Any]:
    """Return weights under this module's names: ``convs.0`` for ``conv1``, ``lin`` for an older GAT's ``lin_src``."""
    renamed = {}
    for name, value in state.items():
        head, _, rest = name.partition(".")
        if head.startswith("conv") and head[4:].isdigit():
            name = f"convs.{int(head[4:]) - 1}.{rest}"
        renamed[name.replace(".lin_src.", ".lin.")] = value
    return renamed
