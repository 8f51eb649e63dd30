"""Collate prepared samples to the arrays of a call: concatenate along the batch axis, or pad to a planned size."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from engine import Array, ConfigError, DataError, InputError, TensorSpec
from engine.signature import numpy_name
from utils.tasks.model import Model
from utils.tasks.prepared import Prepared


def collate(parts: Sequence[Prepared], model: Model, *, padding: Mapping[str, float] | None = None) -> list[Array]:
    """Collate prepared samples to one array per input of the model; the default of :attr:`Task.collate`.

    A single part of plain arrays is returned without a copy. Otherwise, for each input:

    - arrays are concatenated along the input's batch axis; an input without one must be equal in all parts;
    - lists (one array per sample, without the batch axis) are padded at their ends and stacked along the batch axis, in
      the input's dtype. Declared sizes are padded to. A symbolic size is padded to the smallest of
      ``model.dims[symbol]`` that fits the longest sample of all inputs with that symbol, or to that longest sample if
      the symbol may have any size.

    Args:
        parts: return values of ``prepare``, one for a batch or one per sample; at least one.
        model: with the inputs, in the order of the arrays, and the planned sizes.
        padding: value by input's name; ``None``: that of the first part; default 0.

    Raises:
        ConfigError: ``padding`` has the name of an unknown input.
        InputError: no parts, not one array per input, or an array of a dtype that the input does not accept.
        DataError: a sample is larger than every planned size, or samples cannot share a batch.
    """
    if not parts:
        raise InputError("there is nothing to collate; pass what prepare returned")
    alone = _plain(parts[0].arrays) if len(parts) == 1 else None
    if alone is not None:
        return alone
    values = padding or parts[0].padding or {}
    _check(parts, model, values)
    columns = [_column(parts, place, spec) for place, spec in enumerate(model.inputs)]
    longest = _longest(columns, model)
    return [
        _joined(column, spec)
        if isinstance(column[0], np.ndarray)
        else _stacked(column[0], spec, _sizes(spec, longest, model), values.get(spec.name, 0))
        for column, spec in zip(columns, model.inputs, strict=True)
    ]


def _plain(arrays: Sequence[Array | list[Array]]) -> list[Array] | None:
    """Return the arrays of a part without lists; ``None``: it has lists."""
    found = [array for array in arrays if isinstance(array, np.ndarray)]
    return found if len(found) == len(arrays) else None


def _check(parts: Sequence[Prepared], model: Model, padding: Mapping[str, float]) -> None:
    names = [spec.name for spec in model.inputs]
    for part in parts:
        if len(part.arrays) != len(names):
            raise InputError(
                f"{model.ckpt}: prepare gives {len(part.arrays)} arrays, the model takes {len(names)}: "
                f"{', '.join(names)}; give one per input, in this order"
            )
    unknown = sorted(set(padding) - set(names))
    if unknown:
        raise ConfigError(f"{model.ckpt}: padding for {', '.join(unknown)}; the model's inputs are: {', '.join(names)}")


def _column(parts: Sequence[Prepared], place: int, spec: TensorSpec) -> list[Array] | list[list[Array]]:
    """Return an input's arrays; if any part has a list, a list with one list of all samples."""
    found = [part.arrays[place] for part in parts]
    plain = _plain(found)
    if plain is not None:
        return plain
    return [[sample for array in found for sample in _samples(array, spec)]]


def _samples(array: Array | list[Array], spec: TensorSpec) -> list[Array]:
    """Return one array per sample, without the batch axis."""
    if not isinstance(array, np.ndarray):
        return [np.asarray(sample) for sample in array]
    if spec.batch_axis is None:
        return [array]
    return list(np.moveaxis(array, spec.batch_axis, 0))


def _joined(arrays: list[Array], spec: TensorSpec) -> Array:
    """Concatenate arrays along the batch axis."""
    axis = spec.batch_axis
    if len(arrays) == 1:
        return arrays[0]
    if axis is None:
        other = next((i for i, array in enumerate(arrays) if not np.array_equal(array, arrays[0])), None)
        if other is None:
            return arrays[0]
        raise DataError(
            f"input {spec.name!r} has no batch axis, and prepare gives part 0 and part {other} different values, "
            "which cannot share a batch; use a batch size of 1"
        )
    shapes = [array.shape[:axis] + array.shape[axis + 1 :] for array in arrays]
    other = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
    if other is not None:
        raise DataError(
            f"prepare gives input {spec.name!r} the shape {shapes[0]} in part 0 and {shapes[other]} in part {other}, "
            "which cannot share a batch; bring them to one shape, or use a batch size of 1"
        )
    return np.concatenate(arrays, axis=axis)


def _axes(spec: TensorSpec) -> Iterator[tuple[int, int | None, str | None]]:
    """Yield, for each axis of one sample of an input, its index, declared size and symbol."""
    kept = [axis for axis in range(len(spec.shape)) if axis != spec.batch_axis]
    symbols = spec.symbols or (None,) * len(spec.shape)
    for place, axis in enumerate(kept):
        yield place, spec.shape[axis], symbols[axis]


