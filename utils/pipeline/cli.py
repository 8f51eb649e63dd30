"""The three calls every example script is made of, and how a run ends.

Exit codes: 0 everything ran; 1 it ran, but some samples could not; 2 it could not do its work; 3 a faster
mode cost too much of the metric; 130 interrupted.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine import TecoInferError
from tecoinfer_modelzoo.interrupts import came, ended, first_raises
from tecoinfer_modelzoo.supervise import commit
from utils.pipeline.console import in_a_line, warn
from utils.pipeline.interrupt import INTERRUPTED, tell, untold
from utils.pipeline.shown import only_shown

if TYPE_CHECKING:
    from utils.tasks.base import Task


def run(main: Callable[[], int]) -> None:
    """Run a script's ``main`` and exit: an error the zoo raises on purpose is one line on stderr, never a traceback."""
    warnings.showwarning = lambda message, *_: warn(in_a_line(f"warning: {message}"))
    with only_shown():
        try:
            code = _ended(main)
            ended()
        except KeyboardInterrupt:  # it came when the work was done, or had failed
            ended()
            tell("")
            code = INTERRUPTED
    commit(code)
    sys.exit(code)


def _ended(main: Callable[[], int]) -> int:
    """Return the exit code of a script's ``main``, however it ends."""
    try:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            first_raises(untold)
        code = main()
        sys.stdout.flush()
    except TecoInferError as error:
        if came():  # in the middle of something that made another error of it
            tell("")
            return INTERRUPTED
        warn(f"error: {error}")
        code = 2
    except BrokenPipeError:  # the reader of our output went away, as in `| head`
        # The interpreter flushes stdout once more at exit, into nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt as interrupt:
        tell(str(interrupt))
        code = INTERRUPTED
    except Exception as error:
        if came():
            tell("")
            code = INTERRUPTED
        elif isinstance(error, OSError) and isinstance(error.filename, (str, bytes)):
            where = os.fsdecode(error.filename)
            warn(in_a_line(f"error: {where}: {error.strerror}; check the path, and whose file it is"))
            code = 2
        else:
            raise
    return code


def _script(main: Callable[[], int]) -> None:
    """Run a whole script: what it has imported stays, so no collection need look at it again, the last one neither.

    That is 15 ms of every start.
    """
    gc.freeze()
    run(main)


def valid(description: str | None, task: Task, **defaults: Any) -> None:
    """Evaluate a data set and exit: the whole of an ``example_valid.py``.

    Args:
        description: the script's docstring.
        task: what to do with the samples.
        defaults: of the flags, by their names: ``ckpt``, ``data_path``, ``batch_size``, those of the task.
    """
    from utils.pipeline.valid import main

    _script(lambda: main(description, task, **defaults))


def single(description: str | None, task: Task, **defaults: Any) -> None:
    """Answer one sample and exit: the whole of an ``example_single_batch.py``; arguments as of :func:`valid`."""
    from utils.pipeline.answers import main

    _script(lambda: main(description, task, "single", **defaults))


def multi(description: str | None, task: Task, **defaults: Any) -> None:
    """Answer every sample of a folder and exit: the whole of an ``example_multi_batch.py``; as :func:`valid`."""
    from utils.pipeline.answers import main

    _script(lambda: main(description, task, "multi", **defaults))


__all__ = ["multi", "run", "single", "valid", "warn"]
