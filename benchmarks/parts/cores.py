"""Cores of a benchmark with a client: the last one is the client's, where there are at least two."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def bound(words: list[str], cores: list[int]) -> list[str]:
    """Return a command that runs on these cores."""
    if len(CORES) < 2:
        return words
    steps = (
        "import os, sys",
        "os.sched_setaffinity(0, map(int, sys.argv[1].split(',')))",
        "os.execv(sys.argv[2], sys.argv[2:])",
    )
    code = "; ".join(steps)
    return [sys.executable, "-c", code, ",".join(map(str, cores)), *words]


def bind(pids: Iterable[int], cores: list[int]) -> None:
    """Have the threads of running processes run on these cores."""
    if len(CORES) < 2:
        return
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), cores)


@contextmanager
def on_cores(cores: list[int]) -> Iterator[None]:
    """Run this process on some cores."""
    if not cores:
        yield
        return
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, CORES)
