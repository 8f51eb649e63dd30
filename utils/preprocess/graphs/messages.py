"""Weighted edges of graphs for the sums of graph neural networks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine import Array, ConfigError

KINDS = ("symmetric", "mean", "sum")


class Messages(NamedTuple):
    """Edges with weights: source and target int64 [E], weight float32 [E]."""

    source: Array
    target: Array
    weight: Array


def messages(nodes: int, edges: Array, kind: str, *, loops: bool, values: Array | None = None) -> Messages:
    """Weight the edges of a graph, int64 [2, E], source and target, with values of 1 or float [E].

    - ``symmetric``: an edge's value over the square root of the product of both ends' sums (Kipf and Welling, 2017:
      with ``loops``, the renormalised adjacency of a GCN).
    - ``mean``: over the sum of its target's incoming values (GraphSAGE's mean).
    - ``sum``: unchanged (GIN's sum).

    ``loops`` adds an edge of value 1 from each node to itself. Raises ConfigError if the kind is unknown.
    """
    source, target = edges
    weight = np.ones(len(source)) if values is None else np.asarray(values, np.float64)
    if loops:
        own = np.arange(nodes)
        source, target = np.concatenate([source, own]), np.concatenate([target, own])
        weight = np.concatenate([weight, np.ones(nodes)])
    weight = weight * shares(kind, np.bincount(target, weight, nodes), source, target)
    return Messages(source, target, weight.astype(np.float32))


def shares(kind: str, heard: Array, source: Array, target: Array) -> Array:
    """Return the weights of edges of value 1, float64 [E], as defined in :func:`messages`.

    ``heard`` is the sum of each node's incoming values. Raises ConfigError if the kind is unknown.
    """
    if kind not in KINDS:
        raise ConfigError(f"kind {kind!r} of messages must be one of {', '.join(KINDS)}")
    if kind == "sum":
        return np.ones(len(source))
    if kind == "mean":
        return np.asarray(_inverse(heard)[target])
    root = np.sqrt(_inverse(heard))
    return np.asarray(root[source] * root[target])


def _inverse(sums: Array) -> Array:
    """Return 1 over each sum, 0 for a sum of 0."""
    return np.divide(1.0, sums, out=np.zeros(len(sums)), where=sums > 0)


class Dense(NamedTuple):
    """A graph as arrays without padding; a batch pads all graphs to the largest, or to a planned size.

    Attributes:
        nodes: float32 [N, F]. adjacency: float32 [N, N]. mask: float32 [N], 1 for each node.
    """

    nodes: Array
    adjacency: Array
    mask: Array


def dense(nodes: Array, found: Messages) -> Dense:
    """Return a graph of nodes, float [N, F], as arrays.

    ``adjacency[i, j]`` is the weight of the edge from node j to node i, so that ``adjacency @ h`` sums each node's
    messages. Weights of repeated edges are added. Padding with 0 has no effect on other nodes.
    """
    return Dense(np.asarray(nodes, np.float32), matrix_of(found, len(nodes)), np.ones(len(nodes), np.float32))


def matrix_of(found: Messages, size: int, dtype: str = "float32") -> Array:
    """Return edges as a matrix, size x size, with targets as rows; padding is 0."""
    matrix = np.zeros((size, size), dtype)
    np.add.at(matrix, (found.target, found.source), found.weight.astype(dtype))
    return matrix
