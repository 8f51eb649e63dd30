"""The loops every script shares: :func:`evaluate` over a labelled data set, :func:`predict` over anything.

Both take plain functions; :func:`evaluate_work` and :func:`predict_work` take what a task does (:class:`Work`).
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from engine import Array, ConfigError, DataError, Timeline, usable_cores
from utils.datasets.base import Batch, dataset_of
from utils.datasets.sharding import rank_and_size
from utils.metrics.base import Metric, Records
from utils.pipeline.ahead import prepared
from utils.pipeline.interrupt import telling
from utils.pipeline.prepare import Buffers, Failure, Preprocess, Ready, nothing_evaluated
from utils.pipeline.work import Infer, Work
from utils.progress import progress

if TYPE_CHECKING:
    from concurrent.futures import Future

    from utils.pipeline.journal import Journal
    from utils.pipeline.records import RecordsFile
    from utils.pipeline.report import Report

OnStep = Callable[[str], None]
Keep = Callable[[Batch, "Array | Records | None", "tuple[int, ...] | None", "Sequence[Failure]", "Sequence[str]"], None]


class Answer(NamedTuple):
    """What the model says of one sample."""

    name: str
    answer: Any
    sample: Any = None


@dataclass(slots=True)
class _Run:
    """What accumulates over the steps of an evaluation."""

    timeline: Timeline
    started: float
    failures: list[Failure]
    metric: Metric
    work: Work
    on_step: OnStep | None
    warmup: int
    nan_inputs: list[str] = field(default_factory=list)
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
        self.work.mark()
        self.started = self.mark = time.perf_counter()
        self.cpu, self.fetched, self.timed_samples = self.cpu_seconds(), self._fetched(), 0

    def end_warmup(self) -> None:
        """Measure time anew where the steps that warm up are over."""
        if self.warmup > 0 and self.steps - self.resumed >= self.warmup:
            self.warmup = 0
            self.start()

    def _fetched(self) -> int | None:
        """Return the bytes fetched from storage so far; those of other processes are not known."""
        from utils.pipeline.bottleneck import fetched_bytes

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

    def count(self, failures: Iterable[Failure], nan_inputs: Iterable[str], samples: int) -> None:
        """Count a step."""
        self.failures += failures
        self.nan_inputs += nan_inputs
        self.samples += samples
        self.steps += 1


def evaluate(
    engine: Infer,
    batches: Iterable[Batch],
    preprocess: Preprocess,
    postprocess: Callable[[Any], Any],
    metric: Metric,
    **how: Any,
) -> Report:
    """Run a labelled data set through an engine and measure it.

    Batches are preprocessed ahead in threads, and an engine computes as many calls side by side as it has streams.
    Results are taken in order, so they are those of a plain loop, bit for bit, at any setting.

    Args:
        engine: an open engine, or any callable from arrays to arrays.
        batches: samples and targets (:class:`utils.datasets.base.Batches`).
        preprocess: samples to one array, or a list of arrays, with the batch first. One that takes the keyword ``out``
            writes into the array it is given there, which is used again for later batches.
        postprocess: the engine's output to what ``metric`` takes.
        metric: updated with every batch.
        how: the keywords of :func:`evaluate_work`.

    Raises:
        DataError: no sample could be run, or a batch has no targets.
        KeyboardInterrupt: the user interrupted; its text says how far the run got.
    """
    return evaluate_work(Work.plain(engine, preprocess, postprocess), batches, metric, **how)


def evaluate_work(
    work: Work,
    batches: Iterable[Batch],
    metric: Metric,
    *,
    max_steps: int = -1,
    warmup: int = 0,
    workers: int | None = None,
    worker_mode: str = "thread",
    on_step: OnStep | None = None,
    journal: Journal | None = None,
    records: RecordsFile | None = None,
) -> Report:
    """Run a labelled data set through what a task does and measure it, as :func:`evaluate` says.

    Args:
        work: from samples to predictions.
        batches: samples and targets.
        metric: updated with every batch.
        max_steps: stop after so many batches; 0 or less means all.
        warmup: the first steps, which count for the metric but not for the timing (unless nothing else is left).
        workers: preprocessing threads; ``None`` takes one per core, 0 does everything in the loop itself, in turn.
        worker_mode: ``"process"`` gives every preprocessing thread a process of its own; see :func:`.ahead.prepared`.
        on_step: called after every step with a line of its timings.
        journal: steps finished before, which are not run again; every step from there on is added.
        records: gets the metric's records of every sample.

    Returns:
        The metric and timing. Samples that could not be read are in ``failures`` and not in the metric.
    """
    run = _Run(Timeline(), 0.0, _rejected(batches), metric, work, on_step, warmup, worker_mode=worker_mode)
    rest, total = iter(batches), _steps(batches, max_steps)
    if records is not None:
        run.keep.append(_writer(records))
    if journal is not None:
        _replay(journal, rest, run)
        run.keep.append(_appender(journal))
    if max_steps > 0:
        rest = islice(rest, max(0, max_steps - run.steps))
    _calibrate(work, batches)
    workers = 0 if total is not None and total - run.steps == 1 else workers  # threads would only cost their start
    run.start()
    with telling(lambda: _so_far(run, total, journal)):
        _loop(rest, run, workers, None if total is None else total - run.steps)
    run.ended = time.perf_counter()
    run.timeline.add("wait", run.mark, run.ended)  # for the threads to end
    _check_any(run)
    return _report(run, finished=not 0 < max_steps <= run.steps or run.steps == _steps(batches, -1))


def _calibrate(work: Work, batches: Iterable[Batch]) -> None:
    """Let engines choose their ranges, where any has to."""
    if any(engine.calibration_samples for engine in work.engines.values()):
        from utils.pipeline.calibration import calibrate

        calibrate(work, batches)


def _check_any(run: _Run) -> None:
    """Raise where nothing was run; one part of several may be empty."""
    if not run.samples and rank_and_size()[1] == 1:
        raise nothing_evaluated(run.failures)


def _loop(batches: Iterable[Batch], run: _Run, workers: int | None, total: int | None) -> None:
    """Feed the engine, and take its results in order."""
    work = run.work
    streams = work.streams if workers != 0 else 0
    side_by_side = streams + 1 if streams else 0  # one call more than the engine computes, so that it never waits
    under_way: deque[tuple[Ready, Future[_Call] | _Call]] = deque()
    # Closed here, not when the collector comes by: an error must not leave the preprocessing threads running.
    with closing(prepared(batches, work.front, run.timeline, workers, run.buffers, run.worker_mode)) as stages:
        try:
            for ready in progress(stages, "batch", total=total):
                run.waited("wait")
                run.end_warmup()
                _refuse_unlabelled(ready, work)
                under_way.append((ready, _started(work, ready, streams)))
                while len(under_way) > side_by_side:
                    _step(*under_way.popleft(), run)
            while under_way:
                _step(*under_way.popleft(), run)
        except KeyboardInterrupt:
            work.cancel()
            raise
        finally:
            _give_up(under_way)


def _refuse_unlabelled(ready: Ready, work: Work) -> None:
    if ready.arrays is not None and ready.batch.targets is None:
        raise DataError(f"{ready.batch.names[0]} has no label; pass {work.labelled}")


def _give_up(under_way: Iterable[tuple[Ready, Future[_Call] | _Call]]) -> None:
    """Cancel the calls that nobody will take the results of."""
    for _, call in under_way:
        if not isinstance(call, _Call):
            call.cancel()


class _Call(NamedTuple):
    """An engine's outputs and the seconds they took; ``None`` where no sample of the batch could be preprocessed."""

    outputs: Any
    start: float
    end: float