def _longest(columns: Sequence[list[Array] | list[list[Array]]], model: Model) -> dict[str, int]:
    """Return the length of the longest sample along every symbol, over all inputs with lists."""
    longest: dict[str, int] = {}
    for column, spec in zip(columns, model.inputs, strict=True):
        if isinstance(column[0], np.ndarray):
            continue
        _refuse_other_ranks(column[0], spec)
        for place, _, symbol in _axes(spec):
            if symbol is not None:
                longest[symbol] = max(longest.get(symbol, 0), *(sample.shape[place] for sample in column[0]))
    return longest


def _refuse_other_ranks(samples: Sequence[Array], spec: TensorSpec) -> None:
    rank = len(spec.shape) - (spec.batch_axis is not None)
    if not samples:
        raise InputError(f"prepare gives input {spec.name!r} an empty list; give one array per sample")
    for index, sample in enumerate(samples):
        if sample.ndim != rank:
            raise InputError(
                f"prepare gives input {spec.name!r} sample {index} of shape {sample.shape}; a sample of it has {rank} "
                "dimensions, without the batch"
            )


def _sizes(spec: TensorSpec, longest: Mapping[str, int], model: Model) -> list[int | None]:
    """Return the padded size of each axis of a sample; ``None``: that of the longest sample of this input."""
    return [
        size if size is not None else _planned(longest.get(symbol or ""), symbol, model)
        for _, size, symbol in _axes(spec)
    ]


def _planned(longest: int | None, symbol: str | None, model: Model) -> int | None:
    """Return the smallest planned size that fits the longest sample; its own length if any size is possible."""
    sizes = model.dims.get(symbol or "", ())
    if longest is None or not sizes:
        return longest
    if longest > sizes[-1]:
        listed = ",".join(map(str, sizes))
        raise DataError(
            f"a sample has length {longest} along {symbol!r}, and the largest size {model.ckpt.name} has a plan for is "
            f"{sizes[-1]} (of {listed}); add a size with --dim {symbol}={listed},{longest}, or truncate the sample"
        )
    return sizes[bisect_left(sizes, longest)]


def _stacked(samples: Sequence[Array], spec: TensorSpec, sizes: Sequence[int | None], value: float) -> Array:
    """Return the samples padded to these sizes and stacked along the batch axis."""
    shape = [max(s.shape[place] for s in samples) if n is None else n for place, n in enumerate(sizes)]
    result = np.full((len(samples), *shape), value, spec.dtype)
    for row, sample in zip(result, samples, strict=True):
        _refuse_longer(sample, shape, spec)
        row[tuple(slice(size) for size in sample.shape)] = _cast(sample, spec)
    if spec.batch_axis is None:
        if len(samples) > 1:
            raise DataError(
                f"input {spec.name!r} has no batch axis, so {len(samples)} samples cannot share a call; "
                "use a batch size of 1"
            )
        return result[0] if len(samples) == 1 else result
    return np.ascontiguousarray(np.moveaxis(result, 0, spec.batch_axis))


def _refuse_longer(sample: Array, shape: Sequence[int], spec: TensorSpec) -> None:
    for place, size, symbol in _axes(spec):
        if sample.shape[place] > shape[place]:
            what = f"axis {place}" if symbol is None else repr(symbol)
            raise DataError(
                f"a sample of input {spec.name!r} has length {sample.shape[place]} along {what}, where the model is "
                f"fixed to {size}; truncate the sample, or export the model with that dimension dynamic"
            )


def _cast(sample: Array, spec: TensorSpec) -> Array:
    """Convert a sample to the input's dtype, if it has the same kind and its values fit, or the cast is safe."""
    if sample.dtype == spec.dtype:
        return sample
    same_kind = sample.dtype.kind == spec.dtype.kind
    if not same_kind and not np.can_cast(sample.dtype, spec.dtype):
        raise InputError(
            f"prepare gives input {spec.name!r} {sample.dtype}, the model takes {spec.dtype}; "
            f"use array.astype({numpy_name(spec.dtype)})"
        )
    with np.errstate(over="ignore"):  # values beyond the range of a narrower float become inf, as in an engine's call
        cast = sample.astype(spec.dtype)
    if spec.dtype.kind in "iu" and not np.array_equal(cast, sample):
        raise InputError(f"prepare gives input {spec.name!r} values beyond {spec.dtype}; give smaller ones")
    return cast


def joined(parts: Sequence[Prepared]) -> list[Array]:
    """Concatenate parts along the first axis of every input, without a model. Raises DataError if shapes differ."""
    if len(parts) == 1:
        return list(parts[0].arrays)  # type: ignore[arg-type]
    shapes = [[np.shape(array)[1:] for array in part.arrays] for part in parts]
    other = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
    if other is not None:
        raise DataError(
            f"preprocess gives sample 0 of a batch the shapes {shapes[0]} and sample {other} {shapes[other]}, which "
            "cannot share a batch; resize them to one shape, or use a batch size of 1"
        )
    return [np.concatenate(column) for column in zip(*(part.arrays for part in parts), strict=True)]
