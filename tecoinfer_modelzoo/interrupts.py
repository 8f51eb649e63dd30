"""Ctrl-C at any moment: one line and exit code 130, from the first of our imports to the end of the interpreter.

While a command is being imported there is nothing to save, and an exception would show where in the imports it came, or
be lost in one: the process ends at once. While it runs, the first Ctrl-C is a ``KeyboardInterrupt`` as ever, which lets
files be closed and helpers ended; another one ends the process at once, wherever that is.
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
"""Exit code of an interrupted command (128 + SIGINT, as shells have it)."""

_OURS = ("contrib", "example", "model_config", "tecoexec", "toolkit", "transplant")
_COMMANDS = ("teco", "tecoexec", "teco-smi")
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

_say: list[Callable[[], str]] = []
_times: list[int] = []
"""The interruptions so far."""
_reports: list[Callable[[], None]] = []
"""In a supervised process: what reports to its parent that Ctrl-C was heard, and that its line is written."""
_leaving = itertools.count()
"""How often a Ctrl-C has come that ends the process: counted by one call that another one cannot come into."""


def guard() -> None:
    """End this process at a Ctrl-C from now on, where its program is a command or a script of the zoo.

    There no file gets the descriptor of a standard stream that is closed, either.
    """
    if not _is_ours():
        return
    fill_closed()
    if _ends_by_exception():
        signal.signal(signal.SIGINT, _at_once)


def first_raises(say: Callable[[], str] | None = None) -> None:
    """Let the first Ctrl-C from now on raise ``KeyboardInterrupt``, and the second one end this process, if it is ours.

    To be called in the main thread; in another one it does nothing.

    Args:
        say: returns what the second one says; empty for nothing.
    """
    if say is not None:
        _say[:] = [say]
    ours = _is_ours()
    try:
        signal.signal(signal.SIGINT, _first if ours else signal.default_int_handler)
    except ValueError:  # another thread's program
        return
    if ours:
        sys.unraisablehook = _unraisable


def is_command() -> bool:
    """Say whether this process runs a command or a script of the zoo, rather than a program that imports it."""
    return _is_ours()


def came() -> bool:
    """Say whether Ctrl-C came: what an import makes another error of, as extensions do, is an interruption still."""
    return bool(_times)


def of_user() -> bool:
    """Say whether a ``KeyboardInterrupt`` that was raised in this thread may be the user's, and not its code's own.

    Where a signal raises it in a way that leaves no trace, as in another program, it is taken for the user's.
    """
    import threading

    if threading.current_thread() is not threading.main_thread():
        return False
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    return came() or handlers[0] not in (_first, signal.SIG_IGN) or handlers[1] is signal.default_int_handler


def report_to(heard: Callable[[], None], written: Callable[[], None]) -> None:
    """Report Ctrl-C from now on: once when its handler runs, and when the line about it has been written."""
    _reports[:] = [heard, written]


def line_written() -> None:
    """Report that the line about an interruption is on standard error, so that no other process writes it again."""
    if _reports:
        _reports[1]()


def ended() -> None:
    """Let a Ctrl-C end this process at once from now on: all that is left to do is to leave."""
    _say[:] = [lambda: ""]
    try:
        signal.signal(signal.SIGINT, _at_once if _is_ours() else signal.default_int_handler)
    except ValueError:
        return


def _ends_by_exception() -> bool:
    """Say whether Ctrl-C does what it usually does; a background job of a shell ignores it."""
    try:
        return signal.getsignal(signal.SIGINT) is signal.default_int_handler
    except ValueError:  # not the main thread
        return False


def _unraisable(found: Any) -> None:
    """End at once where the interruption came in what swallows exceptions, such as an object's end."""
    if isinstance(found.exc_value, KeyboardInterrupt):
        _at_once(signal.SIGINT, None)
    sys.__unraisablehook__(found)


def _first(number: int, frame: Any) -> None:
    _times.append(number)
    if _reports:
        _reports[0]()
    signal.signal(signal.SIGINT, _at_once)
    raise KeyboardInterrupt


def _at_once(number: int, frame: Any) -> None:
    if next(_leaving) == 1:  # it came again before the line below is done: said is said
        return
    text = _say[0]() if _say else "interrupted\n"
    try:
        os.write(2, text.encode(errors="backslashreplace"))  # the stream's lock may be held by a stuck thread
        line_written()
    finally:
        os._exit(INTERRUPTED)


def _is_ours() -> bool:
    """Say whether the main program is the zoo's, not one that imports it."""
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
