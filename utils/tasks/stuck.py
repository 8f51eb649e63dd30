"""A word about an environment that does not come back: what it does is its own affair, and may last for ever."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

from engine import one_line

PATIENCE = 30.0
"""Seconds after which a call of an environment is told of."""


class Stuck:
    """Tells on stderr, once for each call, of one that has lasted for :data:`PATIENCE` seconds.

    Use as a context. Whoever calls an environment sets ``doing`` before, to ``(what, seed, since)`` with ``since`` of
    :func:`time.perf_counter`, and to ``None`` behind it.

    Args:
        environment: its name.
    """

    def __init__(self, environment: str) -> None:
        self.doing: tuple[str, int, float] | None = None
        self._environment = environment
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="teco-stuck", daemon=True)

    def __enter__(self) -> Stuck:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        told = None
        while not self._over.wait(min(PATIENCE / 4, 1.0)):
            doing = self.doing
            if doing is None or doing is told or time.perf_counter() - doing[2] < PATIENCE:
                continue
            told = doing
            what, seed, _ = doing
            sys.stderr.write(
                f"the environment {one_line(self._environment)} has not come back from {what} of seed {seed} for "
                f"{PATIENCE:g} s, and may never; Ctrl-C ends the run; try the environment alone with this seed\n"
            )
            sys.stderr.flush()
