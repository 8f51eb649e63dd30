"""How the help of an example script shows its flags."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from tecoinfer_modelzoo.text import one_line, printable


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line, whatever they hold."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and leave with exit code 2; an argument's line break makes no line."""
        super().error(printable(one_line(message)))


class FlagHelp(argparse.HelpFormatter):
    """Shows defaults where there are any; knows how wide the terminal is without shutil.

    argparse loads that for every flag, 3 ms of every start.
    """

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
        if isinstance(default, (Path, dict)):
            default = _shown(default)
        words = " ".join(map(str, default)) if isinstance(default, list) else default
        return f"{text} (default: {words})".replace("%", "%%")


def _shown(default: Path | Mapping[str, Path]) -> str:
    if isinstance(default, Path):
        return str(default)
    return " ".join(f"{name}={path}" for name, path in default.items())
