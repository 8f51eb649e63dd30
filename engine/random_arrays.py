"""Random arrays to try a model with."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from engine.signature import Array
from tecoinfer_modelzoo.errors import InputError
from tecoinfer_modelzoo.text import shape_text

MOST = 2**29  # largest number of elements drawn: several seconds, and 4 GiB


def random_array(rng: np.random.Generator, shape: Sequence[int], dtype: np.dtype[Any], *, lean: bool = False) -> Array:
    """Return standard normal values for floats, and 0 or 1 for integers and bools.

    Args:
        rng: the generator, which is advanced.
        shape, dtype: of the array.
        lean: draw float32 and int8 instead of float64 and int64, which takes less memory and gives other values.

    Raises:
        InputError: it has more than :data:`MOST` elements, or four times as many with ``lean``.
        MemoryError, ValueError: the array is too large.
    """
    most = 4 * MOST if lean else MOST
    if prod(shape) > most:
        what = f"an input of shape {shape_text(shape)} has {prod(shape)} elements, more than the {most} drawn at random"
        raise InputError(f"{what}; use a smaller shape or batch, or pass data")
    if dtype.kind == "f":
        drawn = rng.standard_normal(shape, np.float32 if lean else np.float64)
    else:
        drawn = rng.integers(0, 2, shape, np.int8 if lean else np.int64)
    return np.asarray(drawn).astype(dtype)
