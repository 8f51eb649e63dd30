"""The steps of an evaluation: each finished one, the totals over all, and the report at the end."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from engine import Array, DataError, Timeline, usable_cores
from utils.datasets.base import Batch
from utils.datasets.sharding import rank_and_size
from utils.metrics.base import Metric, Records
from utils.metrics.class_names import WrongLabelError
from utils.pipeline.run.nan import named
from utils.pipeline.run.pipeline import (
    Buffers,
    Failure,
    Inferred,
    Pipeline,
    PreparedBatch,
    blame_nan,
    without_unanswered,
)
from utils.pipeline.run.saturation import OutputWatch

if TYPE_CHECKING:
    from concurrent.futures import Future

    from utils.pipeline.report.report import Report


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Step:
    """A finished step.

    Attributes:
        size: samples in the batch, failures included.
        record: return value of the metric's ``update``: an array with one entry per good sample, or records;
            ``None`` if no sample is good.
        good: positions in the batch of the good samples, ascending; ``None``: all of them.
        failures: the samples that could not be run.
        nan_inputs, nan_outputs: names of the samples whose input, or whose output, holds NaN.
        counts: the task's ``warning_counts`` of the batch.
    """

    size: int
    record: Array | Records | None
    good: tuple[int, ...] | None = None
    failures: tuple[Failure, ...] = ()
    nan_inputs: tuple[str, ...] = ()
    nan_outputs: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """Number of good samples."""
        if self.record is None:
            return 0
        return self.size if self.good is None else len(self.good)


def mismatch(step: Step, names: Sequence[str], metric: Metric) -> str:
    """Return why a stored step cannot be of the batch with these names and of this metric; empty if it can."""
    if step.size != len(names):
        return f"it has {step.size} samples, and the batch {len(names)}"
    unknown = {*(failure.name for failure in step.failures), *step.nan_inputs, *step.nan_outputs} - set(names)
    if unknown:
        return f"{min(unknown)!r} is not a sample of the batch"
    if len(step.failures) < step.size - step.samples:
        return f"{step.size - step.samples} of its samples are missing, {len(step.failures)} with a reason"
    values = step.record.values if isinstance(step.record, Records) else step.record
    if values is None or metric.bounds is None or values.dtype.kind not in "biuf" or not values.size:
        return ""
    low, high = metric.bounds
    finite = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    if finite.size and not (low <= finite.min() and finite.max() <= high):
        return f"a record lies outside {low:g} to {high:g}, the bounds of {metric.name}"
    return ""


OnStep = Callable[[str], None]
Keep = Callable[[Batch, Step], None]
"""Stores a finished step; takes it with its whole batch."""


@dataclass(slots=True, eq=False, repr=False)
class RunState:
    """The totals over the steps of an evaluation.

    Attributes:
        mark: when the loop last finished something (``time.perf_counter``); the time from there on is waiting.
        steps, samples: so far, resumed steps included. timed_samples: since the time is measured.
        watch: over the outputs, from the first step on.
        resumed: steps taken from a journal. hints: of :attr:`Pipeline.diagnostics`, as the journal keeps them.
    """

    timeline: Timeline
    started: float
    failures: list[Failure]
    metric: Metric
    pipeline: Pipeline
    on_step: OnStep | None
    warmup: int
    nan_inputs: list[str] = field(default_factory=list)
    nan_outputs: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    hints: list[str] = field(default_factory=list)
    watch: OutputWatch | None = None
    keep: list[Keep] = field(default_factory=list)
    buffers: Buffers = field(default_factory=Buffers)
    worker_mode: str = "thread"
    steps: int = 0
    resumed: int = 0
    samples: int = 0
    timed_samples: int = 0
    mark: float = 0.0
    cpu: float = 0.0
    fetched: int | None = None
    ended: float = 0.0

    def start(self) -> None:
        """Begin to measure time."""
        self.timeline.clear()
        self.pipeline.mark()
        self.started = self.mark = time.perf_counter()
        self.cpu, self.fetched, self.timed_samples = self.cpu_seconds(), self._fetched(), 0

    def finish_step(self, ready: PreparedBatch, call: Inferred | Future[Inferred] | None) -> None:
        """Take the result of a call: update the metric, store the step, add it to the totals."""
        pipeline, line = self.pipeline, self.timeline
        found = call if call is None or isinstance(call, Inferred) else call.result()
        waited, began = time.perf_counter(), self.mark
        count, answered, record, lost = len(ready.batch.names), ready, None, list[str]()
        if found is not None and ready.batch.targets is not None:
            pipeline.inferred += count
            answered, record, lost = self._update(ready, found)
            if pipeline.workload is not None:
                for what, amount in pipeline.workload(found.outputs, ready.contexts).items():
                    line.gain(what, amount)
            self.timed_samples += count
        counts = {} if pipeline.warning_counts is None else pipeline.warning_counts(answered.contexts)
        failures, nan_inputs = tuple(answered.failures), tuple(answered.nan_inputs)
        step = Step(len(ready.whole.names), record, answered.good, failures, nan_inputs, tuple(lost), counts)
        for keep in self.keep:
            keep(ready.whole, step)
        self.add(step)
        if found is not None:
            self.buffers.put(ready.arrays, found.outputs)
        self.mark = time.perf_counter()
        line.add("wait_engine", began, waited)
        if found is not None:
            line.add("inference", found.start, found.end, count)
        line.add("postprocess", waited, self.mark)
        if self.on_step is not None and found is not None:
            self.on_step(step_line(self.steps, count, found.end - found.start, self.mark - waited, line))

    def _update(self, ready: PreparedBatch, found: Inferred) -> tuple[PreparedBatch, Array | Records | None, list[str]]:
        """Return the samples that have an answer, the metric's record of them, and which of them lost theirs to NaN."""
        pipeline, names, record, answered = self.pipeline, ready.batch.names, None, ready
        try:
            predictions = pipeline.predictions(found.outputs, ready.contexts, len(names), (list, tuple))
            kept = predictions
            if isinstance(predictions, (list, tuple)):
                answered, kept = without_unanswered(ready, predictions)
            if answered.batch.names:
                try:
                    record = self.metric.update(kept, answered.batch.targets, answered.contexts)  # type: ignore[arg-type]
                except WrongLabelError as error:
                    raise DataError(f"{answered.batch.names[error.place]}: {error}") from error
            if self.watch is None:
                self.watch = OutputWatch(pipeline.engines)
            self.watch.see(found.outputs, len(names))
            if pipeline.diagnostics is not None:
                pipeline.diagnostics.see(found.outputs, ready.contexts, ready.batch.targets)
            if pipeline.writer is not None:
                pipeline.writer.see(answered.batch, kept)
        except Exception as error:
            blame_nan(error, found, names)
            raise
        if not (found.flaws.nan | found.flaws.infinite).any():
            return answered, record, []
        lost = named(found.flaws.lost(predictions), names)
        return answered, record, lost if answered is ready else [name for name in lost if name in answered.batch.names]

    def add(self, step: Step) -> None:
        """Add a step to the totals."""
        self.failures += step.failures
        self.nan_inputs += step.nan_inputs
        self.nan_outputs += step.nan_outputs
        if step.counts:
            add_counts(self.counts, step.counts)
        self.samples += step.samples
        self.steps += 1

    def _fetched(self) -> int | None:
        """Return the bytes fetched from storage so far; those of other processes are not known."""
        from utils.pipeline.report.bottleneck import fetched_bytes

        return fetched_bytes() if self.worker_mode == "thread" else None

    def disk_bytes(self) -> int | None:
        """Return the bytes fetched from storage since the start."""
        now = self._fetched()
        return None if now is None or self.fetched is None else now - self.fetched

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of this process and its children so far."""
        times = os.times()
        ended = times.user + times.system + times.children_user + times.children_system
        if self.worker_mode == "thread":
            return ended
        from utils.pipeline.ahead.processes import live_cpu_seconds

        return ended + live_cpu_seconds()

    def report(self, finished: bool) -> Report:
        """Return the report; ``finished``: the run was not ended by a step limit."""
        from utils.pipeline.report.report import Report

        wall, line, pipeline = self.ended - self.started, self.timeline, self.pipeline
        pipeline.note_calls(line)
        inside = line.seconds("disk") + line.seconds("decode")
        busy = {stage: line.seconds(stage) for stage in ("disk", "decode")}
        busy |= {"preprocess": max(0.0, line.seconds("preprocess") - inside), "engine": line.seconds("inference")}
        value, secondary, per_class = self._metric_value()
        return Report(
            metric_name=self.metric.name,
            metric=value,
            samples=self.samples,
            steps=self.steps,
            e2e_time=wall,
            avg_sps=self.timed_samples / wall,
            avg_inference_time=line.mean("inference"),
            avg_preprocess_time=line.mean("preprocess"),
            avg_postprocess=line.mean("postprocess"),
            wait_time=line.seconds("wait"),
            wait_engine_time=line.seconds("wait_engine"),
            postprocess_time=line.seconds("postprocess"),
            busy=busy | {"postprocess": line.seconds("postprocess")},
            core_share=(self.cpu_seconds() - self.cpu) / (wall * usable_cores()),
            disk_bytes=self.disk_bytes(),
            engine=pipeline.describe(),
            simulated=pipeline.simulated,
            device=pipeline.device_report(),
            failures=self.failures,
            nan_inputs=self.nan_inputs,
            nan_outputs=self.nan_outputs,
            warning_counts=self.counts,
            finished=finished,
            resumed_steps=self.resumed,
            higher_is_better=self.metric.higher_is_better,
            secondary=secondary,
            per_class=per_class,
            figures=pipeline.figures(line, self.timed_samples),
            task=pipeline.task.name,
            advice=pipeline.advice,
            hints=self.current_hints(),
            state=self.metric,
        )

    def current_hints(self) -> list[str]:
        """Return the hints of the diagnostics and of the watch over the outputs.

        Of a run that was resumed at its end, those that the journal keeps.
        """
        now = [] if self.pipeline.diagnostics is None else list(self.pipeline.diagnostics.hints())
        now += [] if self.watch is None else self.watch.hints()
        return now or self.hints

    def _metric_value(self) -> tuple[float, dict[str, float], dict[str, dict[str, float]]]:
        """Return the metric, its secondary figures, and those per class; NaN where a part of a run holds too little."""
        if not self.samples:
            return math.nan, {}, {}
        try:
            return self.metric.compute(), dict(self.metric.secondary()), per_class(self.metric)
        except DataError as error:
            if rank_and_size()[1] > 1:
                return math.nan, {}, {}
            if not self.failures:
                raise
            first, count = self.failures[0], len(self.failures)
            raise DataError(f"{error}; {count} could not be used, the first: {first.name}: {first.reason}") from error


def add_counts(total: dict[str, int], more: Mapping[str, int]) -> None:
    """Add counts to others, by name."""
    for name, count in more.items():
        total[name] = total.get(name, 0) + count


def per_class(metric: Metric) -> dict[str, dict[str, float]]:
    """Return a metric's figures of single classes as plain dictionaries, which can be pickled."""
    return {name: dict(figures) for name, figures in metric.per_class().items()}


def step_line(step: int, samples: int, inference: float, postprocess: float, timeline: Timeline) -> str:
    """Return the line of timings, in seconds, that is printed after a step."""
    return (
        f"step {step}: samples: {samples}, inference_time: {inference:.6f}, postprocess: {postprocess:.6f}, "
        f"avg_preprocess_time: {timeline.mean('preprocess'):.6f}"
    )
