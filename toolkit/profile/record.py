"""Profile of a model: launches, times and bottlenecks; as data and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from engine import ConfigError
from tecoinfer_modelzoo.files import text_of
from tecoinfer_modelzoo.formatting import seconds as in_words
from tecoinfer_modelzoo.text import one_line, shown_value
from toolkit.output import SCHEMA_VERSION

COMMAND = "teco profile"
BOUNDS = ("compute", "memory", "launch", "unknown")


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch: a node, or nodes that run as one kernel."""

    name: str  # of the leading node
    op_type: str  # its operator
    nodes: tuple[str, ...]  # all nodes in it
    module: str  # source module, or ""
    seconds: float  # time of one run
    flops: float  # floating-point operations
    bytes: int  # read and written
    roof: float  # seconds at the machine's peak; 0 if unknown
    bound: str  # one of :data:`BOUNDS`
    float32: bool = False  # computed in float32 in a float16 model

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.bytes if self.bytes else 0.0

    @property
    def roof_share(self) -> float:
        """Share of the peak speed at this intensity."""
        return min(self.roof / self.seconds, 1.0) if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """A bottleneck with its nodes and its fix."""

    kind: str  # slow operator, copies, format conversions, or recompilation
    text: str  # description
    fix: str  # advice
    nodes: tuple[str, ...]  # names, the slowest first
    seconds: float | None = None  # their time; ``None`` if unknown


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Compute time with one change."""

    what: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Profile:
    """Profile of one model on one target."""

    model: str  # file name
    target: str  # name
    simulated: bool  # whether times are simulated
    device: str  # description
    dtype: str  # of storage
    batch: int  # samples of one run (on the card of one shard)
    pass_file: str  # name, or ""
    inputs: Mapping[str, tuple[int, ...]]  # name -> shape, of one run
    peak_flops: float  # operations per second
    bandwidth: float  # bytes per second; ``notes`` has the source of both
    steps: tuple[Launch, ...]  # launches in order
    copy_in: float  # seconds between host and card; 0 on the host
    copy_out: float  # seconds between host and card; 0 on the host
    call: float  # seconds of one run including copies
    bottlenecks: tuple[Bottleneck, ...] = ()
    what_if: tuple[WhatIf, ...] = ()
    notes: tuple[str, ...] = field(default=())  # one line each
    sizes: str = ""  # source of dynamic sizes: ``model`` (none), ``flags``, ``samples`` or ``default``; "": unknown
    compute: float = field(init=False, repr=False, compare=False)  # seconds of all steps in one run

    def __post_init__(self) -> None:
        # Computed once, since share() uses it for each step.
        object.__setattr__(self, "compute", sum(step.seconds for step in self.steps))

    @property
    def kind(self) -> str:
        """``simulated`` or ``measured``."""
        return "simulated" if self.simulated else "measured"

    def share(self, seconds: float) -> float:
        """Return a time as a share of the compute time."""
        return seconds / self.compute if self.compute else 0.0

    def operators(self) -> list[tuple[str, int, float]]:
        """Return operator, number of steps and seconds, the slowest operator first."""
        found: dict[str, tuple[int, float]] = {}
        for step in self.steps:
            count, seconds = found.get(step.op_type, (0, 0.0))
            found[step.op_type] = (count + 1, seconds + step.seconds)
        return sorted(((op, *both) for op, both in found.items()), key=lambda row: -row[2])

    @property
    def lead(self) -> str:
        """Summary in one sentence."""
        return (
            f"{self.model} on {self.device}, {self.dtype}, batch {self.batch}: {in_words(self.compute)} compute, "
            f"{in_words(self.call)} per call ({self.kind})"
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return the steps as plain data, with derived values."""
        derived = ("intensity", "roof_share")
        return [
            asdict(step)
            | {"share": self.share(step.seconds), **{name: getattr(step, name) for name in derived}, "kind": self.kind}
            for step in self.steps
        ]

    def data(self) -> dict[str, Any]:
        """Return all fields but the steps and the notes as plain data."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("steps", "notes", "compute")}
        parts = {name: tuple(map(asdict, plain[name])) for name in ("bottlenecks", "what_if")}
        return plain | parts | {"kind": self.kind, "compute": self.compute}


def unique(names: Iterable[str]) -> list[str]:
    """Return unique non-empty names; duplicates get a number."""
    found: dict[str, None] = {}
    for i, name in enumerate(names):
        own = name or f"step_{i}"
        while own in found:
            own = f"{own}#{i}"
        found[own] = None
    return list(found)


def read_profile(path: Path) -> Profile:
    """Read a profile's JSON file; raise ConfigError if missing, damaged, or not a profile of this version."""
    try:
        data = json.loads(text_of(path))
    except (OSError, ValueError, RecursionError) as error:
        reason = one_line(getattr(error, "strerror", None) or error)
        raise ConfigError(f"profile {path} cannot be read: {reason}; write one with 'teco profile --json'") from error
    if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION or data.get("command") != COMMAND:
        what = f"is not a profile of schema_version {SCHEMA_VERSION}"
        raise ConfigError(f"{path} {what}; write it with 'teco profile --json'")
    try:
        return _profile(data)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"profile {path}: missing or invalid: {error}; write it again") from error


_PARTS = {"steps": ("rows", Launch), "bottlenecks": ("bottlenecks", Bottleneck), "what_if": ("what_if", WhatIf)}
"""Field of a profile -> key in the file, and class of its parts."""

_KINDS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "float | None": (int, float, type(None)),
}


def _profile(data: Mapping[str, Any]) -> Profile:
    plain = [name for name in Profile.__dataclass_fields__ if name not in (*_PARTS, "inputs", "notes", "compute")]
    added = {"sizes": ""}  # missing in older files
    values: dict[str, Any] = {name: _value(Profile, name, {**added, **data}[name]) for name in plain}
    for name, (key, kind) in _PARTS.items():
        values[name] = tuple(_part(kind, row) for row in data[key])
    values["inputs"] = {str(name): _shape(str(name), shape) for name, shape in data["inputs"].items()}
    return Profile(**values, notes=tuple(map(str, data["notes"])))


def _part(kind: Any, row: Mapping[str, Any]) -> Any:
    return kind(**{name: _value(kind, name, row[name]) for name in kind.__dataclass_fields__})


def _value(kind: Any, name: str, value: Any) -> Any:
    """Return a file's value with the field's type; raise TypeError if that is wrong, or a number is not finite."""
    wanted = kind.__dataclass_fields__[name].type
    if wanted == "tuple[str, ...]":
        return tuple(_text(name, one) for one in value)
    finite = not isinstance(value, float) or math.isfinite(value)
    if not isinstance(value, _KINDS[wanted]) or (isinstance(value, bool) and wanted != "bool") or not finite:
        raise TypeError(f"'{name}' ({value!r})")
    return value


def _shape(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(isinstance(size, int) and not isinstance(size, bool) for size in value):
        raise TypeError(f"the shape of '{name}' ({shown_value(value)})")
    return tuple(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"'{name}' ({value!r})")
    return value
