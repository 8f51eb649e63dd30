"""The input shapes with which a script in the historical style last opened its engine: preprocessing follows them."""

from __future__ import annotations

from collections.abc import Sequence

Shapes = tuple[tuple[int | None, ...], ...]

_last: list[Shapes] = []


def declare_shapes(shapes: Sequence[Sequence[int | None]] | None) -> None:
    """Set the shapes of an engine's inputs; ``None``: the script gave none."""
    _last[:] = [tuple(tuple(shape) for shape in shapes)] if shapes else []


def declared_shapes() -> Shapes:
    """Return the shapes set last, in the caller's order of inputs; empty if there are none."""
    return _last[0] if _last else ()
