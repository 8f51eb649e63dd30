"""A target's support table: what is known of its operators and dtypes, and from where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.base import ConfigError
from toolkit.arguments import did_you_mean

FOLDER = Path(__file__).resolve().parent
LEVELS = ("stated", "simulated", "host", "missing")
"""How a table knows of something, from the best to the worst."""


@dataclass(frozen=True, slots=True)
class Support:
    """What is known of one operator or dtype: a word of :data:`LEVELS`, its source, and what to do about it."""

    level: str
    source: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A support table; ``operators`` by name, those of other domains as ``domain::name``."""

    target: str
    operators: Mapping[str, Support]
    dtypes: Mapping[str, Support]
    notes: tuple[str, ...] = ()

    def operator(self, name: str) -> Support | None:
        """Return what is said of an operator, or ``None``."""
        return self.operators.get(name)


def targets() -> list[str]:
    """Return the targets that have a table here."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_table(target: str, file: Path | None = None) -> Table:
    """Read a target's table.

    Args:
        target: what it is for. file: a table from elsewhere, such as the vendor's own; ``None`` takes the zoo's.

    Raises:
        ConfigError: there is none, or it is not one.
    """
    import yaml

    path = file or FOLDER / f"{target}.yaml"
    if not path.is_file():
        near = did_you_mean(target, targets())
        known = ", ".join(targets())
        raise ConfigError(
            f"no support table for target {target!r} ({path});{near} tables: {known}; or pass --table FILE"
        )
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a YAML file: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict) or found.get("schema_version") != 1:
        raise ConfigError(f"{path} is no support table of schema_version 1; see toolkit/ops/sdaa.yaml")
    operators, dtypes = (_entries(found.get(key), path, key) for key in ("operators", "dtypes"))
    return Table(target, operators, dtypes, tuple(map(str, found.get("notes") or ())))


def _entries(found: Any, path: Path, key: str) -> dict[str, Support]:
    if not isinstance(found or {}, dict):
        raise ConfigError(f"{path}: {key} must be a mapping; see toolkit/ops/sdaa.yaml")
    return {str(name): _support(entry, path, f"{key}.{name}") for name, entry in (found or {}).items()}


def _support(entry: Any, path: Path, where: str) -> Support:
    if not isinstance(entry, dict) or entry.get("level") not in LEVELS or entry.keys() - {"level", "source", "fix"}:
        raise ConfigError(f"{path}: {where} must have a level ({', '.join(LEVELS)}), and may have source and fix")
    return Support(entry["level"], str(entry.get("source", "")), str(entry.get("fix", "")))
