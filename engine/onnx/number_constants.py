"""Float constants that hold whole numbers, such as a grid of positions that an exporter computed."""

from __future__ import annotations

from math import prod

import numpy as np
from onnx import TensorProto, numpy_helper

from engine.signature import Array

_DISTINCT = 8
"""Different numbers that a list of positions has at least; a mean of colours has 3."""

_MOST = 2**20
"""Elements up to which a constant is looked at."""

_FIRST = 64
"""Elements that are looked at first."""


def holds_numbers(tensor: TensorProto) -> bool:
    """Say whether a float constant holds positions: multiples of 1/2, more different ones than a mask has."""
    values = _values(tensor)
    return values is not None and _all_halves(values) and len(np.unique(values)) >= _DISTINCT


def are_halves(tensor: TensorProto) -> bool:
    """Say whether all numbers of a constant are multiples of 1/2; false where its values are elsewhere."""
    values = _values(tensor)
    return values is not None and _all_halves(values)


def _all_halves(values: Array) -> bool:
    for part in (values[:_FIRST], values):  # the first few of a tensor of weights say that it is one
        doubled = part * 2
        if not np.isfinite(part).all() or not (doubled == np.rint(doubled)).all():
            return False
    return True


def largest(tensor: TensorProto) -> float:
    """Return the largest magnitude of a constant; 0 where its values are elsewhere."""
    values = _values(tensor)
    return 0.0 if values is None else float(np.abs(values).max(initial=0.0))


def smallest(tensor: TensorProto) -> float:
    """Return the smallest magnitude of a constant; infinity where its values are elsewhere."""
    values = _values(tensor)
    return np.inf if values is None else float(np.abs(values).min(initial=np.inf))


def _values(tensor: TensorProto) -> Array | None:
    """Return the values in float64; ``None`` where they are no numbers, many, or elsewhere."""
    if tensor.data_location == TensorProto.EXTERNAL or prod(tensor.dims) > _MOST:
        return None
    if tensor.data_type == TensorProto.STRING:
        return None
    return numpy_helper.to_array(tensor).astype(np.float64).reshape(-1)
