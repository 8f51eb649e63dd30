"""Which node hears which, and how loud: a graph's edges with one weight each, as graph networks add them up."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine import Array, ConfigError

KINDS = ("symmetric", "mean", "sum")


class Messages(NamedTuple):
    """Edges with a weight each.

    Attributes:
        source, target: int64 [E]. weight: float32 [E].
    """

    source: Array
    target: Array
    weight: Array


def messages(nodes: int, edges: Array, kind: str, *, loops: bool, values: Array | None = None) -> Messages:
    """Weight the edges of a graph.

    - ``symmetric``: an edge's value over the root of both its ends' sums (Kipf and Welling, 2017: with ``loops``, the
      renormalised adjacency of a GCN).
    - ``mean``: over the sum of what its target hears (GraphSAGE's mean).
    - ``sum``: as it is (GIN's sum).

    Args:
        nodes: how many there are. edges: int64 [2, E], source and target.
        loops: whether each node also hears itself, with value 1; a graph without edges then has them.
        values: float [E], what an edge counts; ``None``: 1.

    Raises:
        ConfigError: an unknown kind.
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
    """Return what edges of value 1 count, float64 [E], as :func:`messages` says of each kind.

    Args:
        kind: one of :data:`KINDS`. heard: float [N], what each node hears in all. source, target: int [E].

    Raises:
        ConfigError: an unknown kind.
    """
    if kind not in KINDS:
        raise ConfigError(f"messages of kind {kind!r} are none of {', '.join(KINDS)}")
    if kind == "sum":
        return np.ones(len(source))
    if kind == "mean":
        return np.asarray(_inverse(heard)[target])
    root = np.sqrt(_inverse(heard))
    return np.asarray(root[source] * root[target])


def _inverse(sums: Array) -> Array:
    """Return 1 over each sum, 0 for a node that hears nothing."""
    return np.divide(1.0, sums, out=np.zeros(len(sums)), where=sums > 0)
