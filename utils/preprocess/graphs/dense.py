"""Graphs as dense arrays, with the adjacency as a matrix."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine import Array
from utils.preprocess.graphs.messages import Messages


class Dense(NamedTuple):
    """A graph without padding; a batch pads all graphs to the largest, or to a planned size.

    Attributes:
        nodes: float32 [N, F]. adjacency: float32 [N, N]. mask: float32 [N], 1 for each node.
    """

    nodes: Array
    adjacency: Array
    mask: Array


def dense(nodes: Array, found: Messages) -> Dense:
    """Return a graph as arrays.

    ``adjacency[i, j]`` is the weight of the edge from node j to node i, so that ``adjacency @ h`` sums each node's
    messages. Weights of repeated edges are added. Padding with 0 has no effect on other nodes.

    Args:
        nodes: float [N, F]. found: the edges with their weights.
    """
    return Dense(np.asarray(nodes, np.float32), matrix_of(found, len(nodes)), np.ones(len(nodes), np.float32))


def matrix_of(found: Messages, size: int, dtype: str = "float32") -> Array:
    """Return edges as a matrix, size x size, with targets as rows; padding is 0."""
    matrix = np.zeros((size, size), dtype)
    np.add.at(matrix, (found.target, found.source), found.weight.astype(dtype))
    return matrix
