"""The host's cores: how many this process really has, and a fair way to share them.

More runnable threads than cores costs far more than the switching itself: two inferences side by side that share a core
throw each other out of its cache (measured on two cores with ResNet-18: a quarter more CPU time per picture). So what
computes on the host, preprocessing and inference, takes a slot first, and there are as many slots as cores.
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
    """Return how many cores this process may keep busy: its affinity, or its cgroup's CPU quota where that is less.

    A quota of 1.5 cores counts as 2: rounding down would leave a third of it unused.
    """
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


@cache
def _quota() -> float | None:
    """Return the smallest CPU quota in cores of this process's cgroups and those above; ``None`` for no limit."""
    return smallest_quota(_CGROUPS, _read(_OWN_CGROUPS) or "")


def smallest_quota(root: Path, own: str) -> float | None:
    """Return the smallest quota in cores on the way from a process's cgroup up to the root; ``None`` for no limit.

    Args:
        root: where the cgroup file system is mounted.
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
        # Inside a container the path may be the host's, which is not mounted; the mount's root then is our own group.
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
    """Return the processor's name, such as ``AMD EPYC 7B13``; figures of another one may not hold."""
    name = processor_line("model name").partition(":")[2].strip()
    return name or platform.processor() or platform.machine()


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        return None


class Slots:
    """A number of slots, handed to whoever waits: the urgent first, then in the order of asking.

    Args:
        count: how many may be taken at a time, at least 1.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._lock = threading.Lock()
        self._urgent: deque[threading.Lock] = deque()
        self._others: deque[threading.Lock] = deque()

    @contextmanager
    def taken(self, *, urgent: bool = False) -> Iterator[None]:
        """Hold a slot inside the ``with`` block; wait for one where all are taken."""
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
        turn.acquire()  # released by whoever hands its slot over

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
    # Slots that other threads had taken are never given back in a child, which does not have these threads.
    os.register_at_fork(after_in_child=host_slots.cache_clear)
