"""Number and start of running native calls, in memory shared with the supervising parent.

Wrap calls that may take long in ``with native:``; the overhead outside a supervised process is negligible.
"""

from __future__ import annotations

import struct
import time

TYPE_CHECKING = False  # as in typing, which takes some milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable
    from mmap import mmap
    from threading import Lock
    from typing import Any

_FORM = struct.Struct("dq")
"""Time of the last start or return (monotonic clock, valid in both processes) and number of running calls."""


class NativeCalls:
    """Counter of the running calls of all threads."""

    __slots__ = ("_count", "_shared")

    def __init__(self) -> None:
        self._shared: tuple[mmap, Lock] | None = None
        self._count = 0

    def share(self) -> None:
        """Start counting, in memory that is shared with a forked child."""
        import mmap
        import threading

        self._shared = mmap.mmap(-1, _FORM.size), threading.Lock()

    def since(self) -> float | None:
        """Return the monotonic time in seconds of the last start or return; ``None`` if no call is running."""
        if self._shared is None:
            return None
        at, count = _FORM.unpack_from(self._shared[0])
        return float(at) if count > 0 else None

    def marking(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function of native code whose calls are counted: itself, where they are not shared."""
        if self._shared is None:
            return function

        def counted(*args: Any) -> Any:
            with self:
                return function(*args)

        return counted

    def __enter__(self) -> None:
        if self._shared is not None:
            self._add(1, *self._shared)

    def __exit__(self, *_: object) -> None:
        if self._shared is not None:
            self._add(-1, *self._shared)

    def _add(self, change: int, area: mmap, lock: Lock) -> None:
        with lock:
            self._count += change
            _FORM.pack_into(area, 0, time.monotonic(), self._count)


native = NativeCalls()
"""Counter of this process."""
