"""Support table of a target: support of operators and dtypes, with sources."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine import ConfigError, TargetError, engine_class, provider
from tecoinfer_modelzoo.text import one_line, shortened, shown_value
from tecoinfer_modelzoo.yaml_files import YamlError, read_yaml

FOLDER = Path(__file__).resolve().parent
LEVELS = ("stated", "tried", "simulated", "unknown", "host", "missing")
"""Levels of support, from best to worst; ``host`` and ``missing`` are unsupported on the target."""
LACKING = ("host", "missing")
_FORM = "toolkit/ops/sdaa.yaml shows the form"


@dataclass(frozen=True, slots=True)
class Support:
    """Support of one operator or dtype: one of :data:`LEVELS`, its source, and a fix."""

    level: str
    source: str = ""
    fix: str = ""

    @property
    def lacking(self) -> bool:
        """Whether the target does not support it."""
        return self.level in LACKING


@dataclass(frozen=True, slots=True)
class Table:
    """A support table; ``operators`` by name, outside the ONNX domain as ``domain::name``.

    Others are tried on the target's engine, with level ``tried``, or ``simulated`` if it is.
    """

    target: str
    operators: Mapping[str, Support]
    dtypes: Mapping[str, Support]
    notes: tuple[str, ...] = ()
    simulated: bool = False

    def operator(self, name: str) -> Support | None:
        """Return the support of an operator, or ``None`` if it is not listed."""
        return self.operators.get(name)


def targets() -> list[str]:
    """Return the targets with a table in this folder."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_table(target: str, file: Path | None = None) -> Table:
    """Read a target's table.

    Args:
        target: name of the target. file: the table; ``None`` takes that of the zoo for a built-in target,
            ``<target>.ops.yaml`` next to the module of a third party's engine, or else an empty table.

    Raise ConfigError if the file is missing or invalid, TargetError if the target is unknown.
    """
    path = file or _own_table(target)
    if path is None:
        note = f"{target} has no support table: each operator was tried separately"
        return Table(target, {}, {}, (note,), _simulated(target))
    if not os.path.exists(path):
        raise ConfigError(f"support table {path} does not exist; pass a file ({_FORM})")
    try:
        found = read_yaml(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror or error}); pass a file ({_FORM})") from error
    except YamlError as error:
        raise ConfigError(f"{path} is not a YAML file: {one_line(error)}") from error
    if not isinstance(found, dict) or found.get("schema_version") != 1:
        raise ConfigError(f"{path} is not a support table of schema_version 1; {_FORM}")
    notes = found.get("notes") or []
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        raise ConfigError(f"{path}: notes must be a list of texts; {_FORM}")
    operators, dtypes = (_entries(found.get(key), path, key) for key in ("operators", "dtypes"))
    return Table(target, operators, dtypes, tuple(notes), _simulated(target))


def _own_table(target: str) -> Path | None:
    import sys

    engine = engine_class(target)
    module = getattr(sys.modules.get(engine.__module__), "__file__", None)
    own = provider(target) == "built-in"
    path = FOLDER / f"{target}.yaml" if own or not module else Path(module).with_name(f"{target}.ops.yaml")
    return path if path.is_file() and (own or module) else None


def _simulated(target: str) -> bool:
    try:
        return engine_class(target).simulated
    except TargetError:  # the target need not be installed
        return False


def _entries(found: Any, path: Path, key: str) -> dict[str, Support]:
    if not isinstance(found or {}, dict):
        raise ConfigError(f"{path}: {key} must be a mapping; {_FORM}")
    return {str(name): _support(entry, path, f"{key}.{_word(name)}") for name, entry in (found or {}).items()}


def _word(name: object) -> str:
    """Return an operator's name for a message."""
    return shortened(str(name), 100) if isinstance(name, str) else shown_value(name)


def _support(entry: Any, path: Path, where: str) -> Support:
    levels = [level for level in LEVELS if isinstance(entry, dict) and entry.get("level") == level]
    if not levels or entry.keys() - {"level", "source", "fix"}:
        raise ConfigError(f"{path}: {where} must have a level ({', '.join(LEVELS)}), and may have source and fix")
    source, fix = (entry.get(key) or "" for key in ("source", "fix"))
    if not isinstance(source, str) or not isinstance(fix, str):
        raise ConfigError(f"{path}: {where}: source and fix must be texts; {_FORM}")
    return Support(levels[0], source, fix)
