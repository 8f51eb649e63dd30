"""Fit the arrays of samples to the inputs of a model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import prod
from typing import Any

import numpy as np

from engine import Array, DataError, TensorSpec
from engine.signature import numpy_name
from tecoinfer_modelzoo.text import shape_text
from utils.datasets.arrays.sets import ArraySample


def sample_shape(spec: TensorSpec) -> tuple[int | None, ...]:
    """Return the shape of a sample of an input, without the batch axis; ``None`` for a dynamic size."""
    return tuple(size for axis, size in enumerate(spec.shape) if axis != spec.batch_axis)


def arrays_of(sample: Any, specs: Sequence[TensorSpec]) -> list[Array]:
    """Return the arrays of a sample, one per input, in the dtypes and shapes of the inputs.

    Args:
        sample: an :class:`ArraySample`; of a Python call also an array, a list of arrays, or arrays by input name.
        specs: the model's inputs.

    Raises:
        DataError: an input has no array, or an array of another shape or dtype; the message names sample and input.
    """
    if not isinstance(sample, ArraySample):
        sample = _named(sample, specs)
    if len(sample.arrays) != len(specs):
        names = ", ".join(spec.name for spec in specs)
        raise DataError(f"{sample.name}: {len(sample.arrays)} arrays for {len(specs)} inputs; give: {names}")
    return [_shaped(_cast(array, spec, sample), spec, sample) for array, spec in zip(sample.arrays, specs, strict=True)]


def _named(sample: Any, specs: Sequence[TensorSpec]) -> ArraySample:
    """Return a sample of a Python call."""
    if isinstance(sample, dict):
        lacking = next((spec.name for spec in specs if spec.name not in sample), None)
        if lacking is not None:
            raise DataError(f"the sample has no array {lacking!r}, an input of the model; add it")
        sample = [sample[spec.name] for spec in specs]
    given = [sample] if isinstance(sample, np.ndarray) else list(sample)
    return ArraySample("the sample", tuple(np.asarray(one) for one in given))


def _cast(array: Array, spec: TensorSpec, sample: ArraySample) -> Array:
    """Return an array in the dtype of an input, if that does not change its values (but for rounding of floats)."""
    if array.dtype == spec.dtype:
        return array
    kinds = array.dtype.kind + spec.dtype.kind
    with np.errstate(over="ignore", invalid="ignore"):
        cast = array.astype(spec.dtype)
    if spec.dtype.kind == "f":
        good = array.dtype.kind in "fiub" and np.array_equal(np.isinf(cast), np.isinf(array.astype(np.float64)))
    else:
        good = (kinds[0] in "iub" or sample.flat) and np.array_equal(cast.astype(np.float64), array.astype(np.float64))
    if good:
        return cast
    why = f"dtype {array.dtype}" if kinds[0] == "f" and kinds[1] != "f" else f"values beyond {spec.dtype}"
    raise DataError(
        f"{sample.name}: input {spec.name!r} takes {spec.dtype}, and the array has {why}; save "
        f"array.astype({numpy_name(spec.dtype)}) of values in its range"
    )


def _shaped(array: Array, spec: TensorSpec, sample: ArraySample) -> Array:
    """Return an array if its shape is that of a sample of an input; the cells of a table take that shape."""
    wanted = sample_shape(spec)
    if fits(array.shape, wanted):
        return array
    sizes = [size for size in wanted if size is not None]
    if sample.flat and len(sizes) == len(wanted) and prod(sizes) == array.size:
        return array.reshape(sizes)
    raise DataError(
        f"{sample.name}: input {spec.name!r} takes samples of shape {_text(wanted)}, and this one has "
        f"{shape_text(array.shape)}; {_fix(array.shape, wanted)}"
    )


def fits(shape: Sequence[int], wanted: Sequence[int | None]) -> bool:
    """Return whether a shape has the wanted sizes."""
    return len(shape) == len(wanted) and all(want in (None, size) for size, want in zip(shape, wanted, strict=True))


def _fix(shape: Sequence[int], wanted: Sequence[int | None]) -> str:
    if shape[:1] == (1,) and fits(shape[1:], wanted):
        return "save the sample without the first axis: array[0]"
    if len(shape) == len(wanted) <= 4:
        order = next((one for one in permutations(range(len(shape))) if fits([shape[i] for i in one], wanted)), None)
        if order is not None:
            return f"save a sample's axes in another order: sample.transpose{order}"
    return "save arrays of this shape, or export the model for another one"


def _text(wanted: Sequence[int | None]) -> str:
    return "x".join("?" if size is None else str(size) for size in wanted) or "()"


def stacked(columns: Sequence[Sequence[Array]], specs: Sequence[TensorSpec]) -> list[Array]:
    """Return one array per input with the samples along its batch axis.

    Args:
        columns: per input one array per sample. specs: the inputs.

    Raises:
        DataError: samples of different sizes, or of an input without a batch axis that differ, cannot share a call.
    """
    return [_stacked(list(column), spec) for column, spec in zip(columns, specs, strict=True)]


def _stacked(arrays: list[Array], spec: TensorSpec) -> Array:
    if spec.batch_axis is None:
        if any(not np.array_equal(array, arrays[0], equal_nan=array.dtype.kind == "f") for array in arrays):
            raise DataError(f"input {spec.name!r} has no batch axis, and samples differ in it; use --batch_size 1")
        return arrays[0]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        listed = ", ".join(sorted(map(shape_text, shapes)))
        raise DataError(
            f"samples of input {spec.name!r} have different shapes ({listed}) and cannot share a call; use "
            "--batch_size 1, or --pad 0 to fill up the smaller ones"
        )
    return np.ascontiguousarray(np.stack(arrays, axis=spec.batch_axis))
