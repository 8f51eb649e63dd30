"""Split a call over fixed-size engine instances: slice, pad, gather, along each tensor's own batch axis.

An engine instance computes exactly ``size`` samples. A call of any number of samples becomes shards of ``size`` in
order; the last one is filled by repeating a real sample (always valid data, where zeros might not be) and its results
are trimmed. An output without a batch axis cannot be put together from shards: it is returned once where all shards
agree on it, and is an error where they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from engine.signature import Array, TensorSpec, batch_of
from tecoinfer_modelzoo.errors import EngineError

Run = Callable[[list[Array]], list[Array]]
MapShards = Callable[[list[list[Array]]], Iterable[list[Array]]]


def split(inputs: Sequence[Array], axes: Sequence[int | None], total: int, size: int) -> list[list[Array]]:
    """Cut a call into shards of exactly ``size`` samples; inputs without a batch are shared, not copied.

    A full shard is a view of the caller's arrays; only the last, if short, is copied to be padded.

    Args:
        inputs: the call's arrays. axes: the batch axis of each, or ``None``.
        total: samples of the call. size: samples of a shard.
    """
    return [
        [_rows(array, axis, start, size) for array, axis in zip(inputs, axes, strict=True)]
        for start in range(0, total, size)
    ]


def _rows(array: Array, axis: int | None, start: int, size: int) -> Array:
    if axis is None:
        return array
    part = array[along(axis, start, start + size)]
    missing = size - part.shape[axis]
    if not missing:
        return part
    return np.concatenate([part, np.repeat(part[along(axis, -1, None)], missing, axis)], axis)


def along(axis: int, start: int | None, stop: int | None) -> tuple[slice, ...]:
    """Return the index that takes a range of one axis and all of the others."""
    return (*(slice(None),) * axis, slice(start, stop))


def gather(results: Sequence[Sequence[Array]], outputs: Sequence[TensorSpec], total: int, size: int) -> list[Array]:
    """Put the shards' outputs together in order and trim the padding.

    Raises:
        EngineError: an output has no batch dimension and the shards disagree on its value.
    """
    return [_gather_one([result[i] for result in results], spec, total, size) for i, spec in enumerate(outputs)]


def _gather_one(parts: list[Array], output: TensorSpec, total: int, size: int) -> Array:
    axis = output.batch_axis
    if axis is not None and all(has_batch(part, axis, size) for part in parts):
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts, axis)
        return whole[along(axis, None, total)]
    if all(np.array_equal(part, parts[0], equal_nan=part.dtype.kind == "f") for part in parts[1:]):
        return parts[0]
    shapes = ", ".join(sorted({str(part.shape) for part in parts}))
    raise EngineError(
        f"output {output.name!r} has no batch dimension of {size} (shapes {shapes}) and its value differs between "
        f"shards; export it per sample, or call the engine with exactly {size} samples"
    )


def has_batch(array: Array, axis: int, size: int) -> bool:
    """Say whether an output has ``size`` samples along an axis."""
    return array.ndim > axis and array.shape[axis] == size


def run_sharded(
    run: Run,
    inputs: list[Array],
    specs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    size: int,
    mapper: MapShards | None = None,
    owned: bool = False,
) -> list[Array]:
    """Run a call of any batch on an instance of fixed batch ``size``.

    Args:
        run: computes one shard of ``size`` samples.
        inputs: the call's arrays, in the order of ``specs``.
        specs: the graph's inputs; ``batch_axis`` says which are split, and where.
        outputs: the graph's outputs; one without a ``batch_axis`` is returned once.
        size: samples of one shard.
        mapper: runs all shards at once, such as side by side; ``None`` runs one after another.
        owned: whether what ``run`` and ``mapper`` return lasts: it is not a buffer that the next shard overwrites.
            Without it all results are copied.
    """
    take = list if owned else _copied
    axes = [spec.batch_axis for spec in specs]
    if all(axis is None for axis in axes):
        return run(inputs)
    total = batch_of(inputs, specs)
    shards = split(inputs, axes, total, size)
    results = [take(result) for result in (mapper(shards) if mapper else map(run, shards))]
    if len(shards) == 1 and total < size and not _all_batched(results[0], outputs, size):
        # An output without a batch dimension may depend on the padding, and a single shard has nothing to disagree
        # with: another filling shows whether it does.
        results.append(
            take(run([_other_fill(array, axis, total) for array, axis in zip(shards[0], axes, strict=True)]))
        )
    return gather(results, outputs, total, size)


def _copied(arrays: Sequence[Array]) -> list[Array]:
    return [array.copy() for array in arrays]


def _all_batched(results: Sequence[Array], outputs: Sequence[TensorSpec], size: int) -> bool:
    return all(
        o.batch_axis is not None and has_batch(part, o.batch_axis, size)
        for part, o in zip(results, outputs, strict=True)
    )


def _other_fill(array: Array, axis: int | None, total: int) -> Array:
    """Return a padded shard with another padding: zeros, or ones where the padding already is zeros."""
    if axis is None:
        return array
    filled = array.copy()
    filled[along(axis, total, None)] = 0 if array[along(axis, -1, None)].any() else 1
    return filled
