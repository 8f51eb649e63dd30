"""Whether a call of native code is under way, and since when: in memory that a supervising parent reads.

``with native:`` around a call that may take long; outside a supervised process that costs next to nothing.
"""

from __future__ import annotations

import struct
import time

TYPE_CHECKING = False  # as in typing, which takes some milliseconds
if TYPE_CHECKING:
    from mmap import mmap
    from threading import Lock

_FORM = struct.Struct("dq")
"""When the last call began or returned (monotonic, so the same in both processes), and how many are under way."""


class NativeCalls:
    """Counts the calls under way, of any number of threads."""

    __slots__ = ("_area", "_count", "_lock")

    def __init__(self) -> None:
        self._area: mmap | None = None
        self._lock: Lock | None = None
        self._count = 0

    def share(self) -> None:
        """Count from now on, for this process and the one that it forks."""
        import mmap
        import threading

        self._area, self._lock = mmap.mmap(-1, _FORM.size), threading.Lock()

    def since(self) -> float | None:
        """Return when the last call began or returned, in seconds of the monotonic clock; ``None``: none is under way."""
        if self._area is None:
            return None
        at, count = _FORM.unpack_from(self._area)
        return float(at) if count > 0 else None

    def __enter__(self) -> None:
        if self._area is not None:
            self._add(1)

    def __exit__(self, *_: object) -> None:
        if self._area is not None:
            self._add(-1)

    def _add(self, change: int) -> None:
        assert self._area is not None
        assert self._lock is not None
        with self._lock:
            self._count += change
            _FORM.pack_into(self._area, 0, time.monotonic(), self._count)


native = NativeCalls()
"""Of this process."""