def _started(work: Work, ready: Ready, streams: int) -> Future[_Call] | _Call:
    if ready.arrays is None:
        return _Call(None, 0.0, 0.0)
    if not streams:
        return _called(work, ready)
    queued: Future[_Call] = work.queue.submit(_called, work, ready)
    return queued


def _called(work: Work, ready: Ready) -> _Call:
    start = time.perf_counter()
    outputs = work.infer(ready.arrays, ready.contexts)
    return _Call(outputs, start, time.perf_counter())


def _step(ready: Ready, call: Future[_Call] | _Call, run: _Run) -> None:
    """Take the result of a call: update the metric, keep the records, count."""
    outputs, start, end = call if isinstance(call, _Call) else call.result()
    run.waited("wait_engine")
    record, samples = None, len(ready.batch.names)
    if ready.arrays is not None and ready.batch.targets is not None:
        run.work.inferred += samples
        predictions = _decoded(run.work, outputs, ready)
        record = run.metric.update(predictions, ready.batch.targets, ready.contexts)
        run.timeline.add("inference", start, end, samples)
        run.timed_samples += samples
        run.buffers.put(ready.arrays, outputs)
    for keep in run.keep:
        keep(ready.whole, record, ready.good, ready.failures, ready.nan_inputs)
    run.count(ready.failures, ready.nan_inputs, samples if ready.arrays is not None else 0)
    before = run.mark
    run.waited("postprocess")
    if run.on_step is not None and ready.arrays is not None:
        run.on_step(_step_line(run.steps, samples, end - start, run.mark - before, run.timeline))


