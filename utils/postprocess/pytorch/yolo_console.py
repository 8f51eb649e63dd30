"""Console functions of YOLO's scripts: a logger, colours, a run's arguments, a folder for each run."""

from __future__ import annotations

import inspect
import logging
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from tecoinfer_modelzoo.terminal import has_colours

TQDM_BAR_FORMAT = "{desc} {percentage:3.0f}%|{bar:12}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}]"
"""Format of a progress bar."""

_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")

_CODES = {
    **{name: 30 + place for place, name in enumerate(_COLOURS)},
    **{f"bright_{name}": 90 + place for place, name in enumerate(_COLOURS)},
    "end": 0,
    "bold": 1,
    "underline": 4,
}
"""Parameters of ECMA-48's "select graphic rendition"."""


class _StandardError(logging.StreamHandler[TextIO]):
    """Handler that writes to the current ``sys.stderr``, not to that at its creation."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        """The process's standard error."""
        return sys.stderr

    @stream.setter
    def stream(self, value: TextIO) -> None:
        raise AttributeError("this handler always writes to sys.stderr")


def _logger() -> logging.Logger:
    """Return the scripts' logger: bare messages from level INFO on, to the standard error."""
    logger = logging.getLogger("tecoinfer.yolo_pt")
    if not logger.handlers:
        logger.addHandler(_StandardError())
        logger.setLevel(logging.INFO)
        logger.propagate = False
    return logger


LOGGER = _logger()
"""Logger of the scripts and of these modules for messages; results are printed."""


def colorstr(*input: object) -> str:
    """Return a text with the codes that colour it on a terminal. Raises ValueError if a colour is unknown.

    Without the codes if the standard error, to which :data:`LOGGER` writes, is a file, or if ``NO_COLOR`` is set.
    The arguments are colours (``"red"``, ``"bright_blue"``, ...) and ``"bold"`` or ``"underline"``, then the text. The
    text alone is blue and bold.
    """
    *styles, text = input if len(input) > 1 else ("blue", "bold", *input)
    unknown = next((style for style in styles if style not in _CODES), None)
    if unknown is not None:
        raise ValueError(f"{unknown!r} is not a colour; use some of {', '.join(_CODES)}")
    if not has_colours(sys.stderr):
        return str(text)
    return "".join(f"\033[{_CODES[str(style)]}m" for style in styles) + f"{text}\033[0m"


def increment_path(path: str | os.PathLike[str], exist_ok: bool = False, sep: str = "", mkdir: bool = False) -> Path:
    """Return a path that does not exist: the path itself, or the first one with 2, 3, ... after its name.

    The number is before the ending of a file, after the separator ``sep``. With ``exist_ok`` the path is returned even
    if it exists; ``mkdir`` creates the folder and its parents.
    """
    free = Path(path)
    if free.exists() and not exist_ok:
        stem, ending = (free.stem, free.suffix) if free.is_file() else (free.name, "")
        number = 2
        while (free.parent / f"{stem}{sep}{number}{ending}").exists():
            number += 1
        free = free.parent / f"{stem}{sep}{number}{ending}"
    if mkdir:
        free.mkdir(parents=True, exist_ok=True)
    return free


def print_args(args: Mapping[str, Any] | None = None, show_file: bool = True, show_func: bool = False) -> None:
    """Log the arguments of a script or a function (``None``: those of the calling function), on one line.

    ``show_file`` includes the name of the caller's file, ``show_func`` that of the calling function.
    """
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    if args is None:
        values = inspect.getargvalues(caller) if caller is not None else None
        args = {} if values is None else {name: values.locals[name] for name in values.args}
    where = []
    if caller is not None:
        where += [Path(caller.f_code.co_filename).stem] if show_file else []
        where += [re.sub(r"\W", "", caller.f_code.co_name)] if show_func else []
    head = colorstr(": ".join(where) + ": ") if where else ""
    LOGGER.info(head + ", ".join(f"{name}={value}" for name, value in args.items()))
