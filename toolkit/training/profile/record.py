"""Read and check the record of a profiled training, written by ``torch_sdaa.profiling.record``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from engine import ConfigError, DataError

KIND, SCHEMA_VERSION = "training profile", 1
LARGEST = 1 << 30  # maximum size in bytes of a file
MOST_PASSES = 16  # maximum backward passes per step that count as batches; more are a loop of the script
_FIELDS = {"steps": int, "devices": list, "launches": list, "op_info": list, "fresh": list}
_ROW: dict[str, Any] = {
    **dict.fromkeys(("op", "phase", "node", "module", "file", "engine"), str),
    **dict.fromkeys(("seconds", "launch_seconds", "arithmetic_seconds", "memory_seconds"), (int, float)),
    "inputs": list,
    "count": int,
    "by_step": dict,
    "line": int,
    "waits": bool,
}
_FRESH: dict[str, Any] = {"step": int, "op": str, "inputs": list, "module": str, "file": str, "line": int}
_KIND: dict[str, Any] = {
    **dict.fromkeys(("op", "engine"), str),
    **dict.fromkeys(("inputs", "outputs"), list),
    "count": int,
    "seconds": (int, float),
    "phases": dict,
}
_TABLES = {"launches": _ROW, "fresh": _FRESH, "op_info": _KIND}
_PLACE: dict[str, Any] = {"file": str, "line": int}
_MORE_TABLES = {
    "synchronisations": {**_PLACE, "by_step": dict},
    "compilations": {**_PLACE, "function": str, "reason": str},
    "calls": {**_PLACE, "modules": list, "inside": list, "count": int, "beside": int},
}
"""Tables that older profiles may lack."""
_MORE: dict[str, Any] = {"outputs": list, "kernels": list, "hidden": (int, float), "own": bool, "other_end": bool}
"""Fields of a launch that older profiles may lack."""
_MADE_BY = "make one: teco train profile SCRIPT --json FILE"


@dataclass(frozen=True, slots=True)
class Profile:
    """A profiled training: name of the script or file, and the record (JSON types)."""

    name: str
    data: dict[str, Any]

    @property
    def steps(self) -> int:
        """Number of optimizer steps that returned."""
        return int(self.data["steps"])

    @property
    def steady(self) -> frozenset[int]:
        """Indices of the judged steps: without the first, which loads and builds, if there are others."""
        return frozenset(range(1, self.steps)) if self.steps > 1 else frozenset((0,))

    def launches(self) -> list[Launch]:
        """Return the launches of the judged steps, as rows; a copy between devices once."""
        rows = (_of_steps(row, self.steady) for row in self.data["launches"] if not row.get("other_end"))
        return [row for row in rows if row.count]

    def usual(self, rows: Iterable[Launch]) -> float:
        """Return the median of these launches per judged step, so that work of only one (an evaluation) is left out."""
        every = list(rows)
        return float(median(sum(row.by_step.get(step, 0) for row in every) for step in self.steady))

    @property
    def passes(self) -> float:
        """Backward passes of a typical step: 4 if an update uses the gradients of four batches."""
        counts = self.data.get("passes") or {}
        found = float(median(counts.get(str(step), 1) for step in self.steady))
        return max(found, 1.0) if found <= MOST_PASSES else 1.0

    def per_step(self, count: float) -> float:
        """Return a count divided by the number of judged steps."""
        return count / len(self.steady)


@dataclass(frozen=True, slots=True)
class Launch:
    """Launches of one operator with the same operands from the same place, in the judged steps."""

    op: str  # as in the record
    inputs: tuple[str, ...]  # as in the record
    phase: str  # as in the record
    node: str  # as in the record
    module: str  # as in the record
    file: str  # as in the record
    line: int  # as in the record
    engine: str  # as in the record
    waits: bool  # as in the record
    count: int  # of the launches
    by_step: Mapping[int, int]  # of each step
    seconds: float  # simulated
    launch: float  # parts of these seconds
    arithmetic: float  # parts of these seconds
    memory: float  # parts of these seconds
    kernels: tuple[dict[str, Any], ...] = ()  # of a compiled graph: kind, launches, seconds in one run, longest first
    hidden: float = 0.0  # seconds of a copy during which the device computes
    own: bool = False  # of a backward: whether the script defines it, so that the line is its own
    outputs: tuple[str, ...] = ()  # as in the record

    @property
    def source(self) -> str:
        """The source line; "" if unknown."""
        return f"{self.file}:{self.line}" if self.line else ""

    @property
    def launch_bound(self) -> bool:
        """Whether launching takes at least 80 % of the time."""
        return self.launch >= 0.8 * self.seconds


def _of_steps(row: dict[str, Any], steps: Iterable[int]) -> Launch:
    by_step = {step: row["by_step"][str(step)] for step in steps if str(step) in row["by_step"]}
    count = sum(by_step.values())
    part = count / max(row["count"], 1)
    seconds, launch, arithmetic, memory = (
        part * row[name] for name in ("seconds", "launch_seconds", "arithmetic_seconds", "memory_seconds")
    )
    return Launch(
        row["op"],
        tuple(row["inputs"]),
        row["phase"],
        row["node"],
        row["module"],
        row["file"],
        row["line"],
        row["engine"],
        row["waits"],
        count,
        by_step,
        seconds,
        launch,
        arithmetic,
        memory,
        tuple(row.get("kernels") or ()),
        part * float(row.get("hidden") or 0.0),
        bool(row.get("own")),
        tuple(row.get("outputs") or ()),
    )


def read_profile(path: Path) -> Profile:
    """Read a profile's JSON file; raise ConfigError if missing, DataError if it is not a training's of this version."""
    if path.is_dir():
        path = path / "profile.json"
    if not path.is_file():
        raise ConfigError(f"{path} is not a file; {_MADE_BY}")
    if path.stat().st_size > LARGEST:
        raise DataError(f"{path} has more than {LARGEST >> 20} MiB; {_MADE_BY} with fewer --steps")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is not a readable JSON file; {_MADE_BY}") from error
    return checked(data, str(path))


def checked(data: Any, name: str) -> Profile:
    """Return parsed JSON as a profile; raise DataError if it is not a profile, or of another version."""
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise DataError(f"{name} is not a profile of a training; {_MADE_BY}")
    if data.get("schema_version") != SCHEMA_VERSION:
        version = str(data.get("schema_version"))[:20]
        raise DataError(f"{name} has schema version {version}, expected {SCHEMA_VERSION}; profile again")
    for field, kind in _FIELDS.items():
        if not isinstance(data.get(field), kind):
            raise DataError(f"{name}: its field {field!r} is missing or damaged; profile again")
    for table, fields in {**_TABLES, **{known: _MORE_TABLES[known] for known in _MORE_TABLES.keys() & data}}.items():
        rows = data[table]
        if not isinstance(rows, list) or not all(_is_row(row, fields) for row in rows):
            raise DataError(f"{name}: a row of {table!r} is damaged; profile again")
    more = all(isinstance(row[known], _MORE[known]) for row in data["launches"] for known in _MORE.keys() & row)
    if not more or not _are_counts(data.get("passes") or {}):
        raise DataError(f"{name}: a field is damaged; profile again")
    return Profile(Path(str(data.get("script") or name)).name, data)


def _is_row(row: Any, fields: dict[str, Any]) -> bool:
    return (
        isinstance(row, dict)
        and all(isinstance(row.get(name), kind) for name, kind in fields.items())
        and _are_counts(row.get("by_step") or {})
        and all(
            isinstance(row[table], list) and all(isinstance(text, str) for text in row[table])
            for table in _LISTS & row.keys()
        )
    )


_LISTS = {"inputs", "outputs", "modules", "inside"}


def _are_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(count, int) for count in value.values())


def total(rows: Sequence[Launch]) -> float:
    """Return the simulated seconds of rows."""
    return sum(row.seconds for row in rows)