def _decoded(work: Work, outputs: Any, ready: Ready) -> Any:
    """Return the predictions, one per sample; of an array the metric says more precisely what does not fit."""
    predictions, count = work.decode(outputs, ready.contexts), len(ready.batch.names)
    if isinstance(predictions, (list, tuple)) and len(predictions) != count:
        raise ConfigError(f"{work.name} gave {len(predictions)} answers for {count} samples; give one per sample")
    return predictions


def _step_line(step: int, samples: int, inference: float, postprocess: float, timeline: Timeline) -> str:
    return (
        f"step {step}: samples: {samples}, inference_time: {inference:.6f}, postprocess: {postprocess:.6f}, "
        f"avg_preprocess_time: {timeline.mean('preprocess'):.6f}"
    )


def _replay(journal: Journal, batches: Iterator[Batch], run: _Run) -> None:
    """Take the finished steps from the journal, as if they had been run now."""
    for step, batch in zip(journal.replayed(), batches, strict=False):
        if step.record is not None:
            run.metric.replay(step.record)
        for keep in run.keep:
            keep(batch, step.record, step.good, step.failures, step.nan_inputs)
        samples = step.size if step.good is None else len(step.good)
        run.count(step.failures, step.nan_inputs, 0 if step.record is None else samples)
    run.resumed = run.steps


def _writer(records: RecordsFile) -> Keep:
    return lambda batch, record, good, *_: records.write(batch, record, good)


def _appender(journal: Journal) -> Keep:
    from utils.pipeline.journal import Step

    def append(
        batch: Batch,
        record: Array | Records | None,
        good: tuple[int, ...] | None,
        failures: Sequence[Failure],
        nan_inputs: Sequence[str],
    ) -> None:
        journal.append(Step(len(batch.names), record, good, tuple(failures), tuple(nan_inputs)))

    return append


def _so_far(run: _Run, total: int | None, journal: Journal | None) -> str:
    so_far = f", {run.metric.name} {run.metric.compute():.6f} so far" if run.samples else ""
    go_on = "; the same command goes on from here" if journal is not None else ""
    return f"after step {run.steps}{f' of {total}' if total else ''} ({run.samples} samples{so_far}){go_on}"


