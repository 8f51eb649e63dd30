"""The argument parser of the ``teco`` commands."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from engine import ConfigError, add_version
from tecoinfer_modelzoo.distribution import with_page_paths
from tecoinfer_modelzoo.flags import STDOUT, hide_aliases, reserve_stdout
from tecoinfer_modelzoo.process.limits import FLAGS, positive_number
from tecoinfer_modelzoo.text import did_you_mean
from toolkit.command_table import is_supervised
from utils.places import check_folder, check_output, check_outputs, check_paths

_LIMITS = {
    "--time_limit": ("SECONDS", "wall time", "none; one call of native code is limited to 3600 s"),
    "--memory_limit": ("GIB", "memory", "none"),
}
"""Unit, subject and default of each flag."""

_WRITTEN = ("json", "csv", "html", "trace", "junit")  # flags that name output files; missing parent folders are created


def _limit(flag: str, text: str) -> float:
    try:
        return positive_number(flag, text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _read(found: argparse.Namespace) -> list[Path]:
    """Return the arguments that may be input paths."""
    values = [value for name, value in vars(found).items() if name not in _WRITTEN]
    words = [word for value in values for word in (value if isinstance(value, list) else [value])]
    return [Path(word) for word in words if isinstance(word, (str, Path)) and word]


def _one_each(argv: Sequence[str], flag: str) -> list[str]:
    """Return the words of a command line with the flag before each of its values: ``--dim a=1 b=2`` of the scripts.

    With ``nargs="+"`` the flag would take a model's name that follows it.
    """
    words: list[str] = []
    current = ""
    for word in argv:
        if word.startswith("-"):
            current = word
        elif current == flag and words[-1] != flag:
            current = flag if re.fullmatch(r"[^=\s]+=[0-9][0-9,x*]*", word) else ""
            words += [flag] if current else []
        words.append(word)
    return words


def add_zoo_flag(parser: argparse.ArgumentParser) -> None:
    """Add ``--zoo``, the zoo from which models are taken (:mod:`toolkit.zoo_sources`)."""
    text = "take models from this clone, archive or URL of a zoo (default: TECO_ZOO, else installed packages of models)"
    parser.add_argument("--zoo", default="", metavar="PATH", help=text)


class Parser(argparse.ArgumentParser):
    """Argument parser that raises :class:`ConfigError` with one line and accepts no abbreviated flags."""

    def __init__(self, prog: str, description: str | None, epilog: str | None = None) -> None:
        shape = argparse.RawDescriptionHelpFormatter
        super().__init__(prog, None, description, epilog, formatter_class=shape, allow_abbrev=False)
        add_version(self)
        if is_supervised(prog.split()[1:]):
            self._add_limits()

    def _add_limits(self) -> None:
        """Add the flags of the limits that the parent process enforces; it reads them before this process starts."""
        limits = self.add_argument_group("limits", "the command and all its processes are ended at a limit")
        for flag, variable in FLAGS.items():
            unit, what, default = _LIMITS[flag]
            text = f"limit of the {what} (default: {variable}, else {default})"
            limits.add_argument(flag, type=partial(_limit, flag), metavar=unit, help=text)

    def format_help(self) -> str:
        """Return the help, with the paths of the pages that it names."""
        return with_page_paths(super().format_help())

    def hide(self, flag: str, *aliases: str) -> None:
        """Accept former names of a flag without listing them in the help."""
        hide_aliases(self, flag, *aliases)

    def parse_args(self, *args: Any, **how: Any) -> argparse.Namespace:  # type: ignore[override]
        """Parse, and check before any work that the output files can be written.

        Raise ConfigError if an argument is invalid, or an output path cannot be written.
        """
        if args and args[0] is not None and "--dim" in self._option_string_actions:
            args = (_one_each(args[0], "--dim"), *args[1:])
        found: argparse.Namespace = super().parse_args(*args, **how)
        for name, value in vars(found).items():
            paths = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, Path)]
            check_paths(f"--{name}", *paths, *([Path(value)] if name == "model" and isinstance(value, str) else []))
        given = {name: getattr(found, name, None) for name in _WRITTEN}
        files = {f"--{n}": p for n, p in given.items() if isinstance(p, Path) and p != STDOUT}
        check_outputs(files, _read(found), makes_folders=True)
        self._check_out(getattr(found, "out", None))
        reserve_stdout(given["json"])
        return found

    def _check_out(self, out: object) -> None:
        """Check ``--out``: metavar ``DIR`` is a folder, ``FILE`` a file, ``PATH`` a file if it ends in ``.h5``."""
        if not isinstance(out, Path):
            return
        kind = next((action.metavar for action in self._actions if action.dest == "out"), None)
        if kind == "DIR" or (kind == "PATH" and out.suffix != ".h5"):
            check_folder("--out", out)
        else:
            check_output("--out", out, makes_folders=kind == "PATH")

    def error(self, message: str) -> NoReturn:
        """Raise :class:`ConfigError` with the message, and with the most similar flag if a flag is unknown."""
        _, unknown, rest = message.partition("unrecognized arguments: ")
        flags = [name for action in self._actions for name in action.option_strings]
        hint = did_you_mean(rest.split()[0].partition("=")[0], flags) if unknown and rest else ""
        raise ConfigError(f"{message}{';' if hint else ''}{hint} (see {self.prog} --help)")
