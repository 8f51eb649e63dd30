"""Names of records files, and the records file of a JSON result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine import ConfigError, DataError
from tecoinfer_modelzoo.files import hash_files, read_regular
from utils.metrics.base import Metric

SUFFIXES = (".csv", ".npz")
"""Endings of the two kinds of records files."""

HASH = "records_sha256"
"""Key of a JSON result: SHA-256 of its records file, in hexadecimal; key ``records`` has the file name."""

_MIDDLE = ".samples"
_MOST_JSON = 64 << 20
"""Largest number of bytes of a JSON result that are read."""


def records_path(result: Path, metric: Metric | None = None) -> Path:
    """Return the records file of a JSON result: ``result.samples.csv`` for ``result.json``.

    A name without ``.json`` is kept: ``lr0.1.samples.csv`` for ``lr0.1``. Metrics whose records are not one number per
    sample have ``result.samples.npz``.
    """
    return records_paths(result)[metric is not None and not metric.per_sample]


def records_paths(result: Path) -> tuple[Path, Path]:
    """Return the possible records files of a JSON result, one of each kind."""
    name = result.name if result.name == ".json" else result.name.removesuffix(".json")
    csv, npz = (result.with_name(f"{name}{_MIDDLE}{suffix}") for suffix in SUFFIXES)
    return csv, npz


def find_records(result: Path) -> Path | None:
    """Return the records file of a JSON result; ``None``: there is none.

    A result without the key ``records`` (of an older version, or of another script) has the file next to it. Raises
    DataError if the file is not the one that the result was written with, or cannot be read.
    """
    content = _content(result)
    named = content.get("records")
    path = result.with_name(named) if isinstance(named, str) and named == Path(named).name and named else None
    if HASH not in content:
        if path is not None and path.is_file():
            return path
        has_none = content.get("kind") == "prediction" or ("records" in content and named is None)
        return None if has_none else next(filter(Path.is_file, records_paths(result)), None)
    if path is None or not path.is_file():
        return None
    try:
        found = hash_files(path)
    except OSError as error:
        raise DataError(f"records file {path} cannot be read: {error.strerror}; check the path") from error
    if found != content[HASH]:
        raise DataError(f"{path} is not the records file that {result} was written with; run it again")
    return path


def companions(result: Path) -> dict[str, Path | None]:
    """Return the files that a run writes next to this JSON result, by their description in an error."""
    found: dict[str, Path | None] = {}
    for path in records_paths(result):
        found[f"the records of --json, {path.suffix}"] = path
        found[f"the unfinished records of --json, {path.suffix}"] = path.with_name(f".{path.name}.part")
    return found | {"the unfinished --json": result.with_name(f".{result.name}.new")}


def refuse_others(result: Path, saved: Path | None) -> None:
    """Raise ConfigError, which names both results, if a run would overwrite the records of another result.

    ``result``: the run's ``--json``; ``saved``: its ``--save_predictions``.
    """
    for flag, path in (("--json", result), ("--save_predictions", saved)):
        for one in () if path is None else (path, *(records_paths(path) if path is result else ())):
            other = owner(one)
            if other is not None and other.name != result.name:
                raise ConfigError(f"{flag} {path}: {one.name} would replace the records of {other}; name another file")


def owner(records: Path) -> Path | None:
    """Return the JSON result in the same folder whose records file this is; ``None``: there is none."""
    kind = next((suffix for suffix in SUFFIXES if records.name.endswith(f"{_MIDDLE}{suffix}")), None)
    name = "" if kind is None else records.name.removesuffix(f"{_MIDDLE}{kind}")
    results = [records.with_name(f"{name}{end}") for end in ("", ".json")] if name else []
    return next((one for one in results if one.is_file() and _content(one).get("records") == records.name), None)


def _content(result: Path) -> dict[str, Any]:
    """Return the content of a JSON result; empty if it cannot be read."""
    try:
        found = json.loads(read_regular(result, _MOST_JSON))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def unwritable(path: Path, error: OSError) -> ConfigError:
    """Return the error for a records file that cannot be written."""
    return ConfigError(
        f"records file {path} cannot be written: {error.strerror}; check space and permissions of the folder of --json"
    )


def remove_other_kind(path: Path) -> None:
    """Remove a records file of the other kind, written by an earlier run with another metric."""
    for suffix in SUFFIXES:
        if suffix != path.suffix:
            path.with_suffix(suffix).unlink(missing_ok=True)
