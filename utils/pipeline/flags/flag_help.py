"""The argument parser and the help format of the example scripts."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from tecoinfer_modelzoo.text import one_line, printable


class OneLineParser(argparse.ArgumentParser):
    """Reports invalid arguments in one line."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error in one line, and exit with code 2."""
        super().error(printable(one_line(message)))


class FlagHelp(argparse.HelpFormatter):
    """Shows default values; finds the terminal's width without ``shutil``, whose import for every flag takes 3 ms."""

    def __init__(self, prog: str) -> None:
        try:
            width = int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns)
        except (OSError, ValueError):
            width = 80
        super().__init__(prog, width=width - 2)

    def _get_help_string(self, action: argparse.Action) -> str:
        text, default = action.help or "", action.default
        if default in (None, False, argparse.SUPPRESS) or default == [] or default == "":
            return text.replace("%", "%%")
        if isinstance(default, (Path, Mapping)):
            default = _relative(default)
        words = " ".join(map(str, default)) if isinstance(default, list) else default
        return f"{text} (default: {words})".replace("%", "%%")


def _relative(default: Path | Mapping[str, Path]) -> str:
    """Return paths relative to the current folder."""
    if isinstance(default, Mapping):
        return " ".join(f"{name}={_relative(path)}" for name, path in default.items())
    return os.path.relpath(default)
