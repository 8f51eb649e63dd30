"""Small questions about what two calls hold: random numbers, loss scales, and counts of their values."""

from __future__ import annotations

import numpy as np

from engine import Array, Census, OpCall, Recorded, as_numbers, census


def same_state(a: Recorded, b: Recorded) -> bool:
    """Say whether two random calls drew the same numbers."""
    return a.state is not None and b.state is not None and np.array_equal(a.state, b.state)


def scale_of(a: OpCall, b: OpCall) -> float:
    """Return how much larger gradients of the judged run may be: losses may be scaled differently."""
    return (b.loss_scale or 1.0) / (a.loss_scale or 1.0)


def real(array: Array) -> Array:
    """Return numbers that can be compared: a complex one as two."""
    if array.dtype.kind == "c":
        return np.stack([array.real, array.imag])
    return array


def census_of(a: Recorded, b: Recorded, k: int) -> Census | None:
    """Return what a result holds beside the reference's; ``None`` where they are no such numbers or of other shapes."""
    value, reference = (real(as_numbers(one.outputs[k], one.call.outputs[k].dtype)) for one in (b, a))
    if value.shape != reference.shape or not value.size or value.dtype.kind not in "fiub":
        return None
    return census(value, reference, b.call.outputs[k].dtype == "float16")
