"""Publish the state of this process's devices for ``teco-smi``.

A daemon thread runs five times a second; it also processes the launch log. It starts when a device is first used, does
not exist in a forked child, and ends at exit.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence

from engine.sdaa import DeviceStatus, Publisher
from torch_sdaa.faults import device_faults
from torch_sdaa.loading.core import C

INTERVAL = 0.2
"""Seconds between two checks."""

_UNCHANGED = 1.0
"""Seconds between publishing unchanged states: below the age that ``teco-smi`` considers outdated."""

_log = logging.getLogger(__name__)


class Live:
    """Publishes until it is stopped.

    Args:
        numbers: of the devices on this host, in the order of ``sdaa:0``, ``sdaa:1``, ...
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = numbers
        self._publisher = Publisher()
        self._stopped = threading.Event()
        self._seen = self._look()
        self._published: tuple[float, list[DeviceStatus]] = (0.0, [])
        self._thread = threading.Thread(target=self._run, name="teco-smi", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and remove this process from the list."""
        self._stopped.set()
        self._thread.join(timeout=2.0)
        self._publisher.close()

    def _run(self) -> None:
        try:
            while not self._stopped.wait(INTERVAL):
                C.settle()
                self._publish()
        except Exception as error:  # noqa: BLE001 -- must not end the training; it is logged
            _log.warning("teco-smi no longer shows this process: %s", error)
            self._publisher.close()

    def _publish(self) -> None:
        statuses = self._statuses()
        now = time.monotonic()
        if statuses == self._published[1] and now - self._published[0] < _UNCHANGED:
            return
        self._published = (now, statuses)
        self._publisher.publish(statuses, force=True)

    def _look(self) -> tuple[int, list[tuple[dict[str, float], int]]]:
        return C.ticks(), [(C.times(i), C.worked(i)) for i in range(len(self._numbers))]

    def _statuses(self) -> list[DeviceStatus]:
        """Return the devices' activity since the last check, without unused ones."""
        (before, was), (after, now) = self._seen, self._look()
        self._seen = (after, now)
        statuses = []
        for i, (number, (old, worked), (new, works)) in enumerate(zip(self._numbers, was, now, strict=True)):
            health = device_faults.health_of(i)
            if not C.max_memory_allocated(i) and not new["launches"] and health == device_faults.OK:
                continue
            simulated = new["now"] - old["now"]
            utilisation = min(1.0, (new["compute"] - old["compute"]) / simulated) if simulated > 0 else 0.0
            busy = min(1.0, (works - worked) / max(1, after - before))
            if health != device_faults.OK:
                statuses.append(DeviceStatus(number, health, 0, 0.0))
            else:
                statuses.append(DeviceStatus(number, health, C.memory_allocated(i), utilisation, busy))
        return statuses


_live: Live | None = None
_visible: Sequence[int] = ()
_lock = threading.Lock()


def prepare(numbers: Sequence[int]) -> None:
    """Set the visible devices of the host; nothing is published yet."""
    global _visible
    _visible = tuple(numbers)
    os.register_at_fork(after_in_child=_forget)


def start() -> None:
    """Start publishing; does nothing if already started, or in a child of a process that used a device."""
    global _live
    if _live is not None or not _visible or C.in_bad_fork():
        return
    with _lock:
        if _live is None:
            _live = Live(_visible)


def stop() -> None:
    """Stop publishing; :func:`start` starts again."""
    global _live
    with _lock:
        live, _live = _live, None
    if live is not None:
        live.stop()


def is_on() -> bool:
    """Return whether this process publishes."""
    return _live is not None


def _forget() -> None:
    global _live, _lock
    _live, _lock = None, threading.Lock()
