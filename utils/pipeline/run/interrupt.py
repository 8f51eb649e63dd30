"""Ctrl-C: a run says how far it got and ends within a second, whatever a decoder or an engine is busy with."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tecoinfer_modelzoo.interrupts import INTERRUPTED as INTERRUPTED, first_raises, line_written

_PATIENCE = 0.8
"""Seconds between Ctrl-C and the end of the process at the latest: whoever waits for a long call gives up then."""

_GRACE = 10.0
"""Seconds more that :func:`finishing` may take."""

_told = threading.Event()
_finishing = threading.Event()
_how_far: list[Callable[[], str]] = []
"""Of what is under way, the innermost last."""


@contextmanager
def telling(how_far: Callable[[], str]) -> Iterator[None]:
    """Let an interruption inside the ``with`` block say how far it got, such as ``after step 3 of 8``."""
    _how_far.append(how_far)
    interrupted = False
    try:
        yield
    except KeyboardInterrupt:
        interrupted = True  # it is still needed where the way out takes too long
        raise KeyboardInterrupt(how_far()) from None
    finally:
        if not interrupted:
            _how_far.remove(how_far)


def tell(text: str) -> None:
    """Say on stderr that the run was interrupted, and how far it got."""
    _told.set()
    sys.stderr.write(f"interrupted {text}".rstrip() + "\n")
    line_written()


def untold() -> str:
    """Return the line that nobody has said yet; empty where it was said."""
    if _told.is_set():
        return ""
    _told.set()
    try:
        return f"interrupted {_how_far[-1]() if _how_far else ''}".rstrip() + "\n"
    except Exception:  # noqa: BLE001 - asked at any moment, of a run that is in the middle of something
        return "interrupted\n"


@contextmanager
def ended_like_ctrl_c() -> Iterator[None]:
    """Let SIGTERM, with which a CI gives up, end what is under way inside the ``with`` block as Ctrl-C does.

    Processes are ended and files removed on the way out. To be used in the main thread.
    """
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def finishing() -> Iterator[None]:
    """Let what the ``with`` block writes be written before :func:`ending_soon` ends the process."""
    _finishing.set()
    try:
        yield
    finally:
        _finishing.clear()


@contextmanager
def ending_soon() -> Iterator[None]:
    """End the process soon after a Ctrl-C inside the ``with`` block, also where the main thread cannot be interrupted.

    Python runs its handlers in the main thread, which may sit in a call of an engine for long. The interpreter's own
    handler writes to a pipe at once, though, and a thread waits for that. Outside the main thread it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    threading.Thread(target=_end_soon, args=(reading,), name="interrupt", daemon=True).start()
    first_raises(untold)  # a shell starts background jobs with it ignored
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
            os.write(2, untold().encode(errors="backslashreplace"))  # a stuck thread may hold the stream's lock
            line_written()
            os._exit(INTERRUPTED)
    os.close(reading)
