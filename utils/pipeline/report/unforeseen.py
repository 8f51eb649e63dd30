"""Unexpected exceptions, of foreign code or from a defect, as one line with file and line number."""

from __future__ import annotations

import argparse
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from types import FrameType, TracebackType

from tecoinfer_modelzoo.distribution import HOME
from tecoinfer_modelzoo.text import printable, shortened

TRACEBACK = "TECO_TRACEBACK"
"""Environment variable: print the traceback too, if set and not 0."""

_OWN = ("engine", "model_config", "serve", "tecoexec", "toolkit", "transplant", "utils")
"""Packages whose argument parsers may end the process: --help, --version, invalid arguments."""


def line_of(error: BaseException) -> str:
    """Return one line on an unexpected exception: type and message, place, and how to print the traceback."""
    what = type(error).__name__
    if isinstance(error, SystemExit):
        text = f"SystemExit({error.code!r}) was raised in the middle of the work"
    else:
        text = f"{what}: {error}" if str(error) else what
    where = _place(error.__traceback__)
    return shortened(
        printable(f"error: {text} ({where}); correct the code there, or report it: {TRACEBACK}=1 shows the calls", "")
    )


def show_calls(error: BaseException) -> None:
    """Print the traceback to stderr if :data:`TRACEBACK` is set."""
    if os.environ.get(TRACEBACK, "0") not in ("", "0"):
        sys.stderr.write("".join(traceback.format_exception(error)))


def asked_for(leaving: SystemExit) -> bool:
    """Return whether a parser of the zoo or of the script ends the process, not one that a task calls in its work."""
    frames = [frame for frame, _ in traceback.walk_tb(leaving.__traceback__)]
    parsing = next((place for place, frame in enumerate(frames) if _is_parser(frame)), 0)
    if not parsing or not all(map(_is_parser, frames[parsing:])):
        return False
    before = [(frame.f_globals.get("__name__"), Path(frame.f_code.co_filename).resolve()) for frame in frames[:parsing]]
    of_script = all(name in ("__main__", "utils.pipeline.cli") for name, _ in before)
    return of_script or any((HOME / name) in before[-1][1].parents for name in _OWN)


def _is_parser(frame: FrameType) -> bool:
    return isinstance(frame.f_locals.get("self"), (argparse.ArgumentParser, argparse.Action))


def _place(trace: TracebackType | None) -> str:
    """Return file and line of the last call outside the standard library and installed packages."""
    libraries = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(trace)]
    own = [place for place in places if not place[0].startswith(("<", *filter(None, libraries)))]
    file, number = (own or places or [("?", 0)])[-1]
    return f"{file}:{number}"
