"""Tells ``teco-smi`` what this process does on its devices while it trains.

A daemon thread looks five times a second; it also keeps the launch log walked. It begins when a device is first used,
is not there in a forked child, and ends at exit.
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
"""Seconds between two looks."""

_UNCHANGED = 1.0
"""Seconds between two publishings of the same: less than what ``teco-smi`` takes for too old."""

_log = logging.getLogger(__name__)


class Live:
    """Publishes, until it is stopped.

    Args:
        numbers: of the devices on this host, in the order of ``sdaa:0``, ``sdaa:1``, ...
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = numbers
        self._publisher = Publisher()
        self._stopped = threading.Event()
        self._seen = self._look()
        self._said: tuple[float, list[DeviceStatus]] = (0.0, [])
        self._thread = threading.Thread(target=self._run, name="teco-smi", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and take this process off the list."""
        self._stopped.set()
        self._thread.join(timeout=2.0)
        self._publisher.close()

    def _run(self) -> None:
        try:
            while not self._stopped.wait(INTERVAL):
                C.settle()
                self._publish()
        except Exception as error:  # noqa: BLE001 -- whatever it is must not end the training, nor go unsaid
            _log.warning("teco-smi no longer shows this process: %s", error)
            self._publisher.close()

    def _publish(self) -> None:
        statuses = self._statuses()
        now = time.monotonic()
        if statuses == self._said[1] and now - self._said[0] < _UNCHANGED:
            return
        self._said = (now, statuses)
        self._publisher.publish(statuses, force=True)

    def _look(self) -> tuple[int, list[tuple[dict[str, float], int]]]:
        return C.ticks(), [(C.times(i), C.worked(i)) for i in range(len(self._numbers))]

    def _statuses(self) -> list[DeviceStatus]:
        """Return what the devices did since the last look; those never used are left out."""
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
    """Say which devices of the host this process sees; nothing is published yet."""
    global _visible
    _visible = tuple(numbers)
    os.register_at_fork(after_in_child=_forget)


def start() -> None:
    """Begin to publish; a second call does nothing, nor does one in a child of a process that used a device."""
    global _live
    if _live is not None or not _visible or C.in_bad_fork():
        return
    with _lock:
        if _live is None:
            _live = Live(_visible)


def stop() -> None:
    """End publishing; :func:`start` begins again."""
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
