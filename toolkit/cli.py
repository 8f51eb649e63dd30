"""The ``teco`` command: its help, and how it ends.

Exit codes: those of the command; 2 where it cannot do its work, with one line that says why; 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from engine import version_line
from toolkit.command_table import COMMANDS, command
from utils.pipeline.cli import run


def main() -> None:
    """Run the process's own arguments and exit; an error raised on purpose is one line, never a traceback."""
    run(lambda: execute(sys.argv[1:]))


def execute(argv: Sequence[str]) -> int:
    """Run a command and return its exit code.

    Raises:
        ConfigError: there is no such command.
        TecoInferError: the command cannot do its work.
    """
    first, *rest = argv or ["--help"]
    if first in ("--help", "-h") or (first == "help" and not rest):
        print(usage())
        return 0
    if first == "--version":
        print(version_line("teco"))
        return 0
    return command(rest[0])(["--help"]) if first == "help" else command(first)(rest)


def usage() -> str:
    """Return the help: one line per command."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    head = ["usage: teco COMMAND [arguments]", "       teco help COMMAND", "       teco --version", "", "commands:"]
    return "\n".join(head + lines)


if __name__ == "__main__":
    main()
