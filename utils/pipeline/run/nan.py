"""Find the samples of a batch with NaN in inputs, outputs or predictions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import Array, Engine
from utils.tasks.prepared import Shards

if TYPE_CHECKING:
    from concurrent.futures import Future

    from engine import TensorSpec

Flags = np.ndarray[Any, np.dtype[np.bool_]]

SHOWN = 3
"""Largest number of samples listed in a line about NaN."""

_SIGN, _INFINITY = 0x8000, 0x7C00
"""Bits of a float16: its sign, and infinity; those above infinity are NaN."""


def nan_names(
    arrays: list[Array] | Shards | None, names: list[str], axes: Sequence[int | None] | None = None
) -> list[str]:
    """Return the names of samples whose input holds NaN.

    Args:
        arrays: one per input. :class:`Shards` have no rows by sample: the first and the last name of the batch are
            returned as one text.
        names: of the samples. axes: axis of the samples in each input; default: axis 0.
    """
    if isinstance(arrays, Shards):
        if not any(_any_nan(array) for shard in arrays for array in shard if array.dtype.kind == "f"):
            return []
        return [names[0] if len(names) == 1 else f"a sample from {names[0]} to {names[-1]}"]
    bad = np.zeros(len(names), bool)
    for i, array in enumerate(arrays or ()):
        rows = _float_rows(array, axes[i] if axes is not None and i < len(axes) else 0, len(names))
        if rows is not None and _any_nan(array):
            bad |= np.isnan(rows).any(axis=1)
    return named(bad, names)


def _any_above(array: Array, bits: int) -> bool:
    """Return whether the bits of a float16 without its sign are above ``bits``, without arrays of the result's size.

    NumPy converts each float16 before it tests it, which takes 100 times as long.
    """
    signed, unsigned = array.view(np.int16), array.view(np.uint16)
    return bool(signed.max() > bits) or bool(unsigned.max() > bits + _SIGN)


def _any_nan(array: Array) -> bool:
    """Return whether an array of floats holds NaN: faster than ``isnan``, which allocates its result."""
    if array.size == 0:
        return False
    if array.dtype == np.float16:
        return _any_above(array, _INFINITY)
    return bool(np.isnan(np.min(array) if array.dtype.char in "fd" else array).any())  # the minimum with NaN is NaN


def _all_finite(array: Array) -> bool:
    """Return whether an array of floats holds neither NaN nor infinities."""
    if array.dtype == np.float16:
        return array.size == 0 or not _any_above(array, _INFINITY - 1)
    if array.dtype.char in "fd" and array.size:
        return bool(np.isfinite([np.min(array), np.max(array)]).all())
    return bool(np.isfinite(array).all())


def named(flags: Flags, names: Sequence[str]) -> list[str]:
    """Return the names of the flagged samples."""
    return [name for name, flag in zip(names, flags.tolist(), strict=True) if flag]


def _float_rows(array: Array, axis: int | None, count: int) -> Array | None:
    """Return one row of floats per sample; ``None`` if the array is not of floats, or has no axis of samples."""
    if axis is None or not _is_float(array) or array.ndim <= axis or array.shape[axis] != count:
        return None
    rows = array if axis == 0 else np.moveaxis(array, axis, 0)
    return rows.reshape(count, -1)


def _is_float(array: Array) -> bool:
    return array.dtype.kind in "fc" or "float" in array.dtype.name  # bfloat16 has another kind


# ------------------------------------------------------------------------------------------------------------- outputs


@dataclass(slots=True, eq=False, repr=False)
class Flaws:
    """Samples with outputs that are not finite, one flag per sample: ``nan``: outputs hold NaN; ``infinite``: they hold
    infinities, which may be intended (a mask, a score of probability 0).
    """

    nan: Flags
    infinite: Flags

    @classmethod
    def none(cls, count: int) -> Flaws:
        """Return all flags cleared, for ``count`` samples."""
        return cls(np.zeros(count, bool), np.zeros(count, bool))

    def add(self, outputs: Any, axes: Sequence[int | None] | None = None) -> None:
        """Flag samples by the outputs of an engine's call, or of a task's ``infer``.

        An array without a row per sample (no batch axis, another number of rows, packed samples of an SPA) flags all
        samples of the batch.

        Args:
            outputs: arrays, and lists, tuples and mappings of arrays; other objects are ignored.
            axes: axis of the samples in each output (``None``: no such axis); default: axis 0.
        """
        found = [outputs] if isinstance(outputs, np.ndarray) else outputs
        if axes is not None:
            fits = isinstance(found, (list, tuple)) and len(found) == len(axes)
            for i, output in enumerate(found):
                for array in _arrays(output):
                    self._mark(array, axes[i] if fits and array is output else None)
        elif _one_per_sample(found, len(self.nan)):
            for i, output in enumerate(found):
                for array in _arrays(output):
                    self._flag(array, i)
        else:
            for array in _arrays(found):
                self._mark(array, 0)

    def _mark(self, array: Array, axis: int | None) -> None:
        if not _is_float(array) or _all_finite(array):
            return
        rows = _float_rows(array, axis, len(self.nan))
        if rows is None:
            self._flag(array, slice(None))
            return
        self.nan |= np.isnan(rows).any(axis=1)
        self.infinite |= np.isinf(rows).any(axis=1)

    def _flag(self, array: Array, where: slice | int) -> None:
        if _is_float(array):
            self.nan[where] |= np.isnan(array).any()
            self.infinite[where] |= np.isinf(array).any()

    def lost(self, predictions: Any) -> Flags:
        """Return the samples without a valid answer: NaN in the outputs, or infinities that gave a NaN prediction.

        ``predictions`` has one entry per sample, as returned by a task's ``decode``.
        """
        if not self.infinite.any():
            return self.nan
        made = [
            infinite and any(_is_float(array) and np.isnan(array).any() for array in _arrays(predictions[i]))
            for i, infinite in enumerate(self.infinite)
        ]
        lost: Flags = self.nan | np.array(made, bool)
        return lost


def _one_per_sample(outputs: Any, count: int) -> bool:
    """Return whether outputs are a list with one entry per sample, without arrays of one row per sample."""
    if not isinstance(outputs, (list, tuple)) or len(outputs) != count:
        return False
    return not any(array.ndim and len(array) == count for array in _arrays(outputs))


def _shows_nan(outputs: Any, count: int) -> bool:
    """Return whether each sample's entry of the outputs is floats, or a tuple that begins with floats."""
    if isinstance(outputs, np.ndarray):
        return _is_float(outputs) and outputs.ndim > 0 and len(outputs) == count
    if not _one_per_sample(outputs, count):
        return False
    firsts = [one[0] if isinstance(one, tuple) and one else one for one in outputs]
    return all(isinstance(one, (np.ndarray, np.generic, float)) and _is_float(np.asarray(one)) for one in firsts)


