"""What the layouts of a graph with classes of nodes have in common."""

from __future__ import annotations

from typing import NamedTuple

from engine import Array
from utils.datasets.graphs.files import Graph

TRAIN, VALID, TEST = SPLITS = ("train", "valid", "test")
"""Parts of the nodes."""

MOST = 4_000_000_000
"""Bytes that the numbers of all nodes may take."""


class Labelled(NamedTuple):
    """What a layout holds.

    Attributes:
        graph: nodes float32 [N, F], edges int64 [2, E] as they are written.
        labels: int64 [N], -1 where a class is not known.
        parts: int8 [N], place in :data:`SPLITS`, -1 for none of them.
        classes: names of the classes. names: of the nodes. image: height and width of a node's row, if it is one.
        undirected: an edge is written once for both directions.
    """

    graph: Graph
    labels: Array
    parts: Array
    classes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    picture: tuple[int, int] | None = None
    undirected: bool = False
