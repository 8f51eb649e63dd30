"""The loops every script shares: :func:`evaluate` over a labelled data set, :func:`predict` over anything.

Both take plain functions; :func:`evaluate_pipeline` and :func:`predict_pipeline` take a task on its engines
(:class:`Pipeline`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import closing, contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from engine import ConfigError, DataError, EngineError, TecoInferError, Timeline
from tecoinfer_modelzoo.progress import progress
from tecoinfer_modelzoo.text import reason_of
from utils.datasets.base import Batch, dataset_of
from utils.datasets.sharding import rank_and_size
from utils.metrics.base import Metric
from utils.metrics.class_names import WrongLabelError
from utils.pipeline.ahead import prepared
from utils.pipeline.run.interrupt import telling
from utils.pipeline.run.nan import named
from utils.pipeline.run.pipeline import Inferred, Pipeline
from utils.pipeline.run.prepare import Failure, FunctionTask, PreparedBatch, nothing_evaluated, without_unanswered
from utils.pipeline.run.step import Step, foreign
from utils.stuck import watching
from utils.tasks.prepared import NoAnswer

if TYPE_CHECKING:
    from concurrent.futures import Future

    from utils.pipeline.report.report import Report
    from utils.pipeline.resume.journal import Journal
    from utils.pipeline.resume.records import RecordsFile
    from utils.pipeline.run.run_state import Keep, OnStep, RunState

_Call: TypeAlias = "Inferred | Future[Inferred] | None"
"""What an engine computed, or is to; ``None`` where no sample of the batch could be preprocessed."""


def _of_functions(engine: Any, preprocess: Callable[..., Any], postprocess: Callable[[Any], Any]) -> Pipeline:
    engines: dict[str, Any] = {"model": engine} if hasattr(engine, "timeline") else {}
    return Pipeline(FunctionTask(engine, preprocess, postprocess), engines)


class Answer(NamedTuple):
    """What the model says of one sample.

    ``nan_input`` and ``nan_output`` say that the sample's input or output holds NaN; with the latter it is no answer.
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

    Batches are preprocessed ahead in threads, and an engine computes as many calls side by side as it has streams.
    Results are taken in order, so they are those of a plain loop, bit for bit, at any setting.

    Args:
        engine: an open engine, or any callable from arrays to arrays.
        batches: samples and targets (:class:`utils.datasets.base.Batches`).
        preprocess: samples to one array, or a list of arrays, with the batch first. One that takes the keyword ``out``
            writes into the array it is given there, which is used again for later batches.
        postprocess: the engine's output to what ``metric`` takes.
        metric: updated with every batch.
        how: the keywords of :func:`evaluate_pipeline`.

    Raises:
        DataError: no sample could be run, or a batch has no targets.
        KeyboardInterrupt: the user interrupted; its text says how far the run got.
    """
    return evaluate_pipeline(_of_functions(engine, preprocess, postprocess), batches, metric, **how)


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
    """Run a labelled data set through what a task does and measure it, as :func:`evaluate` says.

    Args:
        pipeline: a task on its engines.
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
    from utils.pipeline.run.run_state import RunState  # an evaluation's; single samples start without it

    run = RunState(Timeline(), 0.0, _rejected(batches), metric, pipeline, on_step, warmup, worker_mode=worker_mode)
    rest, total = iter(batches), _steps(batches, max_steps)
    if records is not None:
        run.keep.append(_writer(records))
    if journal is not None:
        _replay(journal, rest, run)
        run.keep.append(_appender(journal))
    if max_steps > 0:
        rest = islice(rest, max(0, max_steps - run.steps))
    _calibrate(pipeline, batches)
    workers = 0 if total is not None and total - run.steps == 1 else workers  # threads would only cost their start
    run.start()
    with (
        telling(lambda: _so_far(run, total, journal)),
        watching(pipeline.engines, lambda: f"step {run.steps + 1}"),
    ):
        _loop(rest, run, workers, None if total is None else total - run.steps)
    run.ended = time.perf_counter()
    run.timeline.add("wait", run.mark, run.ended)  # for the threads to end
    _check_any(run)
    if journal is not None:
        journal.keep_hints(run.found_odd())
    return run.report(finished=not 0 < max_steps <= run.steps or run.steps == _steps(batches, -1))


def _calibrate(pipeline: Pipeline, batches: Iterable[Batch]) -> None:
    """Let engines choose their ranges, where any has to."""
    if any(engine.calibration_samples for engine in pipeline.engines.values()):
        from utils.pipeline.run.calibration import calibrate

        calibrate(pipeline, batches)


def _check_any(run: RunState) -> None:
    """Raise where nothing was run; one part of several may be empty."""
    if not run.samples and rank_and_size()[1] == 1:
        raise nothing_evaluated(run.failures)


