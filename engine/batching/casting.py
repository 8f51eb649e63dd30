"""Arrays of a call in the dtypes that a model takes, and what to say of floats that are narrowed."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from engine.signature import Array, TensorSpec, numpy_name
from tecoinfer_modelzoo.errors import InputError
from tecoinfer_modelzoo.text import level_of_user


def cast_to(array: Array, spec: TensorSpec, warned: set[str]) -> Array:
    """Cast within a kind of dtype; narrowing floats warns once per input, and once if values become infinite by it.

    Args:
        array: of a call. spec: the input it is for. warned: names of inputs that were warned of; it is added to.

    Raises:
        InputError: the dtype is of another kind, or wider and not a float.
    """
    if array.dtype.kind != spec.dtype.kind or (spec.dtype.kind != "f" and not np.can_cast(array.dtype, spec.dtype)):
        raise InputError(
            f"input {spec.name!r} has dtype {array.dtype}, the model takes {spec.dtype}; "
            f"use array.astype({numpy_name(spec.dtype)})"
        )
    lost: list[str] = []
    # A value beyond the narrower range becomes infinite, as on the device; numpy notices that while it casts.
    with np.errstate(over="call", call=lambda kind, _: lost.append(kind)):
        cast = array.astype(spec.dtype)
    if not np.can_cast(array.dtype, spec.dtype):
        _warn_narrowed(array, spec.name, spec.dtype, warned, infinite=bool(lost))
    return cast


def _warn_narrowed(
    array: np.ndarray[Any, np.dtype[Any]], name: str, dtype: np.dtype[Any], warned: set[str], infinite: bool
) -> None:
    """Warn once of each input whose floats are narrowed, and once of each where that made values infinite.

    Preprocessing to the narrower dtype would spoil what it does not hold as well, and is no advice then.

    Args:
        array: of a call. name, dtype: of the input that it is for. warned: what was warned of; it is added to.
        infinite: whether values became so.
    """
    beyond = f"{name}: infinite"
    if beyond in warned or (name in warned and not infinite):
        return
    whole = 2 ** (np.finfo(dtype).nmant + 1)
    if infinite:
        warned.add(beyond)
        advice = f"values beyond {np.finfo(dtype).max:g} became infinite; scale them down, or use --dtype float32"
    elif (np.abs(array) > whole).any():
        advice = f"beyond {whole} it does not hold every whole number; where that matters, use --dtype float32"
    else:
        advice = f"preprocess to {dtype} to save the copy"
    warned.add(name)
    warnings.warn(f"input {name!r}: {array.dtype} cast to the model's {dtype}; {advice}", stacklevel=level_of_user())
