"""Float constants that contain whole numbers, such as precomputed grids of positions."""

from __future__ import annotations

from math import prod

import numpy as np
from onnx import TensorProto, numpy_helper

from engine.signature import Array

_DISTINCT = 8  # minimum number of distinct values of a list of positions; a mean of colours has 3
_MOST = 2**20  # maximum number of elements of a constant that is examined
_FIRST = 64  # number of elements that are examined first


def holds_numbers(tensor: TensorProto) -> bool:
    """Return whether a float constant contains positions: multiples of 1/2, with more distinct values than a mask."""
    values = _values(tensor)
    return values is not None and _all_halves(values) and len(np.unique(values)) >= _DISTINCT


def are_halves(tensor: TensorProto) -> bool:
    """Return whether all numbers of a constant are multiples of 1/2; ``False`` for external data."""
    values = _values(tensor)
    return values is not None and _all_halves(values)


def _all_halves(values: Array) -> bool:
    for part in (values[:_FIRST], values):  # the first elements suffice to recognize weights
        doubled = part * 2
        if not np.isfinite(part).all() or not (doubled == np.rint(doubled)).all():
            return False
    return True


def largest(tensor: TensorProto) -> float:
    """Return the largest magnitude of a constant; 0 for external data."""
    values = _values(tensor)
    return 0.0 if values is None else float(np.abs(values).max(initial=0.0))


def smallest(tensor: TensorProto) -> float:
    """Return the smallest magnitude of a constant; infinity for external data."""
    values = _values(tensor)
    return np.inf if values is None else float(np.abs(values).min(initial=np.inf))


def _values(tensor: TensorProto) -> Array | None:
    """Return the values in float64; ``None`` if they are not numeric, too many, or external."""
    if tensor.data_location == TensorProto.EXTERNAL or prod(tensor.dims) > _MOST:
        return None
    if tensor.data_type == TensorProto.STRING:
        return None
    return numpy_helper.to_array(tensor).astype(np.float64).reshape(-1)
