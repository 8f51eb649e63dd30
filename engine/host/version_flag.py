"""The flag ``--version`` of every command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any


def add_version(parser: argparse.ArgumentParser) -> None:
    """Add ``--version``: one line with the zoo's version and those of the components that determine its values.

    Also turns off the colours of the help text (Python 3.14): the safe streams would print their codes as text.
    """
    vars(parser)["color"] = False
    parser.add_argument("--version", action=_ShowVersion, help="print the version and exit")


class _ShowVersion(argparse.Action):
    """Reads versions only when used: package metadata takes as long as many a whole run."""

    def __init__(self, option_strings: Sequence[str], dest: str, **given: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, default=argparse.SUPPRESS, help=given["help"])

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Print the line and exit with 0."""
        from engine.host.installed import version_line

        sys.stdout.write(version_line(parser.prog) + "\n")
        parser.exit()