def _loop(batches: Iterable[Batch], run: RunState, workers: int | None, total: int | None) -> None:
    """Feed the engine, and take its results in order."""
    pipeline = run.pipeline
    streams = pipeline.streams if workers != 0 else 0
    side_by_side = streams + 1 if streams else 0  # one call more than the engine computes, so that it never waits
    under_way: deque[tuple[PreparedBatch, _Call]] = deque()
    # Closed here, not when the collector comes by: an error must not leave the preprocessing threads running.
    with closing(
        prepared(batches, pipeline.preprocessor, run.timeline, workers, run.buffers, run.worker_mode)
    ) as stages:
        try:
            for ready in progress(stages, "batch", total=total):
                run.waited("wait")
                run.end_warmup()
                _refuse_unlabelled(ready, pipeline)
                under_way.append((ready, _started(pipeline, ready, streams)))
                while len(under_way) > side_by_side:
                    _step(*under_way.popleft(), run)
            while under_way:
                _step(*under_way.popleft(), run)
        except KeyboardInterrupt:
            pipeline.cancel()
            raise
        finally:
            _give_up(under_way)


def _refuse_unlabelled(ready: PreparedBatch, pipeline: Pipeline) -> None:
    if ready.arrays is not None and ready.batch.targets is None:
        raise DataError(f"{ready.batch.names[0]} has no label; pass {pipeline.labelled}")


def _give_up(under_way: Iterable[tuple[PreparedBatch, _Call]]) -> None:
    """Cancel the calls that nobody will take the results of."""
    for _, call in under_way:
        if call is not None and not isinstance(call, Inferred):
            call.cancel()


def _started(pipeline: Pipeline, ready: PreparedBatch, streams: int) -> _Call:
    """Let an engine compute a batch; ``None`` where no sample of it could be preprocessed."""
    if ready.arrays is None:
        return None
    if not streams:
        return _called(pipeline, ready)
    queued: Future[Inferred] = pipeline.queue.submit(_called, pipeline, ready)
    return queued


def _called(pipeline: Pipeline, ready: PreparedBatch) -> Inferred:
    return pipeline.infer(ready.arrays, ready.contexts, len(ready.batch.names))


def _step(ready: PreparedBatch, call: _Call, run: RunState) -> None:
    """Take the result of a call: update the metric, keep the records, count."""
    found = call if call is None or isinstance(call, Inferred) else call.result()
    run.waited("wait_engine")
    record, lost, names = None, list[str](), ready.batch.names
    if found is not None and ready.batch.targets is not None:
        run.pipeline.inferred += len(names)
        with _blamed(found, names):
            predictions = _decoded(run.pipeline, found.outputs, ready)
            answered, kept = without_unanswered(ready, predictions)
            if answered.batch.names:
                with _located(answered.batch.names):
                    record = run.metric.update(kept, answered.batch.targets, answered.contexts)  # type: ignore[arg-type]
            if run.pipeline.diagnostics is not None:
                run.pipeline.diagnostics.see(found.outputs, ready.contexts, ready.batch.targets)
            if run.pipeline.writer is not None:
                run.pipeline.writer.see(answered.batch, kept)
        lost = named(found.flaws.lost(predictions), names)
        lost = lost if answered is ready else [name for name in lost if name in set(answered.batch.names)]
        run.timeline.add("inference", found.start, found.end, len(names))
        for what, amount in run.pipeline.task.workload(found.outputs, ready.contexts).items():
            run.timeline.gain(what, amount)
        run.timed_samples += len(names)
        run.buffers.put(ready.arrays, found.outputs)
        ready = answered
    failures, nan_inputs = tuple(ready.failures), tuple(ready.nan_inputs)
    counts = run.pipeline.task.warning_counts(ready.contexts)
    step = Step(len(ready.whole.names), record, ready.good, failures, nan_inputs, tuple(lost), counts)
    for keep in run.keep:
        keep(ready.whole, step)
    run.count(step)
    before = run.mark
    run.waited("postprocess")
    if run.on_step is not None and found is not None:
        run.on_step(_step_line(run.steps, len(names), found.end - found.start, run.mark - before, run.timeline))


@contextmanager
def _located(names: Sequence[str]) -> Iterator[None]:
    """Say of a label that is none which sample has it: where a data set has a line per sample, the line."""
    try:
        yield
    except WrongLabelError as error:
        raise DataError(f"{names[error.place]}: {error}") from error


@contextmanager
def _blamed(found: Inferred, names: Sequence[str]) -> Iterator[None]:
    """Say of an error that it comes from outputs with NaN, where there are any: not everything takes that."""
    try:
        yield
    except ConfigError:  # no output is to blame for that
        raise
    except (TecoInferError, ValueError, ArithmeticError, LookupError) as error:
        bad = named(found.flaws.nan, names)
        if not bad:
            raise
        fix = "find the node with `teco overflow`, or use --dtype float32"
        raise EngineError(f"{bad[0]}: the model's output holds NaN ({reason_of(error)}); {fix}") from error