def _arrays(value: Any) -> Iterator[Array]:
    """Yield the arrays, and floats as arrays, in nested lists, tuples and mappings."""
    if isinstance(value, (np.ndarray, np.generic, float)):
        yield np.asarray(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _arrays(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _arrays(item)


# --------------------------------------------------------------------------------------------------- a task's own calls


class _Calls(threading.local):
    """Results of the calls of this thread's batch: ``rows``: flaws by row (``None``: no batch in this thread);
    ``matching``: every call so far had one row per sample; ``queued``: asynchronous calls, with the outputs' tensors.
    """

    rows: Flaws | None = None
    matching: bool = True
    queued: list[tuple[Future[Any], Sequence[TensorSpec]]]


class Watch:
    """Looks for NaN in the calls of a task with its own ``infer``, which may hide it, for example by an argmax.

    A sample whose entry of the outputs holds NaN is always flagged. If all entries are floats, or tuples that begin
    with floats, only these count, as rows of calls may be parts of samples, or padding. Otherwise, if every call has
    one row per sample, samples with NaN in their rows are flagged; if calls have other rows and no entry shows the NaN,
    all samples are flagged.

    Attributes:
        engines: to be called in place of the task's engines.
    """

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self._calls = _Calls()
        self._at_set_up = False
        self.engines = {name: _Watched(engine, self._note, self._queue) for name, engine in engines.items()}

    def begin(self, count: int) -> None:
        """Begin a batch of ``count`` samples in this thread."""
        calls = self._calls
        calls.rows, calls.matching, calls.queued = Flaws.none(count), True, []

    def end(self, flaws: Flaws, outputs: Any) -> None:
        """End the batch, and add the flaws of its calls to those of its outputs."""
        calls = self._calls
        rows = calls.rows or Flaws.none(len(flaws.nan))
        for future, tensors in calls.queued:
            if future.done() and not future.cancelled() and future.exception() is None:
                self._note(future.result(), tensors)
        calls.rows = None
        if _shows_nan(outputs, len(flaws.nan)):
            return
        flaws.infinite |= rows.infinite
        if self._at_set_up:
            flaws.nan[:] = True
        elif calls.matching or not flaws.nan.any():
            flaws.nan |= rows.nan

    def _note(self, results: Any, outputs: Sequence[TensorSpec]) -> None:
        calls, axes = self._calls, [tensor.batch_axis for tensor in outputs]
        if calls.rows is None:
            found = Flaws.none(1)
            found.add(results, axes)
            self._at_set_up = self._at_set_up or bool(found.nan[0])
            return
        calls.rows.add(results, axes)
        count = len(calls.rows.nan)
        arrays = [results] if isinstance(results, np.ndarray) else results
        for array, axis in zip(arrays, axes, strict=False):
            calls.matching &= axis is not None and isinstance(array, np.ndarray) and array.shape[axis] == count

    def _queue(self, future: Future[Any], outputs: Sequence[TensorSpec]) -> None:
        if self._calls.rows is not None:
            self._calls.queued.append((future, outputs))


class _Watched:
    """An engine whose results are checked."""

    def __init__(self, engine: Engine, note: Callable[..., None], queue: Callable[..., None]) -> None:
        self._engine, self._note, self._queue = engine, note, queue

    def __call__(self, inputs: Array | Sequence[Array]) -> Array | list[Array]:
        """Run the model."""
        results = self._engine(inputs)
        self._note(results, self._engine.outputs)
        return results

    def call_shards(self, shards: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """Run the model on the arrays of each SPA."""
        results = self._engine.call_shards(shards)
        self._note(results, self._engine.outputs)
        return results

    def run_async(self, inputs: Array | Sequence[Array]) -> Future[Array | list[Array]]:
        """Run the model asynchronously."""
        future = self._engine.run_async(inputs)
        self._queue(future, self._engine.outputs)
        return future

    def __getattr__(self, name: str) -> Any:
        """Return the engine's attribute."""
        return getattr(self._engine, name)


# --------------------------------------------------------------------------------------------------------------- lines


def nan_line(where: str, names: Sequence[str], total: int, what: str) -> str:
    """Return the line about samples with NaN ``where``, such as ``input``; ``what``: consequence and advice."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{len(names)} of {total} samples have NaN in {where} ({', '.join(names[:SHOWN])}{more}): {what}"


def input_line(names: Sequence[str], total: int) -> str:
    """Return the line about NaN in inputs."""
    return nan_line("their input", names, total, "look at the data and the preprocessing")


def output_line(names: Sequence[str], total: int, inputs: Sequence[str], engine: str) -> str:
    """Return the line about NaN in outputs; ``inputs``: the samples with NaN in their input; ``engine``: described."""
    what = "they have no answer, and most metrics count them as wrong; "
    if set(names) <= set(inputs):
        return nan_line("the model's output", names, total, f"{what}it comes from NaN in their input")
    narrow = any(dtype in engine for dtype in ("float16", "int8"))  # bfloat16 too
    fix = "`teco overflow` names the node" + (", and --dtype float32 may avoid it" if narrow else "")
    return nan_line("the model's output", names, total, what + fix)
