"""Ctrl-C: a run prints its progress and ends within a second, also during a long call of an engine."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tecoinfer_modelzoo.interrupts import INTERRUPTED as INTERRUPTED, line_written, raise_on_first_interrupt

_PATIENCE = 0.8
"""Seconds from Ctrl-C to the end of the process."""

_GRACE = 10.0
"""Further seconds for blocks of :func:`finishing`."""

_printed = threading.Event()
_finishing = threading.Event()
_progress: list[Callable[[], str]] = []
"""Functions that return the progress of the active blocks of :func:`telling`, innermost last."""


@contextmanager
def telling(progress: Callable[[], str]) -> Iterator[None]:
    """Add the progress, such as ``after step 3 of 8``, to an interruption inside the ``with`` block."""
    _progress.append(progress)
    interrupted = False
    try:
        yield
    except KeyboardInterrupt:
        interrupted = True  # the function stays registered for ending_soon()
        raise KeyboardInterrupt(progress()) from None
    finally:
        if not interrupted:
            _progress.remove(progress)


def tell(text: str) -> None:
    """Print the interruption and the progress to stderr."""
    _printed.set()
    sys.stderr.write(f"interrupted {text}".rstrip() + "\n")
    line_written()


def unprinted_line() -> str:
    """Return the line on the interruption if it has not been printed yet; else empty."""
    if _printed.is_set():
        return ""
    _printed.set()
    try:
        return f"interrupted {_progress[-1]() if _progress else ''}".rstrip() + "\n"
    except Exception:  # noqa: BLE001 - called at any moment, also in the middle of an update
        return "interrupted\n"


@contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """Let SIGTERM, which a CI sends on a timeout, act like Ctrl-C inside the ``with`` block of the main thread, so that
    child processes are ended and temporary files removed.
    """
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def finishing() -> Iterator[None]:
    """Delay the end of the process by :func:`ending_soon` until the ``with`` block has written its files."""
    _finishing.set()
    try:
        yield
    finally:
        _finishing.clear()


@contextmanager
def ending_soon() -> Iterator[None]:
    """End the process within a second after Ctrl-C inside the ``with`` block, also during a native call.

    Python runs signal handlers in the main thread, which may be in a long call of an engine. The interpreter writes to
    a wakeup pipe immediately, and a thread reads it. Has no effect outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    threading.Thread(target=_end_soon, args=(reading,), name="interrupt", daemon=True).start()
    raise_on_first_interrupt(unprinted_line)  # shells start background jobs with SIGINT ignored
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writing)


def _end_soon(reading: int) -> None:
    while came := os.read(reading, 1):
        if came[0] == signal.SIGINT:
            time.sleep(_PATIENCE)
            patience = time.monotonic() + _GRACE
            while _finishing.is_set() and time.monotonic() < patience:
                time.sleep(_PATIENCE / 20)
            os.write(
                2, unprinted_line().encode(errors="backslashreplace")
            )  # not sys.stderr: a thread may hold its lock
            line_written()
            os._exit(INTERRUPTED)
    os.close(reading)
