"""What YOLO's scripts say and where they write: a logger, colours, the arguments of a run, a folder for each run."""

from __future__ import annotations

import inspect
import logging
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

TQDM_BAR_FORMAT = "{desc} {percentage:3.0f}%|{bar:12}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_fmt}]"
"""The line of a progress bar: what it is, how far, how long."""

_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")

_CODES = {
    **{name: 30 + place for place, name in enumerate(_COLOURS)},
    **{f"bright_{name}": 90 + place for place, name in enumerate(_COLOURS)},
    "end": 0,
    "bold": 1,
    "underline": 4,
}
"""Numbers of ECMA-48's "select graphic rendition"."""


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to what is the standard error when a line comes, not when the handler was made."""

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
    """Return the scripts' logger: from level INFO on, the bare message, to the standard error."""
    logger = logging.getLogger("tecoinfer.yolo_pt")
    if not logger.handlers:
        logger.addHandler(_StandardError())
        logger.setLevel(logging.INFO)
        logger.propagate = False
    return logger


LOGGER = _logger()
"""Where the scripts and these modules write what a person is to read; results are printed."""


def colorstr(*input: object) -> str:
    """Return a text between the codes that colour it on a terminal.

    Args:
        *input: colours (``"red"``, ``"bright_blue"``, ...) and ``"bold"`` or ``"underline"``, then the text. The text
            alone is blue and bold.

    Raises:
        ValueError: a name is no colour.
    """
    *styles, text = input if len(input) > 1 else ("blue", "bold", *input)
    unknown = next((style for style in styles if style not in _CODES), None)
    if unknown is not None:
        raise ValueError(f"{unknown!r} is no colour; use some of {', '.join(_CODES)}")
    return "".join(f"\033[{_CODES[str(style)]}m" for style in styles) + f"{text}\033[0m"


def increment_path(path: str | os.PathLike[str], exist_ok: bool = False, sep: str = "", mkdir: bool = False) -> Path:
    """Return a path that is free: the path itself, or the first free one of it with 2, 3, ... behind its name.

    Args:
        path: of a folder, or of a file, whose number then goes in front of its ending.
        exist_ok: take the path even where it is there already.
        sep: what goes between name and number.
        mkdir: make the folder, and those above it.
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
    """Log what a script or a function was called with, on one line.

    Args:
        args: names and values; ``None``: the arguments of the function that calls this.
        show_file: say the name of the file of the caller. show_func: say the name of the function.
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
