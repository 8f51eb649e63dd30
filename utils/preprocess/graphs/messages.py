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
