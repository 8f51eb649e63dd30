"""Split a call over fixed-size engine instances: slice, pad, gather.

An engine instance computes exactly ``size`` rows. A call of any number of samples becomes shards of ``size`` rows in
order; the last one is filled by repeating a real row (always valid data, where zeros might not be) and its results are
trimmed. An output whose first dimension is not the batch cannot be put together from shards: it is returned once where
all shards agree on it, and is an error where they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from engine.errors import EngineError
from engine.signature import Array, TensorSpec, batch_of

Run = Callable[[list[Array]], list[Array]]
MapShards = Callable[[list[list[Array]]], Iterable[list[Array]]]


def split(inputs: Sequence[Array], batched: Sequence[bool], total: int, size: int) -> list[list[Array]]:
    """Cut a call into shards of exactly ``size`` rows; unbatched inputs are shared, not copied.

    A full shard is a view of the caller's arrays; only the last, if short, is copied to be padded.
    """
    return [
        [_rows(array, start, size) if flag else array for array, flag in zip(inputs, batched, strict=True)]
        for start in range(0, total, size)
    ]


def _rows(array: Array, start: int, size: int) -> Array:
    part = array[start : start + size]
    return part if len(part) == size else np.concatenate([part, np.repeat(part[-1:], size - len(part), axis=0)])


def gather(results: Sequence[Sequence[Array]], outputs: Sequence[TensorSpec], total: int, size: int) -> list[Array]:
    """Put the shards' outputs together in order and trim the padding.

    Raises:
        EngineError: an output has no batch dimension and the shards disagree on its value.
    """
    return [_gather_one([result[i] for result in results], spec, total, size) for i, spec in enumerate(outputs)]


def _gather_one(parts: list[Array], output: TensorSpec, total: int, size: int) -> Array:
    if output.batched and all(part.ndim and part.shape[0] == size for part in parts):
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return whole[:total]
    if all(np.array_equal(part, parts[0], equal_nan=part.dtype.kind == "f") for part in parts[1:]):
        return parts[0]
    shapes = ", ".join(sorted({str(part.shape) for part in parts}))
    raise EngineError(
        f"output {output.name!r} has no batch dimension of {size} (shapes {shapes}) and its value differs between "
        f"shards; export it per sample, or call the engine with exactly {size} samples"
    )


def run_sharded(
    run: Run,
    inputs: list[Array],
    specs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    size: int,
    mapper: MapShards | None = None,
) -> list[Array]:
    """Run a call of any batch on an instance of fixed batch ``size``.

    Args:
        run: computes one shard of ``size`` rows.
        inputs: the call's arrays, in the order of ``specs``.
        specs: the graph's inputs; ``batched`` says which are split.
        outputs: the graph's outputs; one that is not ``batched`` is returned once.
        size: rows of one shard.
        mapper: computes all shards and yields their results in order (default: one after another with ``run``).
    """
    total = batch_of(inputs, specs)
    flags = [spec.batched for spec in specs]
    if not any(flags):
        return run(inputs)
    shards = split(inputs, flags, total, size)
    results = list(mapper(shards)) if mapper else [run(shard) for shard in shards]
    if len(shards) == 1 and total < size and not _all_batched(results[0], outputs, size):
        # An output without a batch dimension may depend on the padding, and a single shard has nothing to disagree
        # with: another filling shows whether it does.
        results.append(
            run([_other_fill(array, total) if flag else array for array, flag in zip(shards[0], flags, strict=True)])
        )
    return gather(results, outputs, total, size)


def _all_batched(results: Sequence[Array], outputs: Sequence[TensorSpec], size: int) -> bool:
    return all(o.batched and part.ndim and part.shape[0] == size for part, o in zip(results, outputs, strict=True))


def _other_fill(array: Array, total: int) -> Array:
    """Return a padded shard with another padding: zeros, or ones where the padding already is zeros."""
    filled = array.copy()
    filled[total:] = 0 if array[-1].any() else 1
    return filled
