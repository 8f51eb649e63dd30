"""What accumulates over the steps of an evaluation, and the report it ends in."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine import DataError, Timeline, usable_cores
from utils.datasets.base import Batch
from utils.datasets.sharding import rank_and_size
from utils.metrics.base import Metric
from utils.pipeline.run.pipeline import Pipeline
from utils.pipeline.run.prepare import Buffers, Failure
from utils.pipeline.run.step import Step

if TYPE_CHECKING:
    from utils.pipeline.report.report import Report

OnStep = Callable[[str], None]
Keep = Callable[[Batch, Step], None]
"""Keeps a finished step, given with its whole batch."""


@dataclass(slots=True)
class RunState:
    """What accumulates over the steps of an evaluation."""

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
    keep: list[Keep] = field(default_factory=list)
    buffers: Buffers = field(default_factory=Buffers)
    worker_mode: str = "thread"
    steps: int = 0
    resumed: int = 0
    samples: int = 0
    timed_samples: int = 0
    mark: float = 0.0
    """When the loop last had something in hand: what comes after is waiting."""
    cpu: float = 0.0
    fetched: int | None = None
    ended: float = 0.0

    def start(self) -> None:
        """Begin to measure time."""
        self.timeline.clear()
        self.pipeline.mark()
        self.started = self.mark = time.perf_counter()
        self.cpu, self.fetched, self.timed_samples = self.cpu_seconds(), self._fetched(), 0

    def end_warmup(self) -> None:
        """Measure time anew where the steps that warm up are over."""
        if self.warmup > 0 and self.steps - self.resumed >= self.warmup:
            self.warmup = 0
            self.start()

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

    def waited(self, what: str) -> None:
        """Record that the loop waited for ``what`` until now."""
        now = time.perf_counter()
        self.timeline.add(what, self.mark, now)
        self.mark = now

    def count(self, step: Step) -> None:
        """Count a step."""
        self.failures += step.failures
        self.nan_inputs += step.nan_inputs
        self.nan_outputs += step.nan_outputs
        add_counts(self.counts, step.counts)
        self.samples += step.samples
        self.steps += 1

    def report(self, finished: bool) -> Report:
        """Return what the run found; ``finished``: no step limit ended it."""
        from utils.pipeline.report.report import Report

        wall, line, pipeline = self.ended - self.started, self.timeline, self.pipeline
        pipeline.note_calls(line)
        inside = line.seconds("disk") + line.seconds("decode")
        busy = {stage: line.seconds(stage) for stage in ("disk", "decode")}
        busy |= {"preprocess": max(0.0, line.seconds("preprocess") - inside), "engine": line.seconds("inference")}
        value, secondary, per_class = self._measured()
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
            counts=self.counts,
            finished=finished,
            resumed_steps=self.resumed,
            higher_is_better=self.metric.higher_is_better,
            secondary=secondary,
            per_class=per_class,
            figures=pipeline.figures(line, self.timed_samples),
            task=pipeline.task.name,
            advice=pipeline.advice,
            hints=self.found_odd(),
            state=self.metric,
        )

    def found_odd(self) -> list[str]:
        """Return what looks wrong in how the model's numbers are read; where all was kept, what was found then."""
        now = [] if self.pipeline.diagnostics is None else list(self.pipeline.diagnostics.hints())
        return now or self.hints

    def _measured(self) -> tuple[float, dict[str, float], dict[str, dict[str, float]]]:
        """Return the metric and its further figures; a part of a run may hold too little for any (no object at all)."""
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
    """Add counts to others by their names."""
    for name, count in more.items():
        total[name] = total.get(name, 0) + count


def per_class(metric: Metric) -> dict[str, dict[str, float]]:
    """Return a metric's figures of single classes as plain dictionaries, which travel."""
    return {name: dict(figures) for name, figures in metric.per_class().items()}
