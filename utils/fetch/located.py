"""``fetch:NAME/inner/path``: paths to a package's files, for flags that take a path of data or a model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from engine import ConfigError
from tecoinfer_modelzoo.text import did_you_mean
from tecoinfer_modelzoo.trees import below
from utils.fetch.package import FetchError, Package
from utils.fetch.store import fetched, kept
from utils.fetch.table import packages

PREFIX = "fetch:"


def is_fetched_path(path: str | Path) -> bool:
    """Return whether a path starts with ``fetch:``."""
    return str(path).startswith(PREFIX)


def fetched_path(path: str | Path) -> Path:
    """Resolve a ``fetch:`` path and download the package if needed; return other paths unchanged.

    Raises ConfigError for an unknown package or a path with ``..``; FetchError if it is unavailable or lacks the file.
    """
    if not is_fetched_path(path):
        return Path(path)
    name, inner = _split(path)
    if ".." in inner.parts:
        raise ConfigError(f"{path} is outside the package; write a path in it, without '..'")
    folder = fetched(name)
    found = folder / inner
    if not found.exists():
        names = [str(one.relative_to(folder)) for one in sorted(below(folder))]
        files = [one for one in names if (folder / one).is_file()]
        hint = did_you_mean(str(inner), names) or f" such as {files[0]!r}" if files else ""
        raise FetchError(f"{path}: package {name!r} has no {str(inner)!r};{hint} it has {len(files)} files in {folder}")
    return found


def kept_path(folder: Path, path: str, known: Mapping[str, Package] | None = None) -> Path:
    """Resolve a path relative to ``folder``, or a ``fetch:`` path without a download, which may not exist then.

    ``known``: rows of the tables by name, for a caller that resolves many paths; default: the tables are read.
    """
    if not is_fetched_path(path):
        return folder / path
    name, inner = _split(path)
    package = (packages() if known is None else known).get(name)
    found = None if package is None else kept(package)
    return folder / path if found is None or ".." in inner.parts else found / inner


def package_of(path: str) -> str:
    """Return the name of the package of a ``fetch:`` path."""
    return _split(path)[0]


def _split(path: str | Path) -> tuple[str, PurePosixPath]:
    name, _, inner = str(path).removeprefix(PREFIX).partition("/")
    return name, PurePosixPath(inner.lstrip("/"))
