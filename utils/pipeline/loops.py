"""The loops every script shares: :func:`evaluate` over a labelled data set, :func:`predict` over anything."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.base import Array, ConfigError, DataError
from engine.timeline import Timeline
from utils.datasets.samples import Batch
from utils.metrics.base import Metric
from utils.pipeline.stages import Failure, Preprocess, prepared

if TYPE_CHECKING:
    from utils.pipeline.report import Report

Infer = Callable[[Any], "Array | list[Array]"]
OnStep = Callable[[str], None]


class Answer(NamedTuple):
    """What the model says of one sample."""

    name: str
    answer: Any


@dataclass(slots=True)
class _Run:
    """What accumulates over the steps of an evaluation."""

    timeline: Timeline
    started: float
    failures: list[Failure]
    nan_inputs: list[str]
    steps: int = 0
    samples: int = 0
    timed_samples: int = 0
    ended: float = 0.0


def evaluate(
    engine: Infer,
    batches: Iterable[Batch],
    preprocess: Preprocess,
    postprocess: Callable[[Any], Array],
    metric: Metric,
    *,
    max_steps: int = -1,
    warmup: int = 0,
    workers: int | None = None,
    on_step: OnStep | None = None,
) -> Report:
    """Run a labelled data set through an engine and measure it.

    Args:
        engine: an open engine, or any callable from arrays to arrays.
        batches: samples and labels (:class:`utils.datasets.samples.Batches`).
        preprocess: samples to one array, or a list of arrays, with the batch first.
        postprocess: the engine's output to what ``metric`` takes.
        metric: updated with every batch.
        max_steps: stop after so many batches; 0 or less means all.
        warmup: the first steps, which count for the metric but not for the timing (unless nothing else is left).
        workers: preprocessing threads; ``None`` takes one per core, 0 preprocesses in the loop itself.
        on_step: called after every step with a line of its timings.

    Returns:
        The metric and timing. Samples that could not be read are in ``failures`` and not in the metric.

    Raises:
        DataError: no sample could be run, or a batch has no labels.
    """
    run = _Run(Timeline(), time.perf_counter(), _rejected(batches), [])
    # Closed here, not when the collector comes by: an error must not leave the preprocessing threads running.
    with closing(prepared(_first(batches, max_steps), preprocess, run.timeline, workers)) as stages:
        waiting = run.started
        for ready in _progress(stages, _steps(batches, max_steps)):
            run.timeline.add("wait", waiting, time.perf_counter())
            if run.steps == warmup and warmup > 0:
                run.timeline.clear()
                run.started, run.timed_samples = time.perf_counter(), 0
            run.failures += ready.failures
            run.nan_inputs += ready.nan_inputs
            run.steps += 1
            if ready.arrays is not None:
                _step(engine, ready.batch, ready.arrays, postprocess, metric, run, on_step)
            waiting = time.perf_counter()
    run.ended = time.perf_counter()
    run.timeline.add("wait", waiting, run.ended)  # for the threads to end
    if not run.samples:
        reasons = "; ".join(f"{f.name}: {f.reason}" for f in run.failures[:3])
        raise DataError(f"no sample could be evaluated{': ' + reasons if reasons else '; check the data set'}")
    return _report(engine, metric, run, finished=not 0 < max_steps <= run.steps or run.steps == _steps(batches, -1))


def _step(
    engine: Infer,
    batch: Batch,
    arrays: list[Array],
    postprocess: Callable[[Any], Array],
    metric: Metric,
    run: _Run,
    on_step: OnStep | None,
) -> None:
    if batch.labels is None:
        raise DataError(f"{batch.names[0]} has no label; pass class folders, a label file, or an .npz with labels")
    start = time.perf_counter()
    outputs = engine(arrays)
    middle = time.perf_counter()
    metric.update(postprocess(outputs), batch.labels)
    end = time.perf_counter()
    run.timeline.add("inference", start, middle, len(batch.names))
    run.timeline.add("postprocess", middle, end, len(batch.names))
    run.samples += len(batch.names)
    run.timed_samples += len(batch.names)
    if on_step is not None:
        on_step(_step_line(run.steps, len(batch.names), middle - start, end - middle, run.timeline))


def _step_line(step: int, samples: int, inference: float, postprocess: float, timeline: Timeline) -> str:
    return (
        f"step {step}: samples: {samples}, inference_time: {inference:.6f}, postprocess: {postprocess:.6f}, "
        f"avg_preprocess_time: {timeline.mean('preprocess'):.6f}"
    )


def _report(engine: Infer, metric: Metric, run: _Run, finished: bool) -> Report:
    from utils.pipeline.report import Report

    wall = run.ended - run.started
    return Report(
        metric_name=metric.name,
        metric=metric.compute(),
        samples=run.samples,
        steps=run.steps,
        e2e_time=wall,
        avg_sps=run.timed_samples / wall,
        avg_inference_time=run.timeline.mean("inference"),
        avg_preprocess_time=run.timeline.mean("preprocess"),
        avg_postprocess=run.timeline.mean("postprocess"),
        wait_time=run.timeline.seconds("wait"),
        engine=engine.describe() if hasattr(engine, "describe") else type(engine).__name__,
        simulated=bool(getattr(engine, "simulated", False)),
        device=engine.device_report() if hasattr(engine, "device_report") else {},
        failures=run.failures,
        nan_inputs=run.nan_inputs,
        finished=finished,
    )


def predict(
    engine: Infer,
    batches: Iterable[Batch],
    preprocess: Preprocess,
    postprocess: Callable[[Any], Sequence[Any]],
    *,
    failures: list[Failure],
    workers: int | None = None,
    on_step: OnStep | None = None,
) -> Iterator[Answer]:
    """Yield the model's answer to every sample, in order.

    Args:
        engine, batches, preprocess, workers, on_step: as in :func:`evaluate`; labels are not needed.
        postprocess: the engine's output to one answer per sample, also for a batch of one.
        failures: samples that cannot be run are appended here.
    """
    failures += _rejected(batches)
    timeline = Timeline()
    with closing(prepared(batches, preprocess, timeline, workers)) as stages:
        for step, ready in enumerate(stages, 1):
            failures += ready.failures
            if ready.arrays is None:
                continue
            start = time.perf_counter()
            outputs = engine(ready.arrays)
            middle = time.perf_counter()
            answers = postprocess(outputs)
            names = ready.batch.names
            if on_step is not None:
                on_step(_step_line(step, len(names), middle - start, time.perf_counter() - middle, timeline))
            if len(answers) != len(names):
                raise ConfigError(
                    f"postprocess gave {len(answers)} answers for {len(names)} samples; give one per sample"
                )
            yield from map(Answer, names, answers)


def _rejected(batches: Iterable[Batch]) -> list[Failure]:
    dataset = getattr(batches, "dataset", None)
    return [Failure(str(path), reason) for path, reason in getattr(dataset, "rejected", ())]


def _steps(batches: Iterable[Batch], max_steps: int) -> int | None:
    total = len(batches) if isinstance(batches, Sized) else None
    return total if max_steps < 1 else min(max_steps, total if total is not None else max_steps)


def _first(batches: Iterable[Batch], max_steps: int) -> Iterable[Batch]:
    if max_steps < 1:
        return batches
    from itertools import islice

    return islice(batches, max_steps)


def _progress(stages: Iterator[Any], total: int | None) -> Iterator[Any]:
    """Show a bar on a terminal; anything else (a file, a pipe, CI) stays quiet and does not even import tqdm."""
    if not sys.stderr.isatty():
        return stages
    from tqdm import tqdm

    bar: Iterator[Any] = iter(tqdm(stages, total=total, unit="batch"))
    return bar
