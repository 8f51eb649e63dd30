"""From samples to what an engine takes, one batch at a time; no sample is lost to a bad one beside it."""

from __future__ import annotations

import inspect
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, TecoInferError, Timeline, recording
from utils.datasets.base import Batch, pick
from utils.pipeline.nan import nan_names
from utils.pipeline.returned import prepared
from utils.tasks.base import Options, Task
from utils.tasks.model import Model
from utils.tasks.prepared import NoAnswer, Prepared, Shards

# What a preprocess function may raise for one bad sample; anything else is a bug in it and ends the run, as does a
# ConfigError: no sample is to blame for that.
SAMPLE_ERRORS = (TecoInferError, OSError, ValueError)


@dataclass(frozen=True, slots=True)
class Failure:
    """A sample that could not be run, and why."""

    name: str
    reason: str

    @property
    def text(self) -> str:
        """Both as a sentence; many a reason begins with the sample's name itself."""
        rest = self.reason.removeprefix(self.name)
        named = len(rest) < len(self.reason) and rest[:1] in (":", " ", ",")
        return self.reason if named else f"{self.name}: {self.reason}"


def nothing_evaluated(failures: Sequence[Failure]) -> DataError:
    """Return the error of a run in which no sample made it, with the first reasons."""
    reasons = "; ".join(failure.text for failure in failures[:3])
    return DataError(f"no sample could be evaluated{': ' + reasons if reasons else '; check the data set'}")


class Ready(NamedTuple):
    """A preprocessed batch: the samples that made it, their arrays (one per input), and those that did not.

    ``whole`` is the batch as it came, and ``good`` the positions in it of the samples that made it (``None``: all).
    ``contexts`` has what preprocessing keeps of each sample that made it, if it keeps anything.
    """

    batch: Batch
    arrays: list[Array] | Shards | None
    failures: list[Failure]
    nan_inputs: list[str]
    whole: Batch
    good: tuple[int, ...] | None
    contexts: list[Any] | None = None


class Buffers:
    """Batch arrays that a preprocess function with an ``out`` keyword writes into again, instead of allocating."""

    def __init__(self) -> None:
        self._free: deque[Array] = deque(maxlen=64)

    def take(self, count: int) -> Array | None:
        """Return room for ``count`` samples; ``None`` where none is free."""
        try:
            array = self._free.popleft()
        except IndexError:
            return None
        return array[:count] if len(array) >= count else None

    def put(self, arrays: list[Array] | Shards | None, outputs: Any) -> None:
        """Take back the input of a call that is over, unless one of its outputs lives in the same memory."""
        if arrays is None or len(arrays) != 1 or isinstance(arrays, Shards):
            return
        results = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        if all(isinstance(r, np.ndarray) and not np.may_share_memory(r, arrays[0]) for r in results):
            base = arrays[0].base
            self._free.append(base if isinstance(base, np.ndarray) else arrays[0])


def prepare(
    batch: Batch, front: Front, timeline: Timeline, buffers: Buffers | None = None, *, detailed: bool = True
) -> Ready:
    """Preprocess one batch here and now, into one of ``buffers`` where the front takes ``out``."""
    start, whole = time.perf_counter(), batch
    good: tuple[int, ...] | None = None
    room = buffers.take(len(batch.names)) if buffers is not None else None
    try:
        with recording(timeline) if detailed else nullcontext():
            part = front.prepare(batch.samples, room)
            arrays: list[Array] | Shards | None = front.collate([part], batch.names)
        contexts, failures = part.contexts, list[Failure]()
    except ConfigError:
        raise
    except SAMPLE_ERRORS:
        batch, arrays, contexts, failures, good = one_by_one(batch, front)
    nan_inputs = front.nan_names(arrays, batch.names)
    timeline.add("preprocess", start, time.perf_counter(), len(batch.names))
    return Ready(batch, arrays, failures, nan_inputs, whole, good, contexts)


def one_by_one(
    batch: Batch, front: Front
) -> tuple[Batch, list[Array] | Shards | None, list[Any] | None, list[Failure], tuple[int, ...] | None]:
    """Preprocess sample by sample; return those that made it, their arrays, contexts, failures, and positions."""
    good: list[int] = []
    parts: list[Prepared] = []
    failures = []
    for i, sample in enumerate(batch.samples):
        try:
            part = front.prepare([sample])
            front.collate([part], batch.names[i : i + 1])  # one that fits no size of the engine is left out here
            parts.append(part)
            good.append(i)
        except ConfigError:
            raise
        except SAMPLE_ERRORS as error:
            failures.append(Failure(batch.names[i], str(error)))
    kept = subset(batch, good)
    all_good = len(good) == len(batch.names)
    arrays = front.collate(parts, kept.names) if parts else None
    return kept, arrays, _contexts(parts), failures, None if all_good else tuple(good)


def _contexts(parts: Sequence[Prepared]) -> list[Any] | None:
    kept = [part.contexts for part in parts if part.contexts is not None]
    return [context for contexts in kept for context in contexts] if kept else None


def subset(batch: Batch, good: Sequence[int]) -> Batch:
    """Return the samples at the positions ``good``."""
    return Batch(*(pick(column, good) for column in batch))


