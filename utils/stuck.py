"""Warn of engine calls that do not return: third-party code may hang."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine import provider
from tecoinfer_modelzoo.text import one_line

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

    from engine import Engine

PATIENCE = 30.0
"""Seconds after which a pending call is reported."""


class Overdue:
    """Reports each call pending for :data:`PATIENCE` seconds on stderr, once; a context manager.

    Args:
        under_way: returns the pending calls: start (:func:`time.perf_counter`) and the line to print. Called about
            once per second in a separate thread.
    """

    def __init__(self, under_way: Callable[[], Iterable[tuple[float, str]]]) -> None:
        self._under_way = under_way
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="teco-overdue", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        reported: set[float] = set()
        while not self._over.wait(min(PATIENCE / 4, 1.0)):
            now, begun = time.perf_counter(), list(self._under_way())
            for since, line in begun:
                if since not in reported and now - since >= PATIENCE:
                    reported.add(since)
                    sys.stderr.write(one_line(line) + "\n")
                    sys.stderr.flush()


@contextmanager
def watching(engines: Mapping[str, Engine], where: Callable[[], str]) -> Iterator[None]:
    """Report engine calls that do not return, while the ``with`` block runs.

    Args:
        engines: by name. where: returns the progress of the run, such as ``step 3``.
    """
    if not engines:
        yield
        return

    def calls() -> Iterator[tuple[float, str]]:
        for name, engine in engines.items():
            if (call := engine.under_way) is not None:
                which = f"model {name}, " if len(engines) > 1 else ""
                late = f"{call[0]} has not returned from a call for {PATIENCE:g} s ({which}{where()})"
                yield call[1], f"warning: {late}; Ctrl-C ends the run"

    with Overdue(calls):
        yield


@contextmanager
def report_slow_opening(target: str, ckpt: Path) -> Iterator[None]:
    """Report that a third party's engine does not open a model, while the ``with`` block runs."""
    if provider(target) == "built-in":  # its trials and builds may take long, but end
        yield
        return
    since = time.perf_counter()
    with Overdue(
        lambda: [(since, f"warning: target {target!r} has not opened {ckpt} for {PATIENCE:g} s; Ctrl-C ends the run")]
    ):
        yield
