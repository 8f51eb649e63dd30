"""What a run does with samples: a front, the engines, and the way from their outputs to predictions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from engine import Array, Engine, Timeline
from utils.pipeline.nan import Flaws
from utils.pipeline.prepare import Front, Preprocess, TaskFront, as_front
from utils.pipeline.returned import predictions
from utils.stuck import watching
from utils.tasks.base import Hinter, Options, Saver, Task
from utils.tasks.model import Model

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from utils.datasets.base import Dataset
    from utils.pipeline.advice import OwnAdvice
    from utils.pipeline.watched import Watch

Infer = Callable[[Any], "Array | list[Array]"]
"""From arrays to arrays: an engine, or any callable."""

LABELLED = "labelled data: class folders, a label file, or an .npz with labels"


Decode = Callable[[Any, Any], Any]
"""From outputs and contexts to one prediction per sample."""


class Inferred(NamedTuple):
    """What came out for a batch, with what of it is not finite, and when it was computed (``time.perf_counter``)."""

    outputs: Any
    flaws: Flaws
    start: float
    end: float


class Work:
    """From samples to predictions, with what must be known of the engines on the way.

    Attributes:
        front: how samples become arrays.
        decode: from outputs and contexts to predictions.
        engines: by name; empty where a plain callable computes.
        infer_with: from engines by name, arrays and contexts to outputs; calibration gives it engines that record.
        name: of what decodes, for messages. task: name of the task; empty for plain functions.
        labelled: what to pass where samples have no targets.
        one_call: whether a batch is one call of the only engine.
        streams: batches that may be computed side by side.
        amounts: from outputs and contexts of a batch to what it holds beside samples, by name.
        set_up: makes the task's state; where an engine is to be calibrated, that comes first, as ``setup`` may call it.
        watch: looks for NaN in what the engines give back, where the task calls them itself.
    """

    def __init__(
        self,
        front: Front,
        infer_with: Callable[[Mapping[str, Any], Any, Any], Any],
        decode: Decode,
        engines: Mapping[str, Engine],
        *,
        name: str = "postprocess",
        task: str = "",
        labelled: str = LABELLED,
        one_call: bool = True,
        figures: Callable[[Timeline, int], Mapping[str, float]] | None = None,
        amounts: Callable[[Any, Any], Mapping[str, float]] = lambda outputs, contexts: {},
        advice: Callable[[], OwnAdvice] | None = None,
        says: str = "",
        set_up: Callable[[], object] = lambda: None,
        watch: Watch | None = None,
    ) -> None:
        self.front, self.infer_with, self.decode, self.engines = front, infer_with, decode, engines
        self.amounts = amounts
        self.name, self.task, self.labelled, self.one_call = name, task, labelled, one_call
        self._advice = advice
        self.streams = min((engine.streams for engine in engines.values()), default=0)
        self.counted: Callable[[Any], Mapping[str, int]] = lambda contexts: {}
        """Counts what the task wants said of a batch, from its contexts."""
        self._figures, self._says, self.set_up, self._watch = figures, says, set_up, watch
        self.hinter: Hinter | None = None
        """Looks for what cannot be right, while a data set is evaluated."""
        self.saver: Saver | None = None
        """Writes the answers of an evaluation."""
        self.inferred = 0
        """Samples inferred so far; an engine counts the rows of its calls, which a loop makes more of."""
        self._marks: dict[tuple[str, str], tuple[float, int, int]] = {}

    @classmethod
    def plain(cls, engine: Infer, preprocess: Preprocess | Front, postprocess: Callable[[Any], Any]) -> Work:
        """Make it of plain functions, and an engine or any callable."""
        engines = {"model": engine} if isinstance(engine, Engine) else {}

        def infer_with(_: Mapping[str, Any], arrays: Any, contexts: Any) -> Any:
            return engine(arrays)

        def decode(outputs: Any, contexts: Any) -> Any:
            return postprocess(outputs)

        return cls(as_front(preprocess), infer_with, decode, engines, says=type(engine).__name__)

    @classmethod
    def of(cls, task: Task, engines: Mapping[str, Engine], model: Model, dataset: Dataset, options: Options) -> Work:
        """Make it of a task and opened engines."""
        from utils.tasks.base import one_call

        state = _State(lambda others: task.setup(others, dataset, options))
        watch = _watch_of(task, engines)
        called: Mapping[str, Any] = engines if watch is None else watch.engines

        def infer_with(others: Mapping[str, Any], arrays: Any, contexts: Any) -> Any:
            used = called if others is engines else others
            return task.infer(used, arrays, contexts, state.of(used))

        def decode(outputs: Any, contexts: Any) -> Any:
            return predictions(task.decode(outputs, contexts, model, options), task.decode, task.name)

        work = cls(
            TaskFront(task, model, options),
            infer_with,
            decode,
            engines,
            name=f"decode of task {task.name}",
            task=task.name,
            labelled=f"data with targets: {task.data_help}",
            one_call=task.infer is one_call,
            figures=task.figures,
            amounts=task.amounts,
            advice=lambda: _advice(task, options, engines),
            set_up=lambda: _set_up(state, called, engines),
            watch=watch,
        )
        work.counted = task.counted
        if not any(engine.calibration_samples for engine in engines.values()):
            work.set_up()
        if task.hinter is not None and options.script == "valid":
            work.hinter = task.hinter(model, options)
        path = getattr(options, "save_predictions", None)
        if task.saver is not None and path is not None:
            work.saver = task.saver(path, dataset, model, options)
        return work

    def infer(self, arrays: Any, contexts: Any) -> Any:
        """Return the outputs for a prepared batch."""
        return self.infer_with(self.engines, arrays, contexts)

    def infer_checked(self, arrays: Any, contexts: Any, count: int) -> Inferred:
        """Return the outputs for a prepared batch of so many samples, with what of them is not finite."""
        with nullcontext(Flaws.none(count)) if self._watch is None else self._watch.batch(count) as flaws:
            start = time.perf_counter()
            outputs = self.infer(arrays, contexts)
            end = time.perf_counter()
        flaws.add(outputs, self._axes())
        return Inferred(outputs, flaws, start, end)

    def _axes(self) -> list[int | None] | None:
        """Return where the outputs of the only call have their samples; ``None`` where outputs are a task's own."""
        if self._watch is not None or not self.one_call or len(self.engines) != 1:
            return None
        return [tensor.batch_axis for tensor in next(iter(self.engines.values())).outputs]

    @cached_property
    def queue(self) -> ThreadPoolExecutor:
        """The threads that compute batches side by side.

        The engine's own where a batch is one call. A task of more may queue calls itself, which would wait for ever
        for the thread that it runs in.
        """
        if self.one_call:
            return next(iter(self.engines.values())).queue
        from concurrent.futures import ThreadPoolExecutor

        return ThreadPoolExecutor(self.streams, thread_name_prefix="batches")

    @property
    def advice(self) -> OwnAdvice | None:
        """What is known of the run for its line of advice, where there is a task."""
        return None if self._advice is None else self._advice()

    def cancel(self) -> None:
        """Stop the calls that are under way."""
        for engine in self.engines.values():
            engine.cancel()

    def mark(self) -> None:
        """Begin to count the engines' calls, and what the task notes in their timelines."""
        self._marks = {
            (name, stage): _so_far(engine, stage)
            for name, engine in self.engines.items()
            for stage in engine.timeline.stages()
        }

    def note_calls(self, timeline: Timeline) -> None:
        """Add the engines' calls since :meth:`mark` to a timeline, as ``call NAME``.

        What a task's own ``infer`` notes in an engine's timeline comes along under its own name: a decoder's steps, a
        stream's chunks.
        """
        for name, engine in self.engines.items():
            for stage in engine.timeline.stages():
                before, now = self._marks.get((name, stage), (0.0, 0, 0)), _so_far(engine, stage)
                seconds, count, samples = (b - a for a, b in zip(before, now, strict=True))
                told = f"call {name}" if stage == "engine" else stage
                timeline.adopt(told, engine.timeline, stage, float(seconds), int(count), int(samples))

    def figures(self, timeline: Timeline, samples: int) -> dict[str, float]:
        """Return the task's figures beside the common summary."""
        return {} if self._figures is None else dict(self._figures(timeline, samples))

    def describe(self) -> str:
        """Say in one line what computes."""
        if not self.engines:
            return self._says
        if len(self.engines) == 1:
            return next(iter(self.engines.values())).describe()
        return "; ".join(f"{name}: {engine.describe()}" for name, engine in self.engines.items())

    @property
    def simulated(self) -> bool:
        """Whether any engine is a simulated device."""
        return any(engine.simulated for engine in self.engines.values())

    def device_report(self) -> dict[str, Any]:
        """Return what a device says of the run; of several models, each by its name under ``models``.

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
        return report if self.one_call else {**report, "per": "call"} if report else {}


def _watch_of(task: Task, engines: Mapping[str, Engine]) -> Watch | None:
    """Return what watches the engines of a task that calls them itself; of the others the outputs say all."""
    from utils.tasks.base import one_call

    if task.infer is one_call or not task.watched:
        return None
    from utils.pipeline.watched import Watch

    return Watch(engines)


class _State:
    """A task's state on the engines it was last asked for: made at the first time."""

    def __init__(self, make: Callable[[Mapping[str, Any]], Any]) -> None:
        self._make, self._lock = make, threading.Lock()
        self._made: tuple[Mapping[str, Any], Any] | None = None

    def of(self, engines: Mapping[str, Any]) -> Any:
        """Return the state on these engines; calls from several threads make it once."""
        made = self._made
        if made is None or made[0] is not engines:
            with self._lock:
                if self._made is None or self._made[0] is not engines:
                    self._made = (engines, self._make(engines))
                made = self._made
        return made[1]


def _set_up(state: _State, called: Mapping[str, Any], engines: Mapping[str, Engine]) -> None:
    """Make a task's state, for which it may call the engines."""
    with watching(engines, lambda: "set-up"):
        state.of(called)


def _so_far(engine: Engine, stage: str) -> tuple[float, int, int]:
    line = engine.timeline
    return line.seconds(stage), line.count(stage), line.samples(stage)


def _advice(task: Task, options: Options, engines: Mapping[str, Engine]) -> OwnAdvice:
    from utils.pipeline.advice import OwnAdvice  # only an evaluation gives advice; single samples start without it

    return OwnAdvice.of(task, options, engines)