def without_unanswered(ready: Ready, predictions: Any) -> tuple[Ready, Any]:
    """Return a batch and its predictions without the samples that have no answer, which are among the failures."""
    if not isinstance(predictions, (list, tuple)) or not any(isinstance(one, NoAnswer) for one in predictions):
        return ready, predictions
    kept = [place for place, one in enumerate(predictions) if not isinstance(one, NoAnswer)]
    names, whole = ready.batch.names, ready.good or tuple(range(len(ready.whole.names)))
    lost = [Failure(names[i], one.reason) for i, one in enumerate(predictions) if isinstance(one, NoAnswer)]
    left = ready._replace(
        batch=subset(ready.batch, kept),
        failures=[*ready.failures, *lost],
        nan_inputs=[name for name in ready.nan_inputs if name not in {failure.name for failure in lost}],
        good=tuple(whole[place] for place in kept),
        contexts=pick(ready.contexts, kept),
    )
    return left, [predictions[place] for place in kept]


# -------------------------------------------------------------------------------------- a plain function, or a task's


Preprocess = Callable[[Any], "Array | Sequence[Array]"]
"""Samples to one array, or to a list of arrays; the simple form of a front."""


class Front(ABC):
    """Prepares samples and puts the parts of a batch together.

    Attributes:
        name: of the function that prepares, for messages.
        takes_out: whether it can write into an array that it is given.
        axes: for each input the axis of its samples; ``None``: the first.
    """

    name: str
    takes_out: bool
    axes: Sequence[int | None] | None = None

    @abstractmethod
    def prepare(self, samples: Sequence[Any], out: Array | None = None) -> Prepared:
        """Prepare some samples, into ``out`` where one is given."""

    @abstractmethod
    def collate(self, parts: Sequence[Prepared], names: Sequence[str]) -> list[Array] | Shards:
        """Put parts together; ``names`` are of the samples in them."""

    def nan_names(self, arrays: list[Array] | Shards | None, names: list[str]) -> list[str]:
        """Return the names of the samples whose input holds NaN."""
        return nan_names(arrays, names, self.axes)


class PlainFront(Front):
    """A function from samples to arrays, with the batch first in each."""

    def __init__(self, preprocess: Preprocess) -> None:
        self._preprocess = preprocess
        self.name, self.takes_out = _name(preprocess), _takes_out(preprocess)

    def prepare(self, samples: Sequence[Any], out: Array | None = None) -> Prepared:
        """Call the function."""
        done = self._preprocess(samples) if out is None else self._preprocess(samples, out=out)  # type: ignore[call-arg]
        return Prepared([done] if isinstance(done, np.ndarray) else list(done))

    def collate(self, parts: Sequence[Prepared], names: Sequence[str]) -> list[Array]:
        """Join the arrays of every input.

        Raises:
            DataError: they do not go together: every one is right by itself, so no single sample is to blame.
        """
        if len(parts) == 1:
            return list(parts[0].arrays)  # type: ignore[arg-type]
        shapes = [[np.shape(array)[1:] for array in part.arrays] for part in parts]
        other = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
        if other is not None:
            raise DataError(
                f"preprocess gives {names[0]} the shapes {shapes[0]} and {names[other]} {shapes[other]}, which cannot "
                "share a batch; resize them to one shape, or use a batch size of 1"
            )
        return [np.concatenate(column) for column in zip(*(part.arrays for part in parts), strict=True)]


class TaskFront(Front):
    """What a task does with samples before a model with these options takes them."""

    def __init__(self, task: Task, model: Model, options: Options) -> None:
        # Not the task itself: its other functions need not travel.
        self._prepare, self._collate, self._model, self._options = task.prepare, task.collate, model, options
        self._task = task.name
        self.name, self.takes_out = _name(task.prepare), _takes_out(task.prepare)
        self.axes = [tensor.batch_axis for tensor in model.inputs] if not model.named else None
        self._takes_nan = task.takes_nan

    def prepare(self, samples: Sequence[Any], out: Array | None = None) -> Prepared:
        """Call the task's ``prepare``."""
        room = {} if out is None else {"out": out}
        done = self._prepare(samples, self._model, self._options, **room)
        return prepared(done, self._prepare, self._task, len(samples))

    def collate(self, parts: Sequence[Prepared], names: Sequence[str]) -> list[Array] | Shards:
        """Call the task's ``collate``."""
        return self._collate(parts, self._model)

    def nan_names(self, arrays: list[Array] | Shards | None, names: list[str]) -> list[str]:
        """Return the names of the samples whose input holds NaN, where the task does not mean it."""
        return [] if self._takes_nan else super().nan_names(arrays, names)


def as_front(preprocess: Preprocess | Front) -> Front:
    """Wrap a plain function, once."""
    return preprocess if isinstance(preprocess, Front) else PlainFront(preprocess)


def _takes_out(function: Callable[..., Any]) -> bool:
    """Say whether a function can write into an array that it is given."""
    try:
        return "out" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a callable without a signature
        return False


def _name(function: Callable[..., Any]) -> str:
    inner = function.func if isinstance(function, partial) else function
    return str(getattr(inner, "__qualname__", type(inner).__qualname__))
