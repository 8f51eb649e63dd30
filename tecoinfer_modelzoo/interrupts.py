"""Handling of Ctrl-C from the first import to interpreter shutdown: one line and exit code 130.

During imports nothing has to be saved, and an exception would print a traceback or be swallowed: the process exits at
once. While the command runs, the first Ctrl-C raises ``KeyboardInterrupt``, so that files are closed and helper
processes ended; a second one exits at once.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys

from tecoinfer_modelzoo.streams import fill_closed

TYPE_CHECKING = False  # as in typing, which takes some milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

INTERRUPTED = 130
"""Exit code of an interrupted command (128 + SIGINT, the shell convention)."""

_OURS = ("contrib", "example", "model_config", "serve", "tecoexec", "toolkit", "transplant")
_COMMANDS = ("teco", "tecoexec", "teco-smi")
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_message_of: list[Callable[[], str]] = []
_received: list[int] = []  # interrupts received so far
_reports: list[Callable[[], None]] = []
"""In a supervised process: report to the parent that the handler ran, and that the line was written."""
_leaving = itertools.count()
"""Number of interrupts that exit the process; ``next`` is atomic with respect to signal handlers."""


def guard() -> None:
    """Install the handler that exits at the first Ctrl-C, if the main program is a command or script of the zoo.

    Also opens the null device for closed standard streams, so that other files cannot get their descriptors.
    """
    if not is_command():
        return
    fill_closed()
    if _ends_by_exception():
        signal.signal(signal.SIGINT, _at_once)


def raise_on_first_interrupt(say: Callable[[], str] | None = None) -> None:
    """Let the first Ctrl-C raise ``KeyboardInterrupt``, and the second one print ``say()`` and exit (zoo only).

    Has no effect outside the main thread.
    """
    if say is not None:
        _message_of[:] = [say]
    ours = is_command()
    try:
        signal.signal(signal.SIGINT, _first if ours else signal.default_int_handler)
    except ValueError:  # not in the main thread
        return
    if ours:
        sys.unraisablehook = _unraisable


def came() -> bool:
    """Return whether Ctrl-C was received; extensions may turn it into another error during their import."""
    return bool(_received)


def may_be_user_interrupt() -> bool:
    """Return whether a ``KeyboardInterrupt`` in this thread may come from the user, not from the code that ran.

    If the signal's source cannot be determined, as in other programs, it is attributed to the user.
    """
    import threading

    if threading.current_thread() is not threading.main_thread():
        return False
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    return came() or handlers[0] not in (_first, signal.SIG_IGN) or handlers[1] is signal.default_int_handler


def set_report_callbacks(heard: Callable[[], None], written: Callable[[], None]) -> None:
    """Set the callbacks for Ctrl-C: when its handler runs, and when its line is written."""
    _reports[:] = [heard, written]


def line_written() -> None:
    """Report that the line about the interruption is on standard error, so that the parent does not repeat it."""
    if _reports:
        _reports[1]()


def ended() -> None:
    """Let Ctrl-C exit the process silently from now on, when only interpreter shutdown is left."""
    _message_of[:] = [lambda: ""]
    try:
        signal.signal(signal.SIGINT, _at_once if is_command() else signal.default_int_handler)
    except ValueError:
        return


def _ends_by_exception() -> bool:
    """Return whether SIGINT has Python's default handler; shells ignore it in background jobs."""
    try:
        return signal.getsignal(signal.SIGINT) is signal.default_int_handler
    except ValueError:  # not the main thread
        return False


def _unraisable(found: Any) -> None:
    """Exit if an interrupt was raised where exceptions are swallowed, such as in ``__del__``."""
    if isinstance(found.exc_value, KeyboardInterrupt):
        _at_once(signal.SIGINT, None)
    sys.__unraisablehook__(found)


def _first(number: int, frame: Any) -> None:
    _received.append(number)
    if _reports:
        _reports[0]()
    signal.signal(signal.SIGINT, _at_once)
    raise KeyboardInterrupt


def _at_once(number: int, frame: Any) -> None:
    if next(_leaving) == 1:  # second interrupt before the line is complete: do not repeat it
        return
    text = _message_of[0]() if _message_of else "interrupted\n"
    try:
        os.write(2, text.encode(errors="backslashreplace"))  # the stream's lock may be held by a stuck thread
        line_written()
    finally:
        os._exit(INTERRUPTED)


def is_command() -> bool:
    """Return whether this process runs a command or script of the zoo, not a program that imports it."""
    words = list(getattr(sys, "orig_argv", sys.argv))
    if sys.argv[:1] == ["-m"] and "-m" in words[:-1]:  # the module's packages are being imported
        name = words[words.index("-m") + 1]
        return name.partition(".")[0] in _OURS or name == "engine.sdaa.smi"
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    if not path:
        return False
    below = os.path.relpath(os.path.abspath(path), _ROOT).split(os.sep)
    name = os.path.basename(path)
    script = name.startswith("example_") and name.endswith(".py")
    return (
        script or name in _COMMANDS or (below[0] in _OURS and name != "__init__.py") or below[-2:] == ["sdaa", "smi.py"]
    )
