"""One batch on its way through a task: samples to arrays, arrays to outputs, outputs to predictions.

A sample that cannot be prepared, or that has no answer, is left out of its batch and listed; the others go on. What the
task's methods return is checked here, so that an error names the method and not a line deep inside the loop.
"""

from __future__ import annotations

import inspect
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Sized
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, Engine, EngineError, TecoInferError, Timeline, recording
from tecoinfer_modelzoo.text import reason_of
from utils.datasets.base import Batch, Dataset, pick
from utils.metrics.base import Metric
from utils.pipeline.run.nan import Flaws, Watch, named, nan_names
from utils.stuck import watching
from utils.tasks.base import Task, overrides
from utils.tasks.prepared import NoAnswer, Prepared, Shards

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from utils.pipeline.report.advice import OwnAdvice

# Errors of a preprocess function that one sample may cause. Any other error is a bug in the function and ends the run;
# so does a ConfigError.
SAMPLE_ERRORS = (TecoInferError, OSError, ValueError)

# Errors of decode or metric that NaN in the outputs may have caused.
_NAN_ERRORS = (TecoInferError, ValueError, ArithmeticError, LookupError)

_batch_axis = attrgetter("batch_axis")


@dataclass(frozen=True, slots=True, repr=False)
class Failure:
    """A sample that could not be run, and the reason."""

    name: str
    reason: str

    @property
    def text(self) -> str:
        """Name and reason; a reason that begins with the name is returned alone."""
        rest = self.reason.removeprefix(self.name)
        has_name = len(rest) < len(self.reason) and rest[:1] in (":", " ", ",")
        return self.reason if has_name else f"{self.name}: {self.reason}"


def nothing_evaluated(failures: Sequence[Failure]) -> DataError:
    """Return the error of a run without a single good sample, with the first reasons."""
    reasons = "; ".join(failure.text for failure in failures[:3])
    return DataError(f"no sample could be evaluated{': ' + reasons if reasons else '; check the data set'}")


# ---------------------------------------------------------------------------------------------------- samples to arrays


class PreparedBatch(NamedTuple):
    """A preprocessed batch.

    Attributes:
        batch: the samples that could be prepared.
        arrays: one per input of the model; ``None`` if no sample could be prepared.
        failures: the samples that could not. nan_inputs: names of the samples whose input holds NaN.
        whole: the batch as the data set returned it. good: positions of ``batch`` in ``whole``; ``None``: all of them.
        contexts: what ``prepare`` keeps for ``decode`` and the metric, one object per sample of ``batch``.
    """

    batch: Batch
    arrays: list[Array] | Shards | None
    failures: list[Failure]
    nan_inputs: list[str]
    whole: Batch
    good: tuple[int, ...] | None
    contexts: list[Any] | None = None


class Buffers:
    """Batch arrays that a preprocess function with an ``out`` keyword reuses instead of allocating new ones."""

    def __init__(self) -> None:
        self._free: deque[Array] = deque(maxlen=64)

    def take(self, count: int) -> Array | None:
        """Return an array for ``count`` samples; ``None`` if none is free."""
        try:
            array = self._free.popleft()
        except IndexError:
            return None
        return array[:count] if len(array) >= count else None

    def put(self, arrays: list[Array] | Shards | None, outputs: Any) -> None:
        """Take back the input of a finished call, unless one of its outputs shares its memory."""
        if arrays is None or len(arrays) != 1 or isinstance(arrays, Shards):
            return
        results = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        if all(isinstance(r, np.ndarray) and not np.may_share_memory(r, arrays[0]) for r in results):
            base = arrays[0].base
            self._free.append(base if isinstance(base, np.ndarray) else arrays[0])


class Preprocessor:
    """Prepares samples by a task, with which it is pickled to other processes; ``name``: of the function that prepares,
    for messages; ``takes_out``: whether the function can write into a given array.
    """

    def __init__(self, task: Task) -> None:
        self.task = task
        function = task.source("prepare")
        self.name, self.takes_out = _qualified(function), _takes_out(function)
        self._collates = overrides(type(task), "collate")

    def prepare(self, samples: Sequence[Any], out: Array | None = None, timeline: Timeline | None = None) -> Prepared:
        """Prepare some samples.

        Args:
            samples: as the data set returns them. out: array to write into.
            timeline: takes the stages ``disk`` and ``decode``.

        Raises ConfigError: the task does not return :class:`Prepared` with a list of arrays, and a context for each
        sample or none.
        """
        room = {} if out is None else {"out": out}
        with nullcontext() if timeline is None else recording(timeline):
            done = self.task.prepare(samples, **room)
        wrong = not isinstance(done, Prepared) or isinstance(done.arrays, np.ndarray)
        if wrong or (done.contexts is not None and len(done.contexts) != len(samples)):
            raise _wrong_prepared(done, self.task.source("prepare"), self.task.name, len(samples))
        return done

    def collate(self, parts: Sequence[Prepared]) -> list[Array] | Shards:
        """Put prepared parts together as the arrays of a call; plain arrays of a single part are taken unchanged."""
        if not self._collates and len(parts) == 1 and not any(isinstance(array, list) for array in parts[0].arrays):
            return [*parts[0].arrays]  # type: ignore[list-item]
        return self.task.collate(parts)

    def nan_names(self, arrays: list[Array] | Shards | None, names: list[str]) -> list[str]:
        """Return the names of the samples whose input holds NaN; none for a task in which NaN is a missing value."""
        if self.task.takes_nan:
            return []
        model = getattr(self.task, "model", None)
        axes = None if model is None or model.named else list(map(_batch_axis, model.inputs))
        return nan_names(arrays, names, axes)


