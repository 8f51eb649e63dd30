"""What a run does with samples: a task, its engines, and the way from their outputs to predictions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from engine import Engine, Timeline
from utils.datasets.base import Dataset
from utils.pipeline.run.nan import Flaws, Watch
from utils.pipeline.run.prepare import Preprocessor
from utils.pipeline.run.returned import predictions
from utils.stuck import watching
from utils.tasks.base import Task

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    from utils.pipeline.report.advice import OwnAdvice


class Inferred(NamedTuple):
    """What came out for a batch, with what of it is not finite, and when it was computed (``time.perf_counter``)."""

    outputs: Any
    flaws: Flaws
    start: float
    end: float


class Pipeline:
    """A task on opened engines, with what must be known of the engines on the way.

    Attributes:
        task: bound to options and model.
        engines: by name; empty where a plain callable computes.
        preprocessor: makes samples into arrays.
        decode: from outputs and contexts to predictions; ``--skip_postprocess`` puts another function in its place.
        decode_name: of the function that decodes, for messages.
        labelled: what to pass where samples have no targets.
        streams: batches that may be computed side by side.
        diagnostics: looks for what cannot be right, while a data set is evaluated.
        writer: writes the answers of an evaluation.
        inferred: samples inferred so far; an engine counts the rows of its calls, which a loop makes more of.
    """

    def __init__(self, task: Task, engines: Mapping[str, Engine], dataset: Dataset | None = None) -> None:
        """Make the task's state, unless an engine is to be calibrated first: ``setup`` may call it."""
        self.task, self.engines, self._dataset = task, engines, dataset
        self.preprocessor = Preprocessor(task)
        self.decode: Callable[[Any, Any], Any] = self._decoded
        self.decode_name = f"decode of task {task.name}" if task.name else "postprocess"
        self.labelled = f"data with targets: {task.data_help}"
        self.streams = min((engine.streams for engine in engines.values()), default=0)
        self.inferred = 0
        self._watch = None if task.one_call else Watch(engines)
        self._called: Mapping[str, Any] = engines if self._watch is None else self._watch.engines
        self._marks: dict[tuple[str, str], tuple[float, int, int]] = {}
        if not any(engine.calibration_samples for engine in engines.values()):
            self.set_up()
        options, valid = task.options, getattr(task.options, "script", "") == "valid"
        self.diagnostics = task.diagnostics() if valid else None
        path = getattr(options, "save_predictions", None)
        self.writer = None if path is None or not task.writes else task.prediction_writer(path, dataset)  # type: ignore[arg-type]

    def set_up(self, others: Mapping[str, Any] | None = None) -> None:
        """Make the task's state, for which it may call the engines, or ``others`` in their place."""
        with watching(self.engines, lambda: "set-up"):
            self.task.state = self.task.setup(others or self._called, self._dataset)  # type: ignore[arg-type]

    def _decoded(self, outputs: Any, contexts: Any) -> Any:
        task = self.task
        return predictions(task.decode(outputs, contexts), task.source("decode"), task.name)

    def infer(self, arrays: Any, contexts: Any, count: int) -> Inferred:
        """Return the outputs for a prepared batch of so many samples, with what of them is not finite."""
        flaws = Flaws.none(count)
        if self._watch is not None:
            self._watch.begin(count)
        start = time.perf_counter()
        outputs = self.task.infer(self._called, arrays, contexts)
        end = time.perf_counter()
        flaws.add(outputs, self._axes())
        if self._watch is not None:
            self._watch.end(flaws, outputs)
        return Inferred(outputs, flaws, start, end)

    def _axes(self) -> list[int | None] | None:
        """Return where the outputs of the only call have their samples; ``None`` where outputs are a task's own."""
        if self._watch is not None or len(self.engines) != 1:
            return None
        return [tensor.batch_axis for tensor in next(iter(self.engines.values())).outputs]

    @cached_property
    def queue(self) -> ThreadPoolExecutor:
        """The threads that compute batches side by side.

        The engine's own where a batch is one call. A task of more may queue calls itself, which would wait for ever
        for the thread that it runs in.
        """
        if self.task.one_call:
            return next(iter(self.engines.values())).queue
        from concurrent.futures import ThreadPoolExecutor

        return ThreadPoolExecutor(self.streams, thread_name_prefix="batches")

    @property
    def advice(self) -> OwnAdvice | None:
        """What is known of the run for its line of advice; ``None`` for plain functions."""
        if not self.task.name:
            return None
        from utils.pipeline.report.advice import OwnAdvice  # single samples start without it

        return OwnAdvice.of(self.task, self.task.options, self.engines)

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
        return dict(self.task.extra_figures(timeline, samples))

    def describe(self) -> str:
        """Say in one line what computes."""
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
        return report if self.task.one_call else {**report, "per": "call"} if report else {}


def _so_far(engine: Engine, stage: str) -> tuple[float, int, int]:
    line = engine.timeline
    return line.seconds(stage), line.count(stage), line.samples(stage)