def _report(run: _Run, finished: bool) -> Report:
    from utils.pipeline.report import Report

    wall, line, work = run.ended - run.started, run.timeline, run.work
    work.note_calls(line)
    inside = line.seconds("disk") + line.seconds("decode")
    busy = {stage: line.seconds(stage) for stage in ("disk", "decode")}
    busy |= {"preprocess": max(0.0, line.seconds("preprocess") - inside), "engine": line.seconds("inference")}
    return Report(
        metric_name=run.metric.name,
        metric=run.metric.compute() if run.samples else math.nan,
        samples=run.samples,
        steps=run.steps,
        e2e_time=wall,
        avg_sps=run.timed_samples / wall,
        avg_inference_time=line.mean("inference"),
        avg_preprocess_time=line.mean("preprocess"),
        avg_postprocess=line.mean("postprocess"),
        wait_time=line.seconds("wait"),
        wait_engine_time=line.seconds("wait_engine"),
        postprocess_time=line.seconds("postprocess"),
        busy=busy | {"postprocess": line.seconds("postprocess")},
        core_share=(run.cpu_seconds() - run.cpu) / (wall * usable_cores()),
        disk_bytes=run.disk_bytes(),
        engine=work.describe(),
        simulated=work.simulated,
        device=work.device_report(),
        failures=run.failures,
        nan_inputs=run.nan_inputs,
        finished=finished,
        resumed_steps=run.resumed,
        higher_is_better=run.metric.higher_is_better,
        secondary=dict(run.metric.secondary()) if run.samples else {},
        figures=work.figures(line, run.timed_samples),
        task=work.task,
        advice=work.advice,
        state=run.metric,
    )


def predict(
    engine: Infer,
    batches: Iterable[Batch],
    preprocess: Preprocess,
    postprocess: Callable[[Any], Sequence[Any]],
    **how: Any,
) -> Iterator[Answer]:
    """Yield the model's answer to every sample, in order.

    Args:
        engine, batches, preprocess: as in :func:`evaluate`; targets are not needed.
        postprocess: the engine's output to one answer per sample, also for a batch of one.
        how: the keywords of :func:`predict_work`; ``failures`` must be among them.
    """
    return predict_work(Work.plain(engine, preprocess, postprocess), batches, **how)


def predict_work(
    work: Work,
    batches: Iterable[Batch],
    *,
    failures: list[Failure],
    workers: int | None = None,
    worker_mode: str = "thread",
    on_step: OnStep | None = None,
) -> Iterator[Answer]:
    """Yield the answer to every sample, in order.

    Args:
        work, batches, workers, worker_mode, on_step: as in :func:`evaluate_work`.
        failures: samples that cannot be run are appended here.

    An int8 engine chooses its ranges from the samples there are.
    """
    failures += _rejected(batches)
    timeline = Timeline()
    _calibrate(work, batches)
    with closing(prepared(batches, work.front, timeline, workers, None, worker_mode, detailed=False)) as stages:
        for step, ready in enumerate(stages, 1):
            failures += ready.failures
            if ready.arrays is None:
                continue
            start = time.perf_counter()
            outputs = work.infer(ready.arrays, ready.contexts)
            middle = time.perf_counter()
            answers = work.decode(outputs, ready.contexts)
            names = ready.batch.names
            if on_step is not None:
                on_step(_step_line(step, len(names), middle - start, time.perf_counter() - middle, timeline))
            if len(answers) != len(names):
                raise ConfigError(
                    f"{work.name} gave {len(answers)} answers for {len(names)} samples; give one per sample"
                )
            yield from map(Answer, names, answers, ready.batch.samples)


def _rejected(batches: Iterable[Batch]) -> list[Failure]:
    dataset = dataset_of(batches)
    return [] if dataset is None else [Failure(str(path), reason) for path, reason in dataset.rejected]


def _steps(batches: Iterable[Batch], max_steps: int) -> int | None:
    total = len(batches) if isinstance(batches, Sized) else None
    return total if max_steps < 1 else min(max_steps, total if total is not None else max_steps)
