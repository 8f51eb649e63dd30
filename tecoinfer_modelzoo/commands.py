"""Where the installed commands start: a user's folder that hides a package of the zoo is one line, not a crash."""

from __future__ import annotations

import importlib
import sys

from tecoinfer_modelzoo.own_packages import ForeignPackageError, check

COMMANDS = {"teco": "toolkit.cli", "tecoexec": "tecoexec.cli", "teco-smi": "engine.sdaa.smi"}
"""Each command and the module whose ``main`` it is; named as text, since nothing below may import what is above."""


def teco() -> int | None:
    """Run ``teco``."""
    return _run("teco")


def tecoexec() -> int | None:
    """Run ``tecoexec``."""
    return _run("tecoexec")


def teco_smi() -> int | None:
    """Run ``teco-smi``."""
    return _run("teco-smi")


def _run(command: str) -> int | None:
    """Run a command's ``main``; exit code 2 where a package it needs is another project's."""
    try:
        check()
    except ForeignPackageError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    code: int | None = importlib.import_module(COMMANDS[command]).main()
    return code
