"""Selection of the nodes to dump: every n-th, one by name, or a range."""

from __future__ import annotations

from collections.abc import Sequence

from engine import ConfigError
from tecoinfer_modelzoo.text import did_you_mean
from toolkit.graph.nodes import Node


def every(nodes: Sequence[Node], step: int = 1) -> list[Node]:
    """Return every ``step``-th node from the first, and the last node."""
    if step < 1:
        raise ConfigError(f"every {step} nodes: the step must be at least 1")
    chosen = list(nodes[::step])
    return chosen if not nodes or chosen[-1] is nodes[-1] else [*chosen, nodes[-1]]


def once(nodes: Sequence[Node], name: str) -> list[Node]:
    """Return the node, or the producer of the tensor, with the name; raise ConfigError if there is neither."""
    return [_find(nodes, name)]


def between(nodes: Sequence[Node], first: str, last: str) -> list[Node]:
    """Return a range of nodes, both ends included: index from 0, or name of a node or tensor; "": the model's end.

    Raise ConfigError if an end does not exist, or the last node precedes the first.
    """
    start = _find(nodes, first).index if first else 0
    end = _find(nodes, last).index if last else len(nodes) - 1
    if end < start:
        raise ConfigError(f"range {first or 0} to {last}: the last node (index {end}) comes before the first ({start})")
    return list(nodes[start : end + 1])


def _find(nodes: Sequence[Node], name: str) -> Node:
    named = next((node for node in nodes if name in (node.name, *filter(None, node.outputs))), None)
    if named is not None:
        return named
    if name.isascii() and name.isdigit():
        if int(name) < len(nodes):
            return nodes[int(name)]
        raise ConfigError(f"no node with index {name}: the model has {len(nodes)} nodes, 0 to {len(nodes) - 1}")
    known = [word for node in nodes for word in (node.name, *node.outputs) if word]
    raise ConfigError(f"no node or tensor {name!r} in the model;{did_you_mean(name, known)} 'teco dump full' lists all")
