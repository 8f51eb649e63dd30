"""The host's cores: how many this process may use, and slots that share them.

Two inferences that share a core evict each other's cache lines (two cores, ResNet-18: 25 % more CPU time per image). So
preprocessing and inference on the host take a slot first, and there are as many slots as cores.
"""

from __future__ import annotations

import math
import os
import platform
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")
_CPUINFO = Path("/proc/cpuinfo")


def usable_cores() -> int:
    """Return how many cores this process may use, by CPU affinity or cgroup quota; a quota of 1.5 cores counts as 2."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


@cache
def _quota() -> float | None:
    """Return the smallest CPU quota, in cores, of this process's cgroup and those above; ``None`` for no limit."""
    return smallest_quota(_CGROUPS, _read(_OWN_CGROUPS) or "")


def smallest_quota(root: Path, own: str) -> float | None:
    """Return the smallest quota, in cores, from a process's cgroup up to the root; ``None`` for no limit.

    Args:
        root: mount point of the cgroup file system.
        own: content of ``/proc/self/cgroup``: lines of ``hierarchy:controllers:path`` (cgroups(7)).
    """
    quotas = []
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, read = root, _quota_v2
        elif "cpu" in controllers.split(","):
            base, read = root / "cpu", _quota_v1
        else:
            continue
        folder = base / path.lstrip("/")
        # In a container the path may be the host's, which is not mounted; the mount's root is then this cgroup.
        for group in [folder, *folder.parents] if ".." not in folder.parts else [base]:
            if group.is_relative_to(base) and (quota := read(group)) is not None:
                quotas.append(quota)
    return min(quotas, default=None)


def _quota_v2(group: Path) -> float | None:
    quota, _, period = (_read(group / "cpu.max") or "max").strip().partition(" ")
    return float(quota) / float(period or 100_000) if quota != "max" else None


def _quota_v1(group: Path) -> float | None:
    quota = float(_read(group / "cpu.cfs_quota_us") or -1)
    return quota / float(_read(group / "cpu.cfs_period_us") or 100_000) if quota > 0 else None


def processor_line(key: str) -> str:
    """Return the first line of ``/proc/cpuinfo`` that begins with a key ("model name"), or an empty string."""
    return next((line for line in (_read(_CPUINFO) or "").splitlines() if line.startswith(key)), "")


def processor_name() -> str:
    """Return the processor's name, such as ``AMD EPYC 7B13``."""
    name = processor_line("model name").partition(":")[2].strip()
    return name or platform.processor() or platform.machine()


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None


class Slots:
    """A number of slots, at least 1; waiting threads get them in order, urgent ones first."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._lock = threading.Lock()
        self._urgent: deque[threading.Lock] = deque()
        self._others: deque[threading.Lock] = deque()

    @contextmanager
    def taken(self, *, urgent: bool = False) -> Iterator[None]:
        """Hold a slot inside the ``with`` block; wait until one is free."""
        self._take(urgent)
        try:
            yield
        finally:
            self._give_back()

    def _take(self, urgent: bool) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            turn = threading.Lock()
            turn.acquire()
            (self._urgent if urgent else self._others).append(turn)
        turn.acquire()  # released by the thread that passes its slot on

    def _give_back(self) -> None:
        with self._lock:
            if waiting := self._urgent or self._others:
                waiting.popleft().release()
            else:
                self._free += 1


@cache
def host_slots() -> Slots:
    """Return this process's slots, one per usable core."""
    return Slots(usable_cores())


if hasattr(os, "register_at_fork"):
    # A child does not have the threads that hold slots of its parent.
    os.register_at_fork(after_in_child=host_slots.cache_clear)
