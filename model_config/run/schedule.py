"""Cases side by side, each on its share of the cores."""

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
    """Return places for at most ``count`` cases to run side by side, one per core at the most.

    No core is in two of them; where the system has no affinity, all of them name no core.
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
    """Run the cases side by side and yield what comes of each as it finishes.

    A :class:`TecoInferError` of one case becomes a finding of it. Any other exception is a bug of the check: it is
    raised when all other cases are done. On Ctrl-C every running step is ended; ``work`` sees it as a
    ``KeyboardInterrupt`` of :func:`model_config.run.runner.run_step` and may return what it has until then, which is
    yielded before the ``KeyboardInterrupt`` goes on to the caller.

    Args:
        cases: what to run, started in this order.
        work: does one case, in a thread; called with the place where its steps are to run.
        parallel: most cases at once; default: one per core.
        root: the repository the cases belong to.
    """
    stop = threading.Event()
    free: queue.SimpleQueue[Slot] = queue.SimpleQueue()
    places = slots(min(len(cases), parallel or len(cases)), stop)
    if len(cases) > len(places):  # else each imports for one case anyway
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
            return None  # told to stop, with nothing to show
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
        except KeyboardInterrupt as error:  # while waiting: what is running ends now, and is waited for
            interrupt = error
            stop.set()
    if interrupt is not None:
        raise interrupt
    if bugs:
        raise bugs[0]


def _result(future: Future[CaseResult | None], bugs: list[BaseException]) -> CaseResult | None:
    """Return what a case that has ended came to; note among the bugs what it raised."""
    error = future.exception()
    if error is None:
        return future.result()
    bugs.append(error)
    return None


def _failed(case: Case, error: TecoInferError, root: Path) -> CaseResult:
    what, _, fix = one_line(error).rpartition("; ")
    finding = Finding(relative(case.source, root), case.line, "case", what or fix, fix if what else "correct it")
    return CaseResult(case.name, case.run_dir, findings=(finding,))