def _takes_out(function: Callable[..., Any]) -> bool:
    try:
        return "out" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a callable without a signature
        return False


def prepare(
    batch: Batch,
    preprocessor: Preprocessor,
    timeline: Timeline,
    buffers: Buffers | None = None,
    *,
    detailed: bool = True,
) -> PreparedBatch:
    """Preprocess one batch in this thread.

    Args:
        batch: samples of the data set. preprocessor: of the task.
        timeline: takes the stage ``preprocess``; with ``detailed`` also the stages in it.
        buffers: arrays to write into, for a function that takes ``out``.
    """
    start, whole = time.perf_counter(), batch
    good: tuple[int, ...] | None = None
    room = buffers.take(len(batch.names)) if buffers is not None else None
    try:
        part = preprocessor.prepare(batch.samples, room, timeline if detailed else None)
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
    """Preprocess sample by sample; return the good samples, their arrays, contexts, failures, and positions."""
    good: list[int] = []
    parts: list[Prepared] = []
    failures = []
    for i, sample in enumerate(batch.samples):
        try:
            part = preprocessor.prepare([sample])
            preprocessor.collate([part])  # fails for a sample that fits no size of the engine
            parts.append(part)
            good.append(i)
        except ConfigError:
            raise
        except SAMPLE_ERRORS as error:
            failures.append(Failure(batch.names[i], str(error)))
    arrays = preprocessor.collate(parts) if parts else None
    kept = [part.contexts for part in parts if part.contexts is not None]
    contexts = [context for some in kept for context in some] if kept else None
    return subset(batch, good), arrays, contexts, failures, None if len(good) == len(batch.names) else tuple(good)


def subset(batch: Batch, good: Sequence[int]) -> Batch:
    """Return the samples at the positions ``good``."""
    return Batch(*(pick(column, good) for column in batch))


def without_unanswered(ready: PreparedBatch, predictions: Any) -> tuple[PreparedBatch, Any]:
    """Return a batch and its predictions without the samples that have no answer; those become failures."""
    if not any(isinstance(one, NoAnswer) for one in predictions):
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


# ---------------------------------------------------------------------------------------------------- checks of results


def returned(value: object, kind: type, function: Callable[..., Any], task: str) -> Any:
    """Return the value of a task's method if it is of the contract's class ``kind``, else raise ConfigError."""
    if isinstance(value, kind):
        return value
    article = "an" if kind.__name__[0] in "AEIO" else "a"
    raise _wrong(_described(value), f"{article} {kind.__name__}", function, task)


def measure(value: object, function: Callable[..., Any], task: str) -> Metric:
    """Return the value if it is a :class:`Metric` with a name, else raise ConfigError."""
    found: Metric = returned(value, Metric, function, task)
    if isinstance(getattr(found, "name", None), str):
        return found
    kind = type(found).__name__
    fix = f"add a line such as name = {kind.lower()!r} to its class"
    raise ConfigError(f"task {task}: metric {kind} has no name; {fix}")


def _wrong_prepared(value: object, function: Callable[..., Any], task: str, samples: int) -> ConfigError:
    """Return the error for a value of ``prepare`` that cannot be used."""
    if not isinstance(value, Prepared):
        return _wrong(_described(value), "a Prepared", function, task)
    if value.contexts is not None and len(value.contexts) != samples:
        given = f"Prepared with {len(value.contexts)} contexts for {samples} samples"
        return _wrong(given, "one for each, or None", function, task)
    given = f"Prepared with an array of shape {np.shape(value.arrays)}"
    return _wrong(given, "Prepared([array]), a list with one array for each input of the model", function, task)


