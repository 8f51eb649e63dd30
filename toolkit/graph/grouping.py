"""Groups of nodes whose tensors fit into memory together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from toolkit.graph.nodes import Node

MEMORY = 2 * 2**30
"""Default limit of the bytes of node outputs held at once."""


def grouped(nodes: Iterable[Node], sizes: Mapping[str, int], limit: int) -> Iterator[list[Node]]:
    """Split nodes, in order, into groups whose inputs and outputs together take at most ``limit`` bytes.

    A larger node forms a group alone; a tensor of unknown size counts as 0 bytes.

    Args:
        nodes: in topological order. sizes: bytes by tensor name. limit: bytes.
    """
    group: list[Node] = []
    held: set[str] = set()
    total = 0
    for node in nodes:
        names = {*node.inputs, *node.outputs}
        more = sum(sizes.get(name, 0) for name in names - held)
        if group and total + more > limit:
            yield group
            group, held, total = [], set(), 0
            more = sum(sizes.get(name, 0) for name in names)
        group.append(node)
        held |= names
        total += more
    if group:
        yield group
