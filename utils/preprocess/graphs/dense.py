"""A graph as dense arrays: its adjacency as a matrix, so that passing messages is a product of matrices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine import Array
from utils.preprocess.graphs.messages import Messages


class Dense(NamedTuple):
    """A graph, not padded: a batch pads all of its graphs to the largest, or to a size that has a plan.

    Attributes:
        nodes: float32 [N, F]. adjacency: float32 [N, N]. mask: float32 [N], 1 for each node that there is.
    """

    nodes: Array
    adjacency: Array
    mask: Array


def dense(nodes: Array, found: Messages) -> Dense:
    """Return a graph as arrays.

    ``adjacency[i, j]`` is what node i hears of node j, so that ``adjacency @ h`` adds all that a node hears. Edges that
    stand several times add up. Padded with 0, a node that is not there says and hears nothing.

    Args:
        nodes: float [N, F]. found: the edges with their weights.
    """
    return Dense(np.asarray(nodes, np.float32), matrix_of(found, len(nodes)), np.ones(len(nodes), np.float32))


def matrix_of(found: Messages, size: int, dtype: str = "float32") -> Array:
    """Return edges as a matrix, size x size: a row is a target. Places behind the last node are 0."""
    matrix = np.zeros((size, size), dtype)
    np.add.at(matrix, (found.target, found.source), found.weight.astype(dtype))
    return matrix
