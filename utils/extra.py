"""Packages that only some runs need, each of an optional part of the zoo."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from engine import ConfigError
from tecoinfer_modelzoo import install_command


@contextmanager
def extra(use: str, name: str = "check") -> Iterator[None]:
    """Say what to install where an import in the block fails.

    Args:
        use: what the package is wanted for, such as ``the HTML report``.
        name: the optional part of the zoo that brings it.

    Raises:
        ConfigError: a package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        raise ConfigError(
            f"{use} needs the package {package}, which is not installed; run: {install_command(name)}"
        ) from error
