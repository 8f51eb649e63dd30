"""Many graphs as one: a block-diagonal batch, that is edge lists one behind another, each counting on from the last.

No edge leads from one graph to another, so each has the answer that it has alone. What has a plan of fixed sizes is
filled up: with nodes of no share, with edges of weight 0 from node 0 to node 0, and with graphs of one node's size.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine import Array, DataError
from utils.preprocess.graphs.messages import Messages


class Part(NamedTuple):
    """A graph on its way into a batch.

    Attributes:
        nodes: float32 [N, F]. found: its edges with their weights.
    """

    nodes: Array
    found: Messages


class Packed(NamedTuple):
    """Graphs as one, filled up to N nodes, E edges and G graphs.

    Attributes:
        x: float32 [N, F]. edges: int64 [2, E], source and target. weights: float32 [E].
        member: int64 [N], the graph that a node is of. share: float32 [N], 1 for each node that there is, else 0.
        sizes: float32 [G], how many nodes a graph has; 1 for one that is not there.
    """

    x: Array
    edges: Array
    weights: Array
    member: Array
    share: Array
    sizes: Array


class Limits(NamedTuple):
    """Sizes that have a plan, rising; none: any size goes.

    Attributes:
        nodes, edges, graphs: of a whole batch.
    """

    nodes: Sequence[int] = ()
    edges: Sequence[int] = ()
    graphs: Sequence[int] = ()


def pack(sizes: Sequence[tuple[int, int]], limits: Limits) -> list[range]:
    """Say which graphs, in their order, share a batch: as many as its largest sizes take.

    Args:
        sizes: nodes and edges of each graph.

    Returns:
        The places of each batch; together all of them.

    Raises:
        DataError: one alone is larger than that.
    """
    most = [values[-1] if values else None for values in limits]
    batches, start, held = list[range](), 0, [0, 0, 0]
    for place, (nodes, edges) in enumerate(sizes):
        own = [nodes, edges, 1]
        refuse_larger(nodes, edges, limits)
        if place > start and any(
            limit is not None and a + b > limit for a, b, limit in zip(held, own, most, strict=True)
        ):
            batches.append(range(start, place))
            start, held = place, [0, 0, 0]
        held = [a + b for a, b in zip(held, own, strict=True)]
    return [*batches, range(start, len(sizes))] if sizes else []


def refuse_larger(nodes: int, edges: int, limits: Limits) -> None:
    """Refuse a graph that no batch takes.

    Raises:
        DataError: names its size, the largest, and the flag.
    """
    for what, size, planned in (("nodes", nodes, limits.nodes), ("edges", edges, limits.edges)):
        if planned and size > planned[-1]:
            raise DataError(
                f"has {size} {what}, and there are plans for {planned[-1]} at most; give a larger --{what}, or leave "
                "the graph out"
            )


def block_diagonal(graphs: Sequence[Part], limits: Limits) -> Packed:
    """Put graphs together and fill them up to the smallest sizes that have a plan.

    Args:
        graphs: at least one; together no more than the largest sizes take (:func:`pack`).
    """
    counts = np.array([len(one.nodes) for one in graphs], np.int64)
    starts = np.cumsum(counts) - counts
    nodes, edges = int(counts.sum()), sum(len(one.found.source) for one in graphs)
    full = [_planned(*each) for each in ((nodes, limits.nodes), (edges, limits.edges), (len(graphs), limits.graphs))]
    packed = Packed(
        np.zeros((full[0], graphs[0].nodes.shape[1]), np.float32),
        np.zeros((2, full[1]), np.int64),
        np.zeros(full[1], np.float32),
        np.zeros(full[0], np.int64),
        np.zeros(full[0], np.float32),
        np.ones(full[2], np.float32),
    )
    packed.x[:nodes] = np.concatenate([one.nodes for one in graphs])
    for row, ends in enumerate(([one.found.source for one in graphs], [one.found.target for one in graphs])):
        packed.edges[row, :edges] = np.concatenate([end + at for end, at in zip(ends, starts, strict=True)])
    packed.weights[:edges] = np.concatenate([one.found.weight for one in graphs])
    packed.member[:nodes] = np.repeat(np.arange(len(graphs)), counts)
    packed.share[:nodes] = 1
    packed.sizes[: len(graphs)] = counts
    return packed


def held(member: Array, share: Array) -> int:
    """Return how many graphs a packed batch really holds, by its :class:`Packed` arrays of these names."""
    return int(member[share > 0].max(initial=-1)) + 1


def _planned(size: int, sizes: Sequence[int]) -> int:
    return sizes[bisect_left(sizes, size)] if sizes else size
