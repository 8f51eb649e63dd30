"""What to say of an input whose floats are narrowed to the dtype that a model takes."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from engine.text import level_of_user


def warn_narrowed(
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
