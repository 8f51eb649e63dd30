"""What goes wrong with files out of packages; every text is one line."""

from __future__ import annotations

from engine import DataError


class FetchError(DataError):
    """The files of a package cannot be had, or are not what its row says; the text names package, value and fix."""


class UnreachableError(FetchError):
    """No registry gave the archive: there is no network, or they do not have this version."""
