"""The ``teco`` command: dispatch, help and exit codes.

Exit codes: those of the command; 2 on an error, which is printed as one line; 130 if interrupted.

Commands that run models do so in a child process, which is forked before large packages are imported.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from functools import partial

from engine import ConfigError
from engine.host import version_line
from tecoinfer_modelzoo.flags import restoring_stdout
from tecoinfer_modelzoo.process.limits import limits_of
from tecoinfer_modelzoo.process.supervise import supervised
from tecoinfer_modelzoo.text import printable, shortened
from toolkit.command_table import COMMANDS, command, is_supervised

_HELP = frozenset(("--help", "-h", "--version"))
_LONGEST = 200  # largest number of characters of the command line in the message about an abnormal end


def main() -> None:
    """Run the command of ``sys.argv`` and exit; a TecoInferError is printed as one line, without a traceback."""
    words = sys.argv[1:]
    unusable = _supervise(words)
    from utils.pipeline.cli import run  # imports numpy, and with it threads

    run(lambda: execute(words, unusable))


def _supervise(words: Sequence[str]) -> str:
    """Continue in a child process if the command needs one; return the error of invalid limits, or ""."""
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
        unusable: error message of invalid limits, or "".

    Raise ConfigError if the command is unknown, or its limits are invalid, TecoInferError if the command failed.
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
    with restoring_stdout():
        return command(first)(rest)


def usage() -> str:
    """Return the help text, one line per command."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    head = ["usage: teco COMMAND [arguments]", "       teco help COMMAND", "       teco --version", "", "commands:"]
    return "\n".join(head + lines)


if __name__ == "__main__":
    main()
