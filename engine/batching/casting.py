"""Conversion of input arrays to the dtypes of the model, with warnings about lossy casts."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from engine.signature import Array, TensorSpec, numpy_name
from tecoinfer_modelzoo.errors import InputError
from tecoinfer_modelzoo.text import user_stacklevel


def cast_to(array: Array, spec: TensorSpec, warned: set[str]) -> Array:
    """Cast an array within a kind of dtype; raise InputError for another kind, or a wider dtype that is not a float.

    Narrowing floats warns once per input, and once more if values become infinite; ``warned`` records the warnings.
    """
    if array.dtype.kind != spec.dtype.kind or (spec.dtype.kind != "f" and not np.can_cast(array.dtype, spec.dtype)):
        wanted = f"the model takes {spec.dtype}; use array.astype({numpy_name(spec.dtype)})"
        raise InputError(f"input {spec.name!r} has dtype {array.dtype}, {wanted}")
    lost: list[str] = []
    # Values beyond the narrower range become infinite, as on the device; NumPy reports overflows of the cast.
    with np.errstate(over="call", call=lambda kind, _: lost.append(kind)):
        cast = array.astype(spec.dtype)
    if not np.can_cast(array.dtype, spec.dtype):
        _warn_narrowed(array, spec.name, spec.dtype, warned, infinite=bool(lost))
    return cast


def _warn_narrowed(
    array: np.ndarray[Any, np.dtype[Any]], name: str, dtype: np.dtype[Any], warned: set[str], infinite: bool
) -> None:
    """Warn per input about narrowed floats, with advice if all are representable, and about new infinities."""
    beyond = f"{name}: infinite"
    if beyond in warned or (name in warned and not infinite):
        return
    whole = 2 ** (np.finfo(dtype).nmant + 1)
    if infinite:
        warned.add(beyond)
        advice = f"values beyond {np.finfo(dtype).max:g} became infinite; scale them down, or use --dtype float32"
    elif (np.abs(array) > whole).any():
        advice = f"it does not represent all integers above {whole}; if that matters, use --dtype float32"
    else:
        advice = f"preprocess to {dtype} to save the copy"
    warned.add(name)
    warnings.warn(f"input {name!r}: {array.dtype} cast to the model's {dtype}; {advice}", stacklevel=user_stacklevel())
