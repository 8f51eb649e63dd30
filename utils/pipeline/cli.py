"""The calls of the example scripts: :func:`valid`, :func:`single`, :func:`multi`; and the exit codes of a run.

Exit codes: 0: all samples were run. 1: some samples could not be run. 2: the run failed, or its output could not be
written. 3: a faster mode worsened the metric too much. 130: interrupted. With 0, 1 and 3 all files are complete.
"""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from engine import ConfigError, TecoInferError
from tecoinfer_modelzoo.flags import restoring_stdout
from tecoinfer_modelzoo.interrupts import came, ended, raise_on_first_interrupt
from tecoinfer_modelzoo.process.supervise import commit
from tecoinfer_modelzoo.streams import Standing, fill_closed
from utils.pipeline.report.console import escaped_line, warn
from utils.pipeline.report.safe_stream import safe_streams
from utils.pipeline.run.interrupt import INTERRUPTED, tell, unprinted_line

if TYPE_CHECKING:
    from utils.tasks.base import AnyTask

COULD_NOT = 2
"""Exit code of a failed run."""


def run(main: Callable[[], int]) -> None:
    """Run a script's ``main`` and exit; an error is one line on stderr, without a traceback.

    Only ``main`` itself returns exit code 1; an exception gives 2. Standard output that cannot be written gives 2 as
    well, but not a reader that closed the pipe.
    """
    warnings.showwarning = lambda message, *_: warn(escaped_line(f"warning: {message}"))
    fill_closed()
    with Standing() as output, safe_streams(), restoring_stdout():
        try:
            code = _ended(main)
            ended()
            code = output.exit_code(code, warn)
        except KeyboardInterrupt:  # after the work was done, or had failed
            ended()
            tell("")
            code = INTERRUPTED
    commit(code)
    sys.exit(code)


def _ended(main: Callable[[], int]) -> int:
    """Run a script's ``main`` and return its exit code, also for exceptions."""
    try:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            raise_on_first_interrupt(unprinted_line)
        return main()
    except KeyboardInterrupt as interrupt:
        tell(str(interrupt))
        return INTERRUPTED
    except BaseException as error:  # noqa: BLE001 -- foreign code raises anything, SystemExit(0) too
        if came():  # Ctrl-C in code that raised another error because of it
            tell("")
            return INTERRUPTED
        return _failed(error)


def _failed(error: BaseException) -> int:
    """Print the error in one line, and return the exit code."""
    if isinstance(error, TecoInferError):
        warn(f"error: {error}")
        return COULD_NOT
    if isinstance(error, OSError) and isinstance(error.filename, (str, bytes)):
        where = os.fsdecode(error.filename)
        warn(escaped_line(f"error: {where}: {error.strerror}; check the path and its owner"))
        return COULD_NOT
    from utils.pipeline.report.unforeseen import asked_for, line_of, show_calls

    if isinstance(error, SystemExit) and asked_for(error):
        return error.code if isinstance(error.code, int) else COULD_NOT if error.code else 0
    show_calls(error)
    warn(line_of(error))
    return COULD_NOT


def _script(main: Callable[[], int]) -> None:
    """Run a whole script; imported objects are exempt from garbage collection, which saves 15 ms per start."""
    gc.freeze()
    run(main)


class Call(NamedTuple):
    """The call of a script: its task, and the defaults of its flags."""

    task: AnyTask
    defaults: dict[str, Any]


_heard: ContextVar[list[Call] | None] = ContextVar("_heard", default=None)


def call_of(script: Path) -> Call:
    """Run a script up to its call of :func:`valid`, :func:`single` or :func:`multi`, and return that call.

    Raises ConfigError if it calls none of them.
    """
    import runpy

    wrong = ConfigError(f"{script} calls neither cli.valid, cli.single nor cli.multi; run the script itself")
    if not re.search(rb"\bcli\.(valid|single|multi)\(", script.read_bytes()):  # any other script would run to its end
        raise wrong
    found: list[Call] = []
    path, heard = list(sys.path), _heard.set(found)
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.path[:] = path
        _heard.reset(heard)
    if not found:
        raise wrong
    return found[-1]


def valid(*task: Any, **defaults: Any) -> None:
    """Evaluate a data set and exit: the whole of an ``example_valid.py``.

    Args:
        task: a class, or a task in the old form; scripts in the old form pass their docstring first.
        defaults: default values of flags, by name: ``ckpt``, ``data_path``, ``batch_size``, those of the task. Relative
            paths in ``ckpt`` and ``data_path`` are relative to the script's folder.
    """
    _run("valid", task, defaults)


def single(*task: Any, **defaults: Any) -> None:
    """Answer one sample and exit: the whole of an ``example_single_batch.py``; arguments as for :func:`valid`."""
    _run("single", task, defaults)


def multi(*task: Any, **defaults: Any) -> None:
    """Answer every sample of a folder and exit: the whole of an ``example_multi_batch.py``; see :func:`valid`."""
    _run("multi", task, defaults)


def _run(script: str, given: tuple[Any, ...], defaults: dict[str, Any]) -> None:
    caller = sys._getframe(2).f_globals
    given = (*given, *(defaults.pop(key) for key in ("description", "task") if key in defaults))
    if len(given) == 2:
        description, task = given
    else:
        (task,), description = given, caller.get("__doc__")
        folder = Path(caller.get("__file__", "")).resolve().parent
        paths: dict[str, Any] = {key: _below(folder, defaults[key]) for key in ("ckpt", "data_path") if key in defaults}
        defaults = {**defaults, **paths}
    heard = _heard.get()
    if heard is not None:
        heard.append(Call(task, defaults))
        return
    if not isinstance(task, type) and getattr(task, "base", None) is None:
        fix = "derive a class from utils.tasks.Task (docs/reference/tasks.md)"
        warn(f"deprecated: task {task.name} has the old form; {fix}")
    if script == "valid":
        from utils.pipeline.valid import main as evaluate

        _script(lambda: evaluate(description, task, **defaults))
    else:
        from utils.pipeline.answers import main as answer

        _script(lambda: answer(description, task, script, **defaults))


def _below(folder: Path, given: Any) -> Any:
    """Return a default path, or paths by name, joined to the script's folder."""
    if isinstance(given, Mapping):
        return {name: _below(folder, one) for name, one in given.items()}
    if given is None or (isinstance(given, str) and given.startswith("fetch:")):
        return given
    return Path(os.path.normpath(folder / given))


__all__ = ["Call", "call_of", "multi", "run", "single", "valid", "warn"]
