"""The packages that only reports need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from engine import ConfigError


@contextmanager
def extra(use: str) -> Iterator[None]:
    """Say what to install where an import in the block fails.

    Args:
        use: what the package is wanted for, such as ``the HTML report``.

    Raises:
        ConfigError: a package is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        raise ConfigError(
            f"{use} needs the package {package}, which is not installed; "
            'run: pip install -c constraints.txt -e ".[check]"'
        ) from error
