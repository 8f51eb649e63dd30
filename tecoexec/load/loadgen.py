"""MLPerf's LoadGen: the only module that imports it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from engine import Array, ConfigError
from tecoexec.load.settings import MULTI_STREAM, LoadSettings
from tecoexec.load.sut import Respond, Serve, SystemUnderTest
from tecoinfer_modelzoo import install_command

_PATIENCE = 2.0  # seconds that LoadGen has to end after a failure

Load = Callable[[Sequence[int]], None]
"""Loads samples into memory, or removes them."""


_running: list[threading.Event] = []
"""Of each test whether it has ended."""


def left_running() -> bool:
    """Return whether a failed test still runs: LoadGen cannot be stopped, and then aborts the process at its exit."""
    return not all(ended.is_set() for ended in _running)


def require_loadgen() -> ModuleType:
    """Return the module; raise ConfigError if the package is missing or cannot be imported."""
    try:
        import mlperf_loadgen
    except ImportError as error:
        raise ConfigError(f"--scenario needs mlcommons-loadgen ({error}); run: {install_command('loadgen')}") from error
    module: ModuleType = mlperf_loadgen
    return module


def loadgen_version() -> str:
    """Return the version of the package; empty if it is not known."""
    try:
        return version("mlcommons-loadgen")
    except PackageNotFoundError:
        return ""


def run_loadgen(
    settings: LoadSettings,
    serve: Serve,
    *,
    count: int,
    held: int,
    load: Load,
    unload: Load,
    max_batch: int,
    workers: int,
) -> SystemUnderTest:
    """Run a load test to its end, and return the system under test with its times.

    Args:
        serve: computes a batch. count: number of samples. held: of them in memory at a time.
        load, unload: of samples, called before they are needed and afterwards.
        max_batch: most samples of a call. workers: calls at the same time.

    Raises:
        Whatever ``serve`` or ``load`` raised, once LoadGen has ended, or after two seconds if it does not.
        KeyboardInterrupt: likewise.
    """
    loadgen = require_loadgen()
    respond = _responder(loadgen, with_data=settings.accuracy)
    sut = SystemUnderTest(serve, respond, max_batch=max_batch, delay=settings.queue_delay, workers=workers)
    given = (_test_settings(loadgen, settings), _log_settings(loadgen, settings.logs))
    callbacks = (_issuer(sut), sut.flush, _guarded(load, sut), _guarded(unload, sut))
    ended = threading.Event()

    def test() -> None:
        try:
            with _handles(loadgen, count, held, *callbacks) as handles:
                loadgen.StartTestWithLogSettings(*handles, *given, str(settings.logs / "audit.config"))
        except BaseException as error:  # noqa: BLE001 -- raised by the main thread
            sut.abort(error)
        finally:
            ended.set()

    _running.append(ended)
    threading.Thread(target=test, name="loadgen", daemon=True).start()
    try:
        _wait(ended, sut)
    except KeyboardInterrupt:
        sut.abort()
        ended.wait(_PATIENCE)
        raise
    if ended.is_set():
        sut.close()
    if sut.failure is not None:
        raise sut.failure
    return sut


def _wait(ended: threading.Event, sut: SystemUnderTest) -> None:
    """Wait for LoadGen's end, after a failure two seconds at most."""
    while not ended.wait(0.05):
        if sut.aborted.is_set():
            ended.wait(_PATIENCE)
            return


@contextmanager
def _handles(
    loadgen: ModuleType, count: int, held: int, issue: Any, flush: Any, load: Any, unload: Any
) -> Iterator[Any]:
    sut, library = loadgen.ConstructSUT(issue, flush), loadgen.ConstructQSL(count, held, load, unload)
    try:
        yield sut, library
    finally:
        loadgen.DestroyQSL(library)
        loadgen.DestroySUT(sut)


def _issuer(sut: SystemUnderTest) -> Callable[[Sequence[Any]], None]:
    def issue(samples: Sequence[Any]) -> None:
        received = time.perf_counter()
        sut.issue([(sample.id, sample.index) for sample in samples], received)

    return issue


def _guarded(call: Load, sut: SystemUnderTest) -> Load:
    """Return a function that keeps an error for the main thread: LoadGen ends the process at an exception."""

    def guarded(indices: Sequence[int]) -> None:
        if sut.aborted.is_set():
            return
        try:
            call(indices)
        except BaseException as error:  # noqa: BLE001 -- raised by the main thread
            sut.abort(error)

    return guarded


def _responder(loadgen: ModuleType, with_data: bool) -> Respond:
    """Return the function that passes answers to LoadGen; with the outputs' bytes for its accuracy log."""

    def respond(identifiers: Sequence[int], outputs: list[Array] | None) -> float:
        places = range(len(identifiers)) if with_data and outputs is not None else ()
        rows = [
            np.frombuffer(row_bytes(outputs or (), place), np.uint8) for place in places
        ]  # alive until the call ends
        where = [(row.ctypes.data, row.nbytes) for row in rows] or [(0, 0)] * len(identifiers)
        answers = [loadgen.QuerySampleResponse(one, *each) for one, each in zip(identifiers, where, strict=True)]
        answered = time.perf_counter()
        loadgen.QuerySamplesComplete(answers)
        return answered

    return respond


def row_bytes(outputs: Sequence[Array], place: int) -> bytes:
    """Return the bytes of one sample's outputs, one after another."""
    return b"".join(np.ascontiguousarray(output[place]).tobytes() for output in outputs)


def _log_settings(loadgen: ModuleType, folder: Path) -> Any:
    logs = loadgen.LogSettings()
    logs.log_output.outdir = str(folder)
    logs.log_output.copy_summary_to_stdout = logs.log_output.copy_detail_to_stdout = False
    logs.enable_trace = False
    return logs


def _test_settings(loadgen: ModuleType, settings: LoadSettings) -> Any:
    made = loadgen.TestSettings()
    made.scenario = getattr(loadgen.TestScenario, settings.scenario)
    mode = loadgen.TestMode
    made.mode = mode.AccuracyOnly if settings.accuracy else mode.PerformanceOnly
    made.min_duration_ms = round(settings.min_duration * 1e3)
    made.min_query_count = settings.min_queries
    made.qsl_rng_seed = made.sample_index_rng_seed = made.schedule_rng_seed = settings.seed
    rate = settings.target_qps or settings.expected_qps
    if rate is not None:
        per_query = settings.samples_per_query or 1 if settings.target_qps is None else 1
        made.server_target_qps = made.offline_expected_qps = rate
        expected = max(1, round(1e9 * per_query / rate))
        made.single_stream_expected_latency_ns = made.multi_stream_expected_latency_ns = expected
    if settings.latency_bound is not None:
        made.server_target_latency_ns = max(1, round(settings.latency_bound * 1e9))
    made.multi_stream_samples_per_query = MULTI_STREAM
    return made
