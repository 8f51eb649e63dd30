"""Errors of package downloads; each message is one line."""

from __future__ import annotations

from engine import DataError


class FetchError(DataError):
    """The files of a package are unavailable or differ from its table row."""


class UnreachableError(FetchError):
    """No registry returned the archive: no network, or the version is missing."""
