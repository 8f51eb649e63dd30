"""h5py, which is not part of the core install."""

from __future__ import annotations

from typing import Any

from tecoinfer_modelzoo import install_command
from tecoinfer_modelzoo.errors import ConfigError


def needed_h5py(what: str, instead: str = "") -> Any:
    """Return the module h5py.

    Args:
        what: subject of the error, in the plural. instead: alternative without h5py.

    Raise ConfigError if it is not installed.
    """
    try:
        import h5py
    except ModuleNotFoundError as error:
        other = f", or {instead}" if instead else ""
        raise ConfigError(
            f"{what} need the package h5py, which is not installed; run: {install_command('toolkit')}{other}"
        ) from error
    return h5py
