"""A load test from the parsed arguments to the written results."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from engine import ConfigError, Engine, TecoInferError, open_engine
from tecoexec.load import logs, results
from tecoexec.load.latency import queries_of
from tecoexec.load.loadgen import left_running, loadgen_version, require_loadgen, run_loadgen
from tecoexec.load.samples import RandomSamples, TaskSamples, bound, task_of
from tecoexec.load.settings import LoadSettings, load_settings
from tecoexec.request import Request, check_paced, open_request
from tecoinfer_modelzoo.interrupts import is_command
from tecoinfer_modelzoo.process.supervise import commit
from utils.pipeline.cli import COULD_NOT, warn
from utils.pipeline.report.report import write_json
from utils.pipeline.session import engine_spec
from utils.places import check_folder, check_paths

INVALID = 1
"""Exit code of a test whose result LoadGen calls invalid."""


_WARM_UPS = 3

_FASTEST = 50e-6  # seconds; a query takes longer for its way through LoadGen and the queue
_MOST_QUERIES = 1_000_000  # that LoadGen generates without --target_qps, each of which takes memory

_EXPECTED = {"SingleStream": 4.0, "MultiStream": 4.0, "Offline": 1.1, "Server": 1.0}
"""LoadGen generates its queries beforehand, for an expected rate; this over the one of the warm-up, by scenario.

Too few queries make the result invalid. Too many cost only memory, except for Offline, which computes all of them.
"""


def run(args: argparse.Namespace, request: Request) -> int:
    """Run a load test, print and write its results; return 0, or 1 if LoadGen calls the result invalid.

    Raises:
        ConfigError: a flag is invalid, the package is missing, or LoadGen refuses the test.
        TecoInferError: the engine failed, or a sample cannot be read.
    """
    settings = load_settings(args)
    if args.valid is not None:
        check_paths("--valid", args.valid)
    check_folder("--logs", settings.logs)
    require_loadgen()
    try:
        return _run(args, settings, request)
    except BaseException as error:
        if left_running() and is_command() and not isinstance(error, KeyboardInterrupt):
            _exit(error)
        raise


def _exit(error: BaseException) -> NoReturn:
    """Print an error, and end the process without the exit of the interpreter, which a running LoadGen makes fail."""
    from utils.pipeline.report.unforeseen import line_of

    warn(f"error: {error}" if isinstance(error, TecoInferError) else line_of(error))
    commit(COULD_NOT)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(COULD_NOT)


def _run(args: argparse.Namespace, settings: LoadSettings, request: Request) -> int:
    opened = _random(settings, request) if args.valid is None else _of_task(args, settings, request)
    with opened as (engine, samples, most):
        result = _tested(settings, samples, engine, most)
        sys.stdout.write("\n".join(results.lines(result, request, engine)) + "\n")
        if args.json is not None:
            write_json(results.to_dict(result, request, engine), args.json)
    return INVALID if result.loadgen.valid is False else 0


_Opened = tuple[Engine, RandomSamples | TaskSamples, int]
"""The engine, its samples, and the most samples of a call."""


@contextmanager
def _random(settings: LoadSettings, request: Request) -> Iterator[_Opened]:
    engine, shapes = open_request(request)
    with engine:
        samples = RandomSamples(request, engine, shapes, settings.samples)
        yield engine, samples, (settings.max_batch or shapes.batch) if samples.batched else 1


@contextmanager
def _of_task(args: argparse.Namespace, settings: LoadSettings, request: Request) -> Iterator[_Opened]:
    if request.shapes or request.dims:
        flag = "--input_shapes" if request.shapes else "--dim"
        raise ConfigError(f"{flag} is for random samples; leave it out with --valid, and use --max_batch")
    check_paced(request)
    task = task_of(args.valid, request)
    if "model" not in task.options.models:
        raise ConfigError(f"--valid {args.valid}: its task takes several models; LoadGen needs a task of one model")
    most = task.options.batch_size = settings.max_batch or task.options.batch_size
    spec = replace(
        engine_spec(task, "model", request.streams), paced=request.paced, simulate_only=request.simulate_only
    )
    with open_engine(request.target, spec) as engine:
        yield engine, bound(task, engine, None if args.samples is None else settings.samples), most


def _tested(
    settings: LoadSettings, samples: RandomSamples | TaskSamples, engine: Engine, most: int
) -> results.LoadResult:
    _make(settings.logs)
    workers = max(1, engine.streams)
    rate = _warm_up(samples, min(most, settings.samples_per_query or most))
    if settings.target_qps is None:
        expected = _EXPECTED[settings.scenario] * workers * rate
        most_expected = _MOST_QUERIES * (settings.samples_per_query or 1) / max(settings.min_duration, 1e-3)
        settings = replace(settings, expected_qps=min(expected, most_expected))
    if most > 1:
        _warm_up(samples, most)
    sut = run_loadgen(
        settings,
        samples.serve,
        count=samples.count,
        held=samples.held,
        load=samples.load,
        unload=samples.unload,
        max_batch=most,
        workers=workers,
    )
    version = loadgen_version()
    reported = logs.read_result(settings.logs, settings.scenario)
    metric = None
    if settings.accuracy:
        assert isinstance(samples, TaskSamples)  # noqa: S101 -- load_settings requires --valid
        metric = samples.metric(logs.read_accuracy(settings.logs))
    queries = queries_of(sut.served, settings, version)
    return results.LoadResult(settings, queries, tuple(sut.served), reported, version, metric, most, workers)


def _warm_up(samples: RandomSamples | TaskSamples, batch: int) -> float:
    """Compute a batch some times, so that no query waits for a first call; return the samples per second."""
    indices = [index % samples.count for index in range(batch)]
    samples.load(indices)
    samples.serve(indices)
    seconds = []
    for _ in range(_WARM_UPS):
        start = time.perf_counter()
        samples.serve(indices)
        seconds.append(time.perf_counter() - start)
    samples.unload(indices)
    return batch / max(min(seconds), _FASTEST)


def _make(folder: Path) -> None:
    """Create the folder of the logs, without those of an earlier test: LoadGen reports only to the process's output
    that it could not write."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in (logs.DETAIL, logs.SUMMARY, logs.ACCURACY, "mlperf_log_trace.json"):
            (folder / name).unlink(missing_ok=True)
            (folder / name).touch()
    except OSError as error:
        raise ConfigError(f"--logs {folder} cannot be used: {error.strerror}; choose another folder") from error
