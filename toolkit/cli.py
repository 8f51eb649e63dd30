"""The ``teco`` command: its help, and how it ends.

Exit codes: those of the command; 2 where it cannot do its work, with one line that says why; 130 interrupted.

A command that runs models does so in a child process, which is forked before anything large is imported.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from functools import partial

from engine import ConfigError, version_line
from tecoinfer_modelzoo.process.limits import limits_of
from tecoinfer_modelzoo.process.supervise import supervised
from tecoinfer_modelzoo.text import printable, shortened
from toolkit.command_table import COMMANDS, command, is_supervised

_HELP = frozenset(("--help", "-h", "--version"))
_LONGEST = 200
"""Characters of the command in a line about its end."""


def main() -> None:
    """Run the process's own arguments and exit; an error raised on purpose is one line, never a traceback."""
    words = sys.argv[1:]
    unusable = _supervise(words)
    from utils.pipeline.cli import run  # imports numpy, and with it threads

    run(lambda: execute(words, unusable))


def _supervise(words: Sequence[str]) -> str:
    """Go on in a child process where the command is to have one; return what is wrong with the limits, or ""."""
    own = words[: words.index("--")] if "--" in words else words
    if not is_supervised(own) or not _HELP.isdisjoint(own):
        return ""
    try:
        limits = limits_of(own)
    except ValueError as error:
        return str(error)
    supervised(shortened(shlex.join(["teco", *words]), _LONGEST), limits, partial(printable, keep=""))
    return ""


def execute(argv: Sequence[str], unusable: str = "") -> int:
    """Run a command in this process and return its exit code.

    Args:
        argv: the command's name and its arguments.
        unusable: what is wrong with its limits.

    Raises:
        ConfigError: there is no such command, or its limits cannot be used.
        TecoInferError: the command cannot do its work.
    """
    if unusable:
        raise ConfigError(unusable)
    first, *rest = argv or ["--help"]
    if first in ("--help", "-h") or (first == "help" and not rest):
        print(usage())
        return 0
    if first == "--version":
        print(version_line("teco"))
        return 0
    if first == "help":
        return command(rest[0])([*(rest[1:2] if rest[0] == "train" else ()), "--help"])
    return command(first)(rest)


def usage() -> str:
    """Return the help: one line per command."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    head = ["usage: teco COMMAND [arguments]", "       teco help COMMAND", "       teco --version", "", "commands:"]
    return "\n".join(head + lines)


if __name__ == "__main__":
    main()
