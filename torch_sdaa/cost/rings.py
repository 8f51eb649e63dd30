"""What collectives move: each is a ring of copies between devices, as vendors' libraries do it for large tensors."""

from __future__ import annotations

from typing import NamedTuple

PREFIX = "tccl::"


class Ring(NamedTuple):
    """What one rank does in a collective.

    Attributes:
        steps: copies, one after another. moved: bytes of all of them, over the link of this rank that moves most.
    """

    steps: int
    moved: float


def ring_of(op: str, read: int, written: int) -> Ring:
    """Return a collective's copies.

    Args:
        op: ``tccl::all_reduce[4]``: what it is, and of how many ranks.
        read, written: bytes of this rank's inputs and outputs.

    Raises:
        ValueError: there is no such collective.
    """
    name, _, size = op.removeprefix(PREFIX).partition("[")
    ranks = int(size.rstrip("]"))
    others = ranks - 1
    if not others:
        return Ring(0, 0.0)
    match name:
        case "all_reduce":  # a reduce_scatter and an all_gather
            return Ring(2 * others, 2 * read * others / ranks)
        case "reduce" | "broadcast":  # in pieces, which follow one another round the ring
            return Ring(others, read)
        case "all_gather":
            return Ring(others, written * others / ranks)
        case "reduce_scatter" | "all_to_all":
            return Ring(others, read * others / ranks)
        case "gather":
            return Ring(others, written * others / ranks) if written else Ring(1, read)
        case "scatter":
            return Ring(others, read * others / ranks) if read else Ring(1, written)
        case "send" | "recv":
            return Ring(1, max(read, written))
        case "barrier":
            return Ring(2 * others, 0.0)
    raise ValueError(f"no price for {op}")
