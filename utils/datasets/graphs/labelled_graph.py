"""Common types of graphs with classes of nodes."""

from __future__ import annotations

from typing import NamedTuple

from engine import Array
from utils.datasets.graphs.files import Graph

TRAIN, VALID, TEST = SPLITS = ("train", "valid", "test")
"""Parts of the nodes."""

MOST = 4_000_000_000
"""Maximum bytes of the features of all nodes."""


class Labelled(NamedTuple):
    """A graph with node classes.

    Attributes:
        graph: nodes float32 [N, F], edges int64 [2, E] as stored.
        labels: int64 [N], -1 if unknown.
        parts: int8 [N], index into :data:`SPLITS`, -1 for no part.
        classes: names of the classes. names: names of the nodes.
        image: height and width, if the features of a node are an image.
        undirected: whether an edge is stored once for both directions.
    """

    graph: Graph
    labels: Array
    parts: Array
    classes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    image: tuple[int, int] | None = None
    undirected: bool = False
