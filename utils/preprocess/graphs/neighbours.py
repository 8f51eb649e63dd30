"""The neighbours of a node: as a matrix, as a list of edges, or a few that are sampled.

What stands at an edge is one of :data:`ADJACENCIES`, by what the network was trained with; the sums are those of
:mod:`utils.preprocess.graphs.messages`:

- ``symmetric`` (GCN): every node is its own neighbour too, and an edge has 1 / sqrt(d(source) d(target)), where d
  counts a node's neighbours and itself.
- ``mean`` (GraphSAGE): an edge has 1 / d(target), where d counts its neighbours; a node is none of its own.
- ``attention`` (GAT): every node is its own neighbour too, and an edge has 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine import Array
from utils.preprocess.graphs.dense import matrix_of
from utils.preprocess.graphs.messages import Messages, messages, shares

SYMMETRIC, MEAN, ATTENTION = ADJACENCIES = ("symmetric", "mean", "attention")

_MESSAGES = {SYMMETRIC: "symmetric", MEAN: "mean", ATTENTION: "sum"}
"""What each is called among :data:`~utils.preprocess.graphs.messages.KINDS`."""


class Tree(NamedTuple):
    """A node with sampled neighbours, and sampled neighbours of these.

    Attributes:
        numbers: int64 [n], the graph's node of each of the tree's, the root first; one may occur several times. -1
            stands for a place that is not taken.
        parents: int64 [n], the place of whom it is a neighbour; of the root 0.
        shares: float32 [n], how many of the graph's neighbours each stands for; 0 for a place that is not taken.
    """

    numbers: Array
    parents: Array
    shares: Array


class Neighbours:
    """The neighbours of every node.

    Args:
        edges: int64 [2, E], source and target, none twice and none to its own node. count: nodes. kind: one of
            :data:`ADJACENCIES`.

    Attributes:
        degrees: int64 [N], how many neighbours a node has.
    """

    def __init__(self, edges: Array, count: int, kind: str) -> None:
        order = np.argsort(edges[1], kind="stable")
        self.sources, self.count, self.kind = edges[0][order], count, kind
        self.targets = edges[1][order]
        self.degrees = np.bincount(edges[1], minlength=count)
        self.starts = np.concatenate([[0], np.cumsum(self.degrees)])
        self._heard = self.degrees + float(self.loops)

    def weights(self, sources: Array, targets: Array) -> Array:
        """Return what stands at edges between these nodes, float64; a node may be its own neighbour."""
        return shares(_MESSAGES[self.kind], self._heard, sources, targets)

    @property
    def loops(self) -> bool:
        """Whether a node is its own neighbour too."""
        return self.kind != MEAN

    def listed(self) -> tuple[Array, Array]:
        """Return all edges, int64 [2, E], and what stands at them, float32 [E]; a node's edge to itself comes last."""
        found = self._messages()
        return np.stack([found.source, found.target]), found.weight

    def _messages(self) -> Messages:
        edges = np.stack([self.sources, self.targets])
        return messages(self.count, edges, _MESSAGES[self.kind], loops=self.loops)

    def matrix(self, size: int, dtype: str = "float32") -> Array:
        """Return what stands at all edges, size x size: a row is a target. Places behind the last node are 0."""
        return matrix_of(self._messages(), size, dtype)

    def reached(self, first: Array, hops: int | None) -> Array:
        """Return which nodes hear of those of ``first`` (bool [N]) within so many hops; ``None``: any number."""
        found, left = np.array(first), hops
        while left is None or left > 0:
            more = found.copy()
            more[self.targets[found[self.sources]]] = True
            if (more == found).all():
                break
            found, left = more, None if left is None else left - 1
        return found

    def sampled(self, number: int, fanout: Sequence[int], seed: int) -> Tree:
        """Return a node with at most so many neighbours, at most so many of each of these, and so on.

        Where there are more, they are drawn without replacement, by the seed and the node's number alone: so the batch
        and the process make no difference. Places are always as many as ``fanout`` may need.
        """
        random = np.random.default_rng((seed, number))
        numbers, parents, shares = [[number]], [[0]], [[1.0]]
        first = 0
        for width in fanout:
            above = numbers[-1]
            nodes, whose, stands = list[int](), list[int](), list[float]()
            for place, node in enumerate(above):
                taken = self._some(node, width, random)
                gap = width - len(taken)
                degree = int(self.degrees[node]) if node >= 0 else 0
                nodes += [*taken, *[-1] * gap]
                whose += [first + place] * width
                stands += [degree / max(len(taken), 1)] * len(taken) + [0.0] * gap
            first += len(above)
            numbers.append(nodes)
            parents.append(whose)
            shares.append(stands)
        flat = [[one for level in levels for one in level] for levels in (numbers, parents, shares)]
        return Tree(np.array(flat[0], np.int64), np.array(flat[1], np.int64), np.array(flat[2], np.float32))

    def _some(self, node: int, width: int, random: np.random.Generator) -> list[int]:
        if node < 0:
            return []
        start, stop = self.starts[node], self.starts[node + 1]
        found = self.sources[start:stop]
        if len(found) > width:
            found = found[np.sort(random.permutation(len(found))[:width])]
        chosen: list[int] = found.tolist()
        return chosen

    def of_tree(self, tree: Tree) -> tuple[Array, Array]:
        """Return the edges of a tree, int64 [2, E], and what stands at them, float32 [E].

        Each of the tree's nodes is a neighbour of its parent, for as many as it stands for; in ``attention`` it counts
        as it is. Then, where nodes are their own neighbours, each of itself. There are always as many; those of places
        that are not taken have 0.
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
    """Return how many places a tree has."""
    total, level = 1, 1
    for width in fanout:
        level *= width
        total += level
    return total


def edges_of(fanout: Sequence[int], kind: str) -> int:
    """Return how many edges a tree has."""
    places = places_of(fanout)
    return places - 1 + (places if kind != MEAN else 0)
