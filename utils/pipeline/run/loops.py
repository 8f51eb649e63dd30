"""The loops of the scripts: :func:`evaluate` over a labelled data set, :func:`predict` over any samples.

Both take plain functions; :func:`evaluate_pipeline` and :func:`predict_pipeline` take a task on its engines
(:class:`Pipeline`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from engine import DataError, TecoInferError, Timeline
from tecoinfer_modelzoo.progress import progress
from tecoinfer_modelzoo.text import reason_of
from utils.datasets.base import Batch, dataset_of
from utils.datasets.sharding import rank_and_size
from utils.metrics.base import Metric
from utils.pipeline.ahead import prepared
from utils.pipeline.run.function_task import as_pipeline
from utils.pipeline.run.interrupt import telling
from utils.pipeline.run.pipeline import Failure, Inferred, Pipeline, PreparedBatch, blame_nan, nothing_evaluated
from utils.pipeline.run.run_state import OnStep, RunState, add_counts, mismatch, step_line
from utils.stuck import watching
from utils.tasks.prepared import NoAnswer

if TYPE_CHECKING:
    from concurrent.futures import Future

    from utils.pipeline.report.report import Report
    from utils.pipeline.resume.journal import Journal
    from utils.pipeline.resume.records import RecordsFile


class Answer(NamedTuple):
    """The model's answer to one sample.

    Attributes:
        name: of the sample. answer: the prediction. sample: as the data set returned it.
        nan_input, nan_output: the sample's input or output holds NaN; with NaN in the output, ``answer`` is invalid.
    """

    name: str
    answer: Any
    sample: Any = None
    nan_input: bool = False
    nan_output: bool = False


def evaluate(
    engine: Callable[[Any], Any],
    batches: Iterable[Batch],
    preprocess: Callable[..., Any],
    postprocess: Callable[[Any], Any],
    metric: Metric,
    **how: Any,
) -> Report:
    """Run a labelled data set through an engine and measure it.

    Batches are preprocessed ahead in threads, and an engine computes as many calls at the same time as it has streams.
    Results are taken in order, so they equal those of a plain loop bit for bit at any setting.

    Args:
        engine: an open engine, or any callable from arrays to arrays.
        batches: samples and targets (:class:`utils.datasets.base.Batches`).
        preprocess: samples to one array, or a list of arrays, with the batch first. With a keyword ``out``, it writes
            into the given array, which is reused for later batches.
        postprocess: the engine's output to predictions for ``metric``. metric: updated with every batch.
        how: the keywords of :func:`evaluate_pipeline`.

    Raises:
        DataError: no sample could be run, or a batch has no targets.
        KeyboardInterrupt: the user interrupted; its message has the progress.
    """
    return evaluate_pipeline(as_pipeline(engine, preprocess, postprocess), batches, metric, **how)


def evaluate_pipeline(
    pipeline: Pipeline,
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
    """Run a labelled data set through a task and measure it; see :func:`evaluate`.

    Samples that could not be read are in ``failures`` of the report and not in the metric.

    Args:
        pipeline: a task on its engines. batches: samples and targets. metric: updated with every batch.
        max_steps: number of batches to run; 0 or less: all.
        warmup: number of first steps that count for the metric but not for the timing (unless all steps are).
        workers: preprocessing threads; ``None``: one per core; 0: preprocess in the loop.
        worker_mode: ``"process"``: one child process per preprocessing thread; see :func:`.ahead.prepared`.
        on_step: called after every step with a line of its timings.
        journal: finished steps, which are not run again; new steps are added.
        records: takes the metric's records of every sample.
    """
    run = RunState(Timeline(), 0.0, _rejected(batches), metric, pipeline, on_step, warmup, worker_mode=worker_mode)
    rest, total = iter(batches), _steps(batches, max_steps)
    if records is not None:
        run.keep.append(lambda batch, step: records.write(batch, step.record, step.good))
    if journal is not None:
        _replay(journal, rest, run)
        run.keep.append(lambda _, step: journal.append(step))
    if max_steps > 0:
        rest = islice(rest, max(0, max_steps - run.steps))
    _calibrate(pipeline, batches)
    workers = 0 if total is not None and total - run.steps == 1 else workers  # one batch is quicker without threads
    run.start()
    with telling(lambda: _so_far(run, total, journal)), watching(pipeline.engines, lambda: f"step {run.steps + 1}"):
        _loop(rest, run, workers, None if total is None else total - run.steps)
    run.ended = time.perf_counter()
    run.timeline.add("wait", run.mark, run.ended)  # for the threads to end
    if not run.samples and rank_and_size()[1] == 1:  # one process of several may have no samples
        raise nothing_evaluated(run.failures)
    if journal is not None:
        journal.keep_hints(run.current_hints())
    return run.report(finished=not 0 < max_steps <= run.steps or run.steps == _steps(batches, -1))


def _calibrate(pipeline: Pipeline, batches: Iterable[Batch]) -> None:
    """Calibrate the engines that need it."""
    if any(engine.calibration_samples for engine in pipeline.engines.values()):
        from utils.pipeline.run.calibration import calibrate

        calibrate(pipeline, batches)


def _loop(batches: Iterable[Batch], run: RunState, workers: int | None, total: int | None) -> None:
    """Feed the engine, and take its results in order."""
    pipeline = run.pipeline
    streams = pipeline.streams if workers != 0 else 0
    limit = streams + 1 if streams else 0  # one call more than the engine computes, so that it never waits
    pending: deque[tuple[PreparedBatch, Inferred | Future[Inferred] | None]] = deque()
    # Closed here and not by the garbage collector: an error must not leave the preprocessing threads running.
    with closing(
        prepared(batches, pipeline.preprocessor, run.timeline, workers, run.buffers, run.worker_mode)
    ) as stages:
        try:
            for ready in progress(stages, "batch", total=total):
                now = time.perf_counter()
                run.timeline.add("wait", run.mark, now)
                run.mark = now
                if 0 < run.warmup <= run.steps - run.resumed:
                    run.warmup = 0
                    run.start()
                if ready.arrays is not None and ready.batch.targets is None:
                    raise DataError(f"{ready.batch.names[0]} has no label; pass {pipeline.labelled}")
                pending.append((ready, pipeline.start(ready, streams)))
                while len(pending) > limit:
                    run.finish_step(*pending.popleft())
            while pending:
                run.finish_step(*pending.popleft())
        except KeyboardInterrupt:
            pipeline.cancel()
            raise
        finally:
            for _, call in pending:
                if call is not None and not isinstance(call, Inferred):
                    call.cancel()


def _replay(journal: Journal, batches: Iterator[Batch], run: RunState) -> None:
    """Take the finished steps from the journal as if they had been run now.

    Raises ConfigError if a step does not belong to this data set, or its record not to this metric.
    """
    for step in journal.replayed():
        batch = next(batches, None)
        if batch is None:
            raise journal.wrong(run.steps, f"the data set has {run.steps} steps only")
        why = mismatch(step, batch.names, run.metric)
        if why:
            raise journal.wrong(run.steps, why)
        if step.record is not None:
            try:
                run.metric.replay(step.record)
            except (TecoInferError, ValueError, TypeError, LookupError, AttributeError) as error:
                raise journal.wrong(run.steps, reason_of(error)) from error
        for keep in run.keep:
            keep(batch, step)
        run.add(step)
    run.resumed, run.hints = run.steps, list(journal.hints)


def _so_far(run: RunState, total: int | None, journal: Journal | None) -> str:
    so_far = f", {run.metric.name} {run.metric.compute():.6f} so far" if run.samples else ""
    go_on = "; the same command goes on from here" if journal is not None else ""
    return f"after step {run.steps}{f' of {total}' if total else ''} ({run.samples} samples{so_far}){go_on}"


def predict(
    engine: Callable[[Any], Any],
    batches: Iterable[Batch],
    preprocess: Callable[..., Any],
    postprocess: Callable[[Any], Sequence[Any]],
    **how: Any,
) -> Iterator[Answer]:
    """Yield the model's answer to every sample, in order.

    Args:
        engine, batches, preprocess: as in :func:`evaluate`; targets are not needed.
        postprocess: the engine's output to one answer per sample, also for a batch of one.
        how: the keywords of :func:`predict_pipeline`; ``failures`` must be among them.
    """
    return predict_pipeline(as_pipeline(engine, preprocess, postprocess), batches, **how)


def predict_pipeline(
    pipeline: Pipeline,
    batches: Iterable[Batch],
    *,
    failures: list[Failure],
    workers: int | None = None,
    worker_mode: str = "thread",
    on_step: OnStep | None = None,
    counts: dict[str, int] | None = None,
    timeline: Timeline | None = None,
) -> Iterator[Answer]:
    """Yield the answer to every sample, in order; an int8 engine is calibrated from these samples.

    Args:
        pipeline, batches, workers, worker_mode, on_step: as in :func:`evaluate_pipeline`.
        failures: samples that cannot be run are appended here. counts: the task's ``warning_counts`` are added here.
        timeline: times and workload of the batches are added here.
    """
    failures += _rejected(batches)
    timeline = timeline or Timeline()
    _calibrate(pipeline, batches)
    mark, step = time.perf_counter(), 0
    stages = prepared(batches, pipeline.preprocessor, timeline, workers, None, worker_mode, detailed=False)
    with closing(stages), watching(pipeline.engines, lambda: f"step {step}"):
        for step, ready in enumerate(stages, 1):
            failures += ready.failures
            if ready.arrays is None:
                continue
            if counts is not None and pipeline.warning_counts is not None:
                add_counts(counts, pipeline.warning_counts(ready.contexts))
            names, found = ready.batch.names, pipeline.infer(ready.arrays, ready.contexts, len(ready.batch.names))
            middle = time.perf_counter()
            try:
                answers = pipeline.predictions(found.outputs, ready.contexts, len(names))
            except Exception as error:
                blame_nan(error, found, names)
                raise
            after = time.perf_counter() - middle
            _add_times(timeline, pipeline, ready, found, mark, after)
            if on_step is not None:
                on_step(step_line(step, len(names), found.end - found.start, after, timeline))
            lost, nan = found.flaws.lost(answers).tolist(), set(ready.nan_inputs)
            with_nan = [name in nan or not nan.issubset(names) for name in names]  # of an unknown sample: all
            for row in map(Answer, names, answers, ready.batch.samples, with_nan, lost):
                if isinstance(row.answer, NoAnswer):
                    failures.append(Failure(row.name, row.answer.reason))
                else:
                    yield row
            mark = time.perf_counter()


def _add_times(
    timeline: Timeline, pipeline: Pipeline, ready: PreparedBatch, found: Inferred, mark: float, after: float
) -> None:
    """Add the times of a batch since ``mark``, of which ``after`` seconds were decoding, and its workload."""
    timeline.add("wait", mark, found.start)
    for stage in ("wait_engine", "inference"):
        timeline.add(stage, found.start, found.end, len(ready.batch.names))
    timeline.add("postprocess", found.end, found.end + after)
    if pipeline.workload is not None:
        for what, amount in pipeline.workload(found.outputs, ready.contexts).items():
            timeline.gain(what, amount)


def _rejected(batches: Iterable[Batch]) -> list[Failure]:
    dataset = dataset_of(batches)
    return [] if dataset is None else [Failure(str(path), reason) for path, reason in dataset.rejected]


def _steps(batches: Iterable[Batch], max_steps: int) -> int | None:
    total = len(batches) if isinstance(batches, Sized) else None
    return total if max_steps < 1 else min(max_steps, total if total is not None else max_steps)
