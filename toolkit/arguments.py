"""The argument parser of the ``teco`` commands."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from engine import ConfigError, add_version
from tecoinfer_modelzoo.process.limits import FLAGS, positive_number
from tecoinfer_modelzoo.text import did_you_mean
from toolkit.command_table import is_supervised
from utils.places import check_folder, check_given, check_output, check_outputs

_LIMITS = {
    "--time_limit": ("SECONDS", "none, but an hour for one call of native code"),
    "--memory_limit": ("GIB", "what the system gives"),
}
"""Unit and default of each flag."""

_WRITTEN = ("json", "csv", "html", "trace", "junit")
"""Flags of files that a command writes; their folders are made."""


def _limit(flag: str, text: str) -> float:
    try:
        return positive_number(flag, text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _read(found: argparse.Namespace) -> list[Path]:
    """Return what the arguments name to be read, where it is there."""
    values = [value for name, value in vars(found).items() if name not in _WRITTEN]
    words = [word for value in values for word in (value if isinstance(value, list) else [value])]
    return [Path(word) for word in words if isinstance(word, (str, Path)) and word]


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the arguments in one line, as for every other error, and takes no abbreviated flags."""

    def __init__(self, prog: str, description: str | None, epilog: str | None = None) -> None:
        shape = argparse.RawDescriptionHelpFormatter
        super().__init__(prog, None, description, epilog, formatter_class=shape, allow_abbrev=False)
        add_version(self)
        if is_supervised(prog.split()[1:]):
            self._add_limits()

    def _add_limits(self) -> None:
        """Add the limits that the parent process keeps: read there before this process begins."""
        limits = self.add_argument_group("limits", "a command that exceeds one is ended with all its processes")
        for flag, variable in FLAGS.items():
            unit, default = _LIMITS[flag]
            text = f"default: {variable}, else {default}"
            limits.add_argument(flag, type=partial(_limit, flag), metavar=unit, help=text)

    def parse_args(self, *args: Any, **how: Any) -> argparse.Namespace:  # type: ignore[override]
        """Parse, and refuse files that could not be written at the end: better before the work than after it."""
        found: argparse.Namespace = super().parse_args(*args, **how)
        for name, value in vars(found).items():
            paths = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, Path)]
            check_given(f"--{name}", *paths, *([Path(value)] if name == "model" and isinstance(value, str) else []))
        given = {name: getattr(found, name, None) for name in _WRITTEN}
        check_outputs({f"--{n}": p for n, p in given.items() if isinstance(p, Path)}, _read(found), makes_folders=True)
        self._check_out(getattr(found, "out", None))
        return found

    def _check_out(self, out: object) -> None:
        """Refuse an ``--out`` that cannot be written: a folder (``DIR``), a file, or by its ending (``PATH``)."""
        if not isinstance(out, Path):
            return
        kind = next((action.metavar for action in self._actions if action.dest == "out"), None)
        if kind == "DIR" or (kind == "PATH" and out.suffix != ".h5"):
            check_folder("--out", out)
        else:
            check_output("--out", out, makes_folders=kind == "PATH")

    def error(self, message: str) -> NoReturn:
        """Raise the message as a :class:`ConfigError`; of an unknown flag with the one that is like it."""
        _, unknown, rest = message.partition("unrecognized arguments: ")
        hint = did_you_mean(rest.split()[0].partition("=")[0], self._option_string_actions) if unknown and rest else ""
        raise ConfigError(f"{message}{';' if hint else ''}{hint} (see {self.prog} --help)")
