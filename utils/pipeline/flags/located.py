"""Resolve paths ``fetch:NAME/path`` of data and models in packages (docs/data.md)."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

Given = TypeVar("Given", bound="Path | dict[str, Path] | None")


def located(given: Given) -> Given:
    """Return a path, or several by name, with those in packages resolved; packages are downloaded if needed.

    Raises:
        ConfigError: an unknown package.
        FetchError: the package cannot be downloaded, or lacks the file.
    """
    paths = list(given.values()) if isinstance(given, dict) else [given]
    if not any(str(path).startswith("fetch:") for path in paths):
        return given
    from utils.fetch import fetched_path  # imported only for such a path

    if isinstance(given, dict):
        return type(given)((name, fetched_path(path)) for name, path in given.items())
    return fetched_path(str(given))  # type: ignore[return-value]  # a Path for a Path
