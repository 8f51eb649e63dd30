"""Parallel execution of cases, each on its share of the cores."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

from engine import TecoInferError, usable_cores
from model_config.cases.config import ROOT, Case, relative
from model_config.results import CaseResult, Finding
from model_config.run.preloaded import EXAMPLES, Preloaded
from model_config.run.runner import Slot
from tecoinfer_modelzoo.text import one_line
from utils.pipeline.launch.share import share_of

__all__ = ["Slot", "run_all", "slots"]


def slots(count: int, stop: threading.Event | None = None) -> list[Slot]:
    """Return slots for at most ``count`` parallel cases, at most one per core.

    Slots share no core; on a system without CPU affinity, their lists of cores are empty.
    """
    stop = stop or threading.Event()
    usable = usable_cores()
    count = max(1, min(count, usable))
    if not hasattr(os, "sched_getaffinity"):
        return [Slot((), stop)] * count
    cores = sorted(os.sched_getaffinity(0))
    return [Slot(tuple(share_of(cores, usable, index, count)), stop) for index in range(count)]


def run_all(
    cases: Sequence[Case],
    work: Callable[[Case, Slot], CaseResult],
    *,
    parallel: int | None = None,
    root: Path = ROOT,
) -> Iterator[CaseResult]:
    """Run the cases in parallel and yield each result when it is complete.

    A :class:`TecoInferError` of a case becomes a finding. Any other exception is a bug of the check and is raised after
    all other cases have finished. Ctrl-C stops every running step; ``work`` receives a ``KeyboardInterrupt`` of
    :func:`model_config.run.runner.run_step` and may return an incomplete result, which is yielded before the
    ``KeyboardInterrupt`` is raised again.

    Args:
        cases: cases to run, started in this order.
        work: processes one case in a thread; called with the case and its slot.
        parallel: maximum number of parallel cases; default: one per core.
    """
    stop = threading.Event()
    free: queue.SimpleQueue[Slot] = queue.SimpleQueue()
    places = slots(min(len(cases), parallel or len(cases)), stop)
    if len(cases) > len(places):  # otherwise there is nothing to share
        places = [
            replace(place, exports=Preloaded(place.cores), others=Preloaded(place.cores, EXAMPLES)) for place in places
        ]
    for place in places:
        free.put(place)

    def one(case: Case) -> CaseResult | None:
        if stop.is_set():
            return None
        place = free.get()
        try:
            return work(case, place)
        except TecoInferError as error:
            return _failed(case, error, root)
        except KeyboardInterrupt:
            if not stop.is_set():
                raise
            return None  # stopped before there was a result
        finally:
            free.put(place)

    try:
        with ThreadPoolExecutor(len(places), thread_name_prefix="case") as pool:
            futures = [pool.submit(one, case) for case in cases]
            try:
                yield from _finished(futures, stop)
            finally:
                stop.set()
    finally:
        for place in places:
            for shared in (place.exports, place.others):
                if shared is not None:
                    shared.close()


def _finished(futures: Sequence[Future[CaseResult | None]], stop: threading.Event) -> Iterator[CaseResult]:
    seen: set[Future[CaseResult | None]] = set()
    bugs: list[BaseException] = []
    interrupt: KeyboardInterrupt | None = None
    while interrupt is None or len(seen) < len(futures):
        try:
            for future in as_completed([future for future in futures if future not in seen]):
                seen.add(future)
                result = _result(future, bugs)
                if result is not None:
                    yield result
            break
        except KeyboardInterrupt as error:  # while waiting: stop the running cases and wait for them
            interrupt = error
            stop.set()
    if interrupt is not None:
        raise interrupt
    if bugs:
        raise bugs[0]


def _result(future: Future[CaseResult | None], bugs: list[BaseException]) -> CaseResult | None:
    """Return the result of a finished case; append an unexpected exception to ``bugs``."""
    error = future.exception()
    if error is None:
        return future.result()
    bugs.append(error)
    return None


def _failed(case: Case, error: TecoInferError, root: Path) -> CaseResult:
    what, _, fix = one_line(error).rpartition("; ")
    finding = Finding(relative(case.source, root), case.line, "case", what or fix, fix if what else "correct it")
    return CaseResult(case.name, case.run_dir, findings=(finding,))
