"""Entry points of the installed commands; a foreign package with the name of one of ours is reported in one line."""

from __future__ import annotations

import importlib
import sys
from functools import partial

from tecoinfer_modelzoo.own_packages import ForeignPackageError, check

COMMANDS = {"teco": "toolkit.cli", "tecoexec": "tecoexec.cli", "teco-smi": "engine.sdaa.smi"}
"""Module whose ``main`` each command calls; as text, because this package must not import the packages above it."""


def _run(command: str) -> int | None:
    """Run a command's ``main``; return exit code 2 if a required package belongs to another project."""
    try:
        check()
    except ForeignPackageError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    code: int | None = importlib.import_module(COMMANDS[command]).main()
    return code


teco, tecoexec, teco_smi = (partial(_run, command) for command in COMMANDS)
