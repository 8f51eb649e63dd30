"""Several graphs as one block-diagonal batch: concatenated edge lists with node numbers counted on.

No edge connects two graphs, so each has the same result as alone. Inputs of fixed sizes are padded with nodes of share
0, with edges of weight 0 from node 0 to node 0, and with graphs of size 1.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine import Array, DataError
from utils.preprocess.graphs.messages import Messages


class Part(NamedTuple):
    """A graph to be put into a batch: its nodes, float32 [N, F], and its edges with their weights."""

    nodes: Array
    found: Messages


class Packed(NamedTuple):
    """Graphs as one, padded to N nodes, E edges and G graphs.

    Attributes:
        x: float32 [N, F]. edges: int64 [2, E], source and target. weights: float32 [E].
        member: int64 [N], the graph of each node. share: float32 [N], 1 for each real node, 0 for padding.
        sizes: float32 [G], number of nodes of each graph; 1 for padding.
    """

    x: Array
    edges: Array
    weights: Array
    member: Array
    share: Array
    sizes: Array


class Limits(NamedTuple):
    """Planned numbers of nodes, edges and graphs of a whole batch, in ascending order; empty: any number."""

    nodes: Sequence[int] = ()
    edges: Sequence[int] = ()
    graphs: Sequence[int] = ()


def pack(sizes: Sequence[tuple[int, int]], limits: Limits) -> list[range]:
    """Return batches of consecutive graphs, as ranges of places, each as large as the largest planned sizes allow.

    ``sizes`` are the nodes and edges of each graph. Raises DataError if one graph alone is larger.
    """
    most = [values[-1] if values else None for values in limits]
    batches, start, held = list[range](), 0, [0, 0, 0]
    for place, (nodes, edges) in enumerate(sizes):
        own = [nodes, edges, 1]
        refuse_larger(nodes, edges, limits)
        total = zip(held, own, most, strict=True)
        if place > start and any(limit is not None and a + b > limit for a, b, limit in total):
            batches.append(range(start, place))
            start, held = place, [0, 0, 0]
        held = [a + b for a, b in zip(held, own, strict=True)]
    return [*batches, range(start, len(sizes))] if sizes else []


def refuse_larger(nodes: int, edges: int, limits: Limits) -> None:
    """Raise DataError, with its size, the limit and the flag, for a graph larger than any batch."""
    for what, size, planned in (("nodes", nodes, limits.nodes), ("edges", edges, limits.edges)):
        if planned and size > planned[-1]:
            raise DataError(
                f"has {size} {what}, but the largest plan has {planned[-1]}; give a larger --{what}, or leave "
                "the graph out"
            )


def block_diagonal(graphs: Sequence[Part], limits: Limits) -> Packed:
    """Join one or more graphs, together no larger than the largest planned sizes (:func:`pack`), and pad them."""
    counts = np.array([len(one.nodes) for one in graphs], np.int64)
    starts = np.cumsum(counts) - counts
    nodes, edges = int(counts.sum()), sum(len(one.found.source) for one in graphs)
    sizes = zip((nodes, edges, len(graphs)), limits, strict=True)
    full = [planned[bisect_left(planned, size)] if planned else size for size, planned in sizes]
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
    """Return the number of real graphs in a packed batch, given its :class:`Packed` arrays of these names."""
    return int(member[share > 0].max(initial=-1)) + 1