def _wrong(given: str, wanted: str, function: Callable[..., Any], task: str) -> ConfigError:
    inner = function.func if isinstance(function, partial) else function
    where = getattr(inner, "__module__", "its module")
    fix = f"let it return {wanted} (docs/reference/tasks.md)"
    return ConfigError(f"task {task}: {_qualified(function)} of {where} returned {given}; {fix}")


def _qualified(function: Callable[..., Any]) -> str:
    inner = function.func if isinstance(function, partial) else function
    return str(getattr(inner, "__qualname__", type(inner).__qualname__))


def _described(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    return f"a value of type {type(value).__name__}"


# ------------------------------------------------------------------------------------------------ arrays to predictions


class Inferred(NamedTuple):
    """The outputs of a batch, which of them are not finite, and start and end of the call (``time.perf_counter``)."""

    outputs: Any
    flaws: Flaws
    start: float
    end: float


class Pipeline:
    """A task on opened engines. What is the same for all batches of a run is resolved here, once.

    Attributes:
        task: bound to options and model. engines: by name; empty where a plain callable computes.
        preprocessor: turns samples into arrays.
        decode: from outputs and contexts to predictions; ``--skip_postprocess`` replaces it.
        decode_name: of the function that decodes, for messages.
        labelled: the data to pass where samples have no targets, for messages.
        streams: batches that may be computed at the same time.
        workload, warning_counts: these methods of the task; ``None`` for the defaults, which return nothing.
        diagnostics: looks for wrong settings while a data set is evaluated.
        writer: writes the answers of an evaluation.
        inferred: samples inferred so far; engines count rows of calls, of which a sample may need several.
    """

    def __init__(self, task: Task, engines: Mapping[str, Engine], dataset: Dataset | None = None) -> None:
        """Set up the task, unless an engine is calibrated first: ``setup`` may call it."""
        self.task, self.engines, self._dataset = task, engines, dataset
        self.preprocessor = Preprocessor(task)
        self.decode: Callable[[Any, Any], Any] = task.decode
        self.decode_name = f"decode of task {task.name}" if task.name else "postprocess"
        self.labelled = f"data with targets: {task.data_help}"
        self.streams = min((engine.streams for engine in engines.values()), default=0)
        self.inferred = 0
        self._watch = None if task.one_call else Watch(engines)
        self._called: Mapping[str, Any] = engines if self._watch is None else self._watch.engines
        only = next(iter(engines.values())) if task.one_call and len(engines) == 1 else None
        self._only, self._direct = only, only is not None and not overrides(type(task), "infer")
        self.workload = task.workload if overrides(type(task), "workload") else None
        self.warning_counts = task.warning_counts if overrides(type(task), "warning_counts") else None
        self._marks: dict[tuple[str, str], tuple[float, int, int]] = {}
        if not any(engine.calibration_samples for engine in engines.values()):
            self.set_up()
        options, valid = task.options, getattr(task.options, "script", "") == "valid"
        self.diagnostics = task.diagnostics() if valid else None
        path = getattr(options, "save_predictions", None)
        self.writer = None if path is None or not task.writes else task.prediction_writer(path, dataset)  # type: ignore[arg-type]

    def set_up(self, others: Mapping[str, Any] | None = None) -> None:
        """Compute the task's state, for which it may call the engines, or ``others`` in their place."""
        with watching(self.engines, lambda: "set-up"):
            self.task.state = self.task.setup(others or self._called, self._dataset)  # type: ignore[arg-type]

    def start(self, ready: PreparedBatch, streams: int) -> Inferred | Future[Inferred] | None:
        """Infer a prepared batch, in a thread of the engine if it has ``streams``; ``None`` without a good sample."""
        if ready.arrays is None:
            return None
        count = len(ready.batch.names)
        if not streams:
            return self.infer(ready.arrays, ready.contexts, count)
        queued: Future[Inferred] = self.queue.submit(self.infer, ready.arrays, ready.contexts, count)
        return queued

    def infer(self, arrays: Any, contexts: Any, count: int) -> Inferred:
        """Return the outputs for the arrays of ``count`` samples, and which of them are not finite."""
        if self._watch is not None:
            self._watch.begin(count)
        start = time.perf_counter()
        if self._direct and not isinstance(arrays, Shards):
            outputs: Any = self._only(arrays)  # type: ignore[misc]
        else:
            outputs = self.task.infer(self._called, arrays, contexts)
        end = time.perf_counter()
        axes = None if self._only is None else list(map(_batch_axis, self._only.outputs))
        flaws = Flaws.none(count)
        flaws.add(outputs, axes)
        if self._watch is not None:
            self._watch.end(flaws, outputs)
        return Inferred(outputs, flaws, start, end)

    def predictions(self, outputs: Any, contexts: Any, count: int, kinds: type | tuple[type, ...] = Sized) -> Any:
        """Return one prediction per sample.

        Args:
            outputs: of :meth:`infer`. contexts: of the samples. count: of samples.
            kinds: types of predictions whose length is checked; a metric reports more precisely what does not fit in an
                array.

        Raises ConfigError: ``decode`` returns another number of predictions, or something without a length.
        """
        found = self.decode(outputs, contexts)
        if not isinstance(found, Sized):
            wanted = "a list or an array with one prediction for each sample"
            raise _wrong(_described(found), wanted, self.task.source("decode"), self.task.name)
        if isinstance(found, kinds) and len(found) != count:
            raise ConfigError(f"{self.decode_name} gave {len(found)} answers for {count} samples; give one per sample")
        return found

    @cached_property
    def queue(self) -> ThreadPoolExecutor:
        """The threads that compute batches at the same time.

        These are the engine's own where a batch is one call. A task of several calls may queue calls itself, which
        would never start if the batches occupied the engine's threads.
        """
        if self.task.one_call:
            return next(iter(self.engines.values())).queue
        from concurrent.futures import ThreadPoolExecutor

        return ThreadPoolExecutor(self.streams, thread_name_prefix="batches")

    @property
    def advice(self) -> OwnAdvice | None:
        """Facts on the run for its line of advice; ``None`` for plain functions."""
        if not self.task.name:
            return None
        from utils.pipeline.report.advice import OwnAdvice  # single samples start without it

        return OwnAdvice.of(self.task, self.task.options, self.engines)

    def cancel(self) -> None:
        """Cancel the calls in progress."""
        for engine in self.engines.values():
            engine.cancel()

    def mark(self) -> None:
        """Begin to count the engines' calls, and the stages that the task adds to their timelines."""
        self._marks = {
            (name, stage): _totals(engine, stage)
            for name, engine in self.engines.items()
            for stage in engine.timeline.stages()
        }

    def note_calls(self, timeline: Timeline) -> None:
        """Add the engines' calls since :meth:`mark` to a timeline, as stage ``call NAME``; stages that a task's
        ``infer`` adds to an engine's timeline (a decoder's steps, a stream's chunks) keep their names.
        """
        for name, engine in self.engines.items():
            for stage in engine.timeline.stages():
                before, now = self._marks.get((name, stage), (0.0, 0, 0)), _totals(engine, stage)
                seconds, count, samples = (b - a for a, b in zip(before, now, strict=True))
                listed = f"call {name}" if stage == "engine" else stage
                timeline.adopt(listed, engine.timeline, stage, float(seconds), int(count), int(samples))

    def figures(self, timeline: Timeline, samples: int) -> dict[str, float]:
        """Return the task's figures in addition to the common summary."""
        return dict(self.task.extra_figures(timeline, samples))

    def describe(self) -> str:
        """Return one line on the engines."""
        if not self.engines:
            return str(getattr(self.task, "describes", ""))
        if len(self.engines) == 1:
            return next(iter(self.engines.values())).describe()
        return "; ".join(f"{name}: {engine.describe()}" for name, engine in self.engines.items())

    @property
    def simulated(self) -> bool:
        """Whether any engine is a simulated device."""
        return any(engine.simulated for engine in self.engines.values())

    def device_report(self) -> dict[str, Any]:
        """Return what a device reports of the run; of several models, each by its name under ``models``.

        Its samples per second are those of the data set, also where a sample is several rows, or calls, of an engine.
        """
        reports = {name: self._reported(engine) for name, engine in self.engines.items()}
        if len(reports) < 2:
            return next(iter(reports.values()), {})
        reports = {name: report for name, report in reports.items() if report}
        return {"models": reports} if reports else {}

    def _reported(self, engine: Engine) -> dict[str, Any]:
        report, rows = engine.device_report(), engine.timeline.samples("engine")
        if "simulated_sps" in report and rows not in (0, self.inferred):
            report["simulated_sps"] *= self.inferred / rows
        return report if self.task.one_call else {**report, "per": "call"} if report else {}


def blame_nan(error: Exception, found: Inferred, names: Sequence[str]) -> None:
    """Raise EngineError with the sample, if NaN in the outputs may have caused an error of ``decode`` or the metric."""
    bad = named(found.flaws.nan, names)
    if bad and isinstance(error, _NAN_ERRORS) and not isinstance(error, ConfigError):
        fix = "find the node with `teco overflow`, or use --dtype float32"
        raise EngineError(f"{bad[0]}: the model's output holds NaN ({reason_of(error)}); {fix}") from error


def _totals(engine: Engine, stage: str) -> tuple[float, int, int]:
    line = engine.timeline
    return line.seconds(stage), line.count(stage), line.samples(stage)
