"""Data moved by collectives: each is a ring of copies between devices, as in vendors' libraries for large tensors."""

from __future__ import annotations

from typing import NamedTuple

PREFIX = "tccl::"


class Ring(NamedTuple):
    """Copies of one rank in a collective.

    Attributes:
        steps: number of consecutive copies. moved: bytes of all, over the busiest link of this rank.
    """

    steps: int
    moved: float


def ring_of(op: str, read: int, written: int) -> Ring:
    """Return the copies of a collective.

    Args:
        op: ``tccl::all_reduce[4]``: the collective and its number of ranks.
        read, written: bytes of this rank's inputs and outputs.

    Raises:
        ValueError: the collective is unknown.
    """
    name, _, size = op.removeprefix(PREFIX).partition("[")
    ranks = int(size.rstrip("]"))
    others = ranks - 1
    if not others:
        return Ring(0, 0.0)
    match name:
        case "all_reduce":  # a reduce_scatter and an all_gather
            return Ring(2 * others, 2 * read * others / ranks)
        case "reduce" | "broadcast":  # in pieces, which are passed along the ring
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