def _decoded(pipeline: Pipeline, outputs: Any, ready: PreparedBatch) -> Any:
    """Return the predictions, one per sample; of an array the metric says more precisely what does not fit."""
    predictions, count = pipeline.decode(outputs, ready.contexts), len(ready.batch.names)
    if isinstance(predictions, (list, tuple)) and len(predictions) != count:
        raise ConfigError(
            f"{pipeline.decode_name} gave {len(predictions)} answers for {count} samples; give one per sample"
        )
    return predictions


def _step_line(step: int, samples: int, inference: float, postprocess: float, timeline: Timeline) -> str:
    return (
        f"step {step}: samples: {samples}, inference_time: {inference:.6f}, postprocess: {postprocess:.6f}, "
        f"avg_preprocess_time: {timeline.mean('preprocess'):.6f}"
    )


def _replay(journal: Journal, batches: Iterator[Batch], run: RunState) -> None:
    """Take the finished steps from the journal, as if they had been run now.

    Raises:
        ConfigError: a step is none of this data set's, or its record none of this metric's.
    """
    for step in journal.replayed():
        batch = next(batches, None)
        if batch is None:
            raise journal.wrong(run.steps, f"the data set has {run.steps} steps only")
        why = foreign(step, batch.names, run.metric)
        if why:
            raise journal.wrong(run.steps, why)
        if step.record is not None:
            try:
                run.metric.replay(step.record)
            except (TecoInferError, ValueError, TypeError, LookupError, AttributeError) as error:
                raise journal.wrong(run.steps, reason_of(error)) from error
        for keep in run.keep:
            keep(batch, step)
        run.count(step)
    run.resumed, run.hints = run.steps, list(journal.hints)


def _writer(records: RecordsFile) -> Keep:
    return lambda batch, step: records.write(batch, step.record, step.good)


def _appender(journal: Journal) -> Keep:
    return lambda _, step: journal.append(step)


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
    return predict_pipeline(_of_functions(engine, preprocess, postprocess), batches, **how)


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
    """Yield the answer to every sample, in order.

    Args:
        pipeline, batches, workers, worker_mode, on_step: as in :func:`evaluate_pipeline`.
        failures: samples that cannot be run are appended here.
        counts: what the task counts of the samples is added here.
        timeline: what the batches took, and what went by in them, is added here.

    An int8 engine chooses its ranges from the samples there are.
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
            if counts is not None:
                for name, count in pipeline.task.warning_counts(ready.contexts).items():
                    counts[name] = counts.get(name, 0) + count
            names, found = ready.batch.names, _called(pipeline, ready)
            middle = time.perf_counter()
            with _blamed(found, names):
                answers = pipeline.decode(found.outputs, ready.contexts)
            after = time.perf_counter() - middle
            _noted(timeline, pipeline, ready, found, mark, after)
            if on_step is not None:
                on_step(_step_line(step, len(names), found.end - found.start, after, timeline))
            if len(answers) != len(names):
                raise ConfigError(
                    f"{pipeline.decode_name} gave {len(answers)} answers for {len(names)} samples; give one per sample"
                )
            lost = found.flaws.lost(answers).tolist()
            for row in map(Answer, names, answers, ready.batch.samples, _with_nan(ready), lost):
                if isinstance(row.answer, NoAnswer):
                    failures.append(Failure(row.name, row.answer.reason))
                else:
                    yield row
            mark = time.perf_counter()


def _noted(
    timeline: Timeline, pipeline: Pipeline, ready: PreparedBatch, found: Inferred, mark: float, after: float
) -> None:
    """Note what a batch took since ``mark`` (``after`` seconds of it were decoding), and what went by in it."""
    timeline.add("wait", mark, found.start)
    for stage in ("wait_engine", "inference"):
        timeline.add(stage, found.start, found.end, len(ready.batch.names))
    timeline.add("postprocess", found.end, found.end + after)
    for what, amount in pipeline.task.workload(found.outputs, ready.contexts).items():
        timeline.gain(what, amount)


def _with_nan(ready: PreparedBatch) -> list[bool]:
    """Say of each sample whether its input holds NaN: of all, where there is no telling which."""
    found = set(ready.nan_inputs)
    unknown = not found.issubset(ready.batch.names)
    return [unknown or name in found for name in ready.batch.names]


def _rejected(batches: Iterable[Batch]) -> list[Failure]:
    dataset = dataset_of(batches)
    return [] if dataset is None else [Failure(str(path), reason) for path, reason in dataset.rejected]


def _steps(batches: Iterable[Batch], max_steps: int) -> int | None:
    total = len(batches) if isinstance(batches, Sized) else None
    return total if max_steps < 1 else min(max_steps, total if total is not None else max_steps)
