"""From samples to what an engine takes, one batch at a time; no sample is lost to a bad one beside it."""

from __future__ import annotations

import inspect
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, Engine, TecoInferError, Timeline, recording
from utils.datasets.base import Batch, Dataset, pick
from utils.metrics.base import Metric
from utils.pipeline.run.nan import nan_names
from utils.pipeline.run.returned import prepared
from utils.tasks.base import Options, Rendering, Task
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


class PreparedBatch(NamedTuple):
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
    batch: Batch,
    preprocessor: Preprocessor,
    timeline: Timeline,
    buffers: Buffers | None = None,
    *,
    detailed: bool = True,
) -> PreparedBatch:
    """Preprocess one batch here and now, into one of ``buffers`` where it takes ``out``."""
    start, whole = time.perf_counter(), batch
    good: tuple[int, ...] | None = None
    room = buffers.take(len(batch.names)) if buffers is not None else None
    try:
        with recording(timeline) if detailed else nullcontext():
            part = preprocessor.prepare(batch.samples, room)
            arrays: list[Array] | Shards | None = preprocessor.collate([part])
        contexts, failures = part.contexts, list[Failure]()
    except ConfigError:
        raise
    except SAMPLE_ERRORS:
        batch, arrays, contexts, failures, good = one_by_one(batch, preprocessor)
    nan_inputs = preprocessor.nan_names(arrays, batch.names)
    timeline.add("preprocess", start, time.perf_counter(), len(batch.names))
    return PreparedBatch(batch, arrays, failures, nan_inputs, whole, good, contexts)


def one_by_one(
    batch: Batch, preprocessor: Preprocessor
) -> tuple[Batch, list[Array] | Shards | None, list[Any] | None, list[Failure], tuple[int, ...] | None]:
    """Preprocess sample by sample; return those that made it, their arrays, contexts, failures, and positions."""
    good: list[int] = []
    parts: list[Prepared] = []
    failures = []
    for i, sample in enumerate(batch.samples):
        try:
            part = preprocessor.prepare([sample])
            preprocessor.collate([part])  # one that fits no size of the engine is left out here
            parts.append(part)
            good.append(i)
        except ConfigError:
            raise
        except SAMPLE_ERRORS as error:
            failures.append(Failure(batch.names[i], str(error)))
    kept = subset(batch, good)
    all_good = len(good) == len(batch.names)
    arrays = preprocessor.collate(parts) if parts else None
    return kept, arrays, _contexts(parts), failures, None if all_good else tuple(good)


def _contexts(parts: Sequence[Prepared]) -> list[Any] | None:
    kept = [part.contexts for part in parts if part.contexts is not None]
    return [context for contexts in kept for context in contexts] if kept else None


def subset(batch: Batch, good: Sequence[int]) -> Batch:
    """Return the samples at the positions ``good``."""
    return Batch(*(pick(column, good) for column in batch))


def without_unanswered(ready: PreparedBatch, predictions: Any) -> tuple[PreparedBatch, Any]:
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


class Preprocessor:
    """Makes a task's samples into the arrays of a call; goes to other processes as the task does.

    Attributes:
        name: of the function that prepares, for messages.
        takes_out: whether it can write into an array that it is given.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        function = task.source("prepare")
        self.name, self.takes_out = _name(function), _takes_out(function)

    def prepare(self, samples: Sequence[Any], out: Array | None = None) -> Prepared:
        """Prepare some samples, into ``out`` where one is given."""
        room = {} if out is None else {"out": out}
        done = self.task.prepare(samples, **room)
        return prepared(done, self.task.source("prepare"), self.task.name, len(samples))

    def collate(self, parts: Sequence[Prepared]) -> list[Array] | Shards:
        """Put parts together as the arrays of a call."""
        return self.task.collate(parts)

    def nan_names(self, arrays: list[Array] | Shards | None, names: list[str]) -> list[str]:
        """Return the names of the samples whose input holds NaN, where the task does not mean it."""
        if self.task.takes_nan:
            return []
        model = getattr(self.task, "model", None)
        axes = None if model is None or model.named else [tensor.batch_axis for tensor in model.inputs]
        return nan_names(arrays, names, axes)


class FunctionTask(Task):
    """Plain functions, and an engine or any callable from arrays to arrays, as a task without options.

    Args:
        engine: computes; from arrays to an array or a list of arrays.
        preprocess: samples to one array, or to a list of arrays, with the batch first in each.
        postprocess: outputs to predictions.
    """

    name, domain = "", ""
    data_help = "class folders, a label file, or an .npz with labels"

    def __init__(
        self,
        engine: Callable[[Any], Any] | None,
        preprocess: Callable[..., Any],
        postprocess: Callable[[Any], Any] | None,
    ) -> None:
        super().__init__(Options())
        self._engine: Any = engine
        self._preprocess, self._postprocess = preprocess, postprocess
        self.describes = type(engine).__name__

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Plain functions are given batches."""
        raise NotImplementedError

    def prepare(self, samples: Any, **out: Any) -> Prepared:
        """Call the function."""
        done = self._preprocess(samples, **out)
        return Prepared([done] if not isinstance(done, (list, tuple)) else list(done))

    def collate(self, parts: Sequence[Prepared]) -> list[Array] | Shards:
        """Join the arrays of every input.

        Raises:
            DataError: they do not go together: every one is right by itself, so no single sample is to blame.
        """
        from utils.tasks.collating import joined

        return joined(parts)

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Any) -> Any:
        """Call what computes."""
        return self._engine(arrays)

    @property
    def one_call(self) -> bool:
        """A batch is one call."""
        return True

    def decode(self, outputs: Any, contexts: Any) -> Any:
        """Call the function."""
        return outputs if self._postprocess is None else self._postprocess(outputs)

    def metric(self, dataset: Dataset) -> Metric:
        """Plain functions are given a metric."""
        raise NotImplementedError

    def show(self, sample: Any, prediction: Any) -> Rendering:
        """Plain functions show nothing."""
        raise NotImplementedError

    def source(self, method: str) -> Callable[..., Any]:
        """Return the function itself."""
        return {"prepare": self._preprocess, "decode": self._postprocess}.get(method) or super().source(method)

    def __getstate__(self) -> dict[str, Any]:
        """Leave the engine behind: another process only prepares."""
        return {**super().__getstate__(), "_engine": None, "_postprocess": None}


def as_preprocessor(preprocess: Callable[..., Any] | Preprocessor) -> Preprocessor:
    """Wrap a plain function from samples to arrays, once."""
    if isinstance(preprocess, Preprocessor):
        return preprocess
    return Preprocessor(FunctionTask(None, preprocess, None))


def _takes_out(function: Callable[..., Any]) -> bool:
    """Say whether a function can write into an array that it is given."""
    try:
        return "out" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a callable without a signature
        return False


def _name(function: Callable[..., Any]) -> str:
    inner = function.func if isinstance(function, partial) else function
    return str(getattr(inner, "__qualname__", type(inner).__qualname__))
