"""Former names of command-line flags, accepted but not listed in the help."""

from __future__ import annotations

import argparse


def hide_aliases(parser: argparse.ArgumentParser, flag: str, *aliases: str) -> None:
    """Accept aliases of a flag that the parser has; the help lists only ``flag``."""
    for alias in aliases:
        parser._option_string_actions[alias] = parser._option_string_actions[flag]
