"""The shapes for which a script in the historical style opened its engine last.

Such a script tells the size of its pictures to the engine alone: what prepares them has a default of its own, which
need not be that size. With this the default follows the engine.
"""

from __future__ import annotations

from collections.abc import Sequence

Shapes = tuple[tuple[int | None, ...], ...]

_last: list[Shapes] = []


def declare_shapes(shapes: Sequence[Sequence[int | None]] | None) -> None:
    """Keep the shapes of an engine's inputs in place of those before; ``None``: the script gave none."""
    _last[:] = [tuple(tuple(shape) for shape in shapes)] if shapes else []


def declared_shapes() -> Shapes:
    """Return the shapes kept last, in the caller's order of inputs; empty where there are none."""
    return _last[0] if _last else ()
