"""Neighbours of nodes: as a matrix, as a list of edges, or a sample of them.

The weight of an edge is one of :data:`ADJACENCIES`, as in the network's training; the sums are those of
:mod:`utils.preprocess.graphs.messages`:

- ``symmetric`` (GCN): 1 / sqrt(d(source) d(target)), where every node is also its own neighbour, and d counts
  neighbours with itself.
- ``mean`` (GraphSAGE): 1 / d(target), where d counts neighbours without the node itself.
- ``attention`` (GAT): 1, where every node is also its own neighbour.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import NamedTuple

import numpy as np

from engine import Array
from utils.preprocess.graphs.messages import Messages, matrix_of, messages, shares

SYMMETRIC, MEAN, ATTENTION = ADJACENCIES = ("symmetric", "mean", "attention")

_MESSAGES = {SYMMETRIC: "symmetric", MEAN: "mean", ATTENTION: "sum"}
"""Corresponding names of :data:`~utils.preprocess.graphs.messages.KINDS`."""


class Tree(NamedTuple):
    """A node with sampled neighbours, and sampled neighbours of these.

    Attributes:
        numbers: int64 [n], node of the graph for each node of the tree, the root first; nodes may be repeated. -1 is an
            unused place.
        parents: int64 [n], place of the node whose neighbour it is; 0 for the root.
        shares: float32 [n], number of the graph's neighbours represented by each; 0 for an unused place.
    """

    numbers: Array
    parents: Array
    shares: Array


class Neighbours:
    """Neighbours of every node.

    Args:
        edges: int64 [2, E], source and target, without duplicates and self-loops.
        count: number of nodes. kind: one of :data:`ADJACENCIES`.

    ``degrees`` is the number of each node's neighbours, int64 [N].
    """

    def __init__(self, edges: Array, count: int, kind: str) -> None:
        order = np.argsort(edges[1], kind="stable")
        self.sources, self.count, self.kind = edges[0][order], count, kind
        self.targets = edges[1][order]
        self.degrees = np.bincount(edges[1], minlength=count)
        self.starts = np.concatenate([[0], np.cumsum(self.degrees)])
        self._heard = self.degrees + float(self.loops)

    def weights(self, sources: Array, targets: Array) -> Array:
        """Return the weights of edges between these nodes, float64; a node may be its own neighbour."""
        return shares(_MESSAGES[self.kind], self._heard, sources, targets)

    @property
    def loops(self) -> bool:
        """Whether a node is also its own neighbour."""
        return self.kind != MEAN

    def listed(self) -> tuple[Array, Array]:
        """Return all edges, int64 [2, E], and their weights, float32 [E]; self-loops come last."""
        found = self._messages()
        return np.stack([found.source, found.target]), found.weight

    def _messages(self) -> Messages:
        edges = np.stack([self.sources, self.targets])
        return messages(self.count, edges, _MESSAGES[self.kind], loops=self.loops)

    def matrix(self, size: int, dtype: str = "float32") -> Array:
        """Return the weights of all edges, size x size, with targets as rows; padding is 0."""
        return matrix_of(self._messages(), size, dtype)

    def reached(self, first: Array, hops: int | None) -> Array:
        """Return the nodes (bool [N]) reached from those of ``first`` within ``hops``; ``None``: any number of hops."""
        found, left = np.array(first), hops
        while left is None or left > 0:
            more = found.copy()
            more[self.targets[found[self.sources]]] = True
            if (more == found).all():
                break
            found, left = more, None if left is None else left - 1
        return found

    def sampled(self, number: int, fanout: Sequence[int], seed: int) -> Tree:
        """Return a node with at most ``fanout[0]`` neighbours, at most ``fanout[1]`` of each of these, and so on.

        Larger neighbourhoods are sampled without replacement. The sample depends only on the seed and the node, not on
        the batch or process. The number of places is always :func:`places_of`.
        """
        random = np.random.default_rng((seed, number))
        numbers, parents, shares = [[number]], [[0]], [[1.0]]
        first = 0
        for width in fanout:
            above = numbers[-1]
            nodes, owners, counts = list[int](), list[int](), list[float]()
            for place, node in enumerate(above):
                taken = self._some(node, width, random)
                gap = width - len(taken)
                degree = int(self.degrees[node]) if node >= 0 else 0
                nodes += [*taken, *[-1] * gap]
                owners += [first + place] * width
                counts += [degree / max(len(taken), 1)] * len(taken) + [0.0] * gap
            first += len(above)
            numbers.append(nodes)
            parents.append(owners)
            shares.append(counts)
        flat = [[one for level in levels for one in level] for levels in (numbers, parents, shares)]
        return Tree(np.array(flat[0], np.int64), np.array(flat[1], np.int64), np.array(flat[2], np.float32))

    def _some(self, node: int, width: int, random: np.random.Generator) -> list[int]:
        if node < 0:
            return []
        start, stop = self.starts[node], self.starts[node + 1]
        found = self.sources[start:stop]
        if len(found) > width:
            found = found[np.sort(random.permutation(len(found))[:width])]
        return list(found.tolist())

    def of_tree(self, tree: Tree) -> tuple[Array, Array]:
        """Return the edges of a tree, int64 [2, E], and their weights, float32 [E].

        Each node is a neighbour of its parent, weighted by its share, except with ``attention``. If nodes are their own
        neighbours, their self-loops follow. There are always :func:`edges_of` edges; unused places have weight 0.
        """
        places = np.arange(1, len(tree.numbers))
        taken, nodes = tree.numbers >= 0, np.maximum(tree.numbers, 0)
        weights = self.weights(nodes[places], nodes[tree.parents[places]])
        if self.kind != ATTENTION:
            weights = weights * tree.shares[places]
        sources, targets = places, tree.parents[places]
        weights = np.where(taken[places], weights, 0)
        if self.loops:
            own = np.arange(len(nodes))
            sources, targets = np.concatenate([sources, own]), np.concatenate([targets, own])
            weights = np.concatenate([weights, np.where(taken, self.weights(nodes, nodes), 0)])
        return np.stack([sources, targets]), weights.astype(np.float32)


def places_of(fanout: Sequence[int]) -> int:
    """Return the number of places in a tree."""
    return sum(accumulate(fanout, mul, initial=1))


def edges_of(fanout: Sequence[int], kind: str) -> int:
    """Return the number of edges in a tree."""
    places = places_of(fanout)
    return places - 1 + (places if kind != MEAN else 0)
