"""A profile: what was launched, how long each took, and what stands in the way; as data and as JSON."""

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
    """One launch: a node, or nodes that run as one kernel.

    Attributes:
        name: of the node that leads it. op_type: its operator. nodes: all nodes in it.
        module: what it was exported from, or "".
        seconds: time of one run.
        flops: floating-point operations. bytes: read and written.
        roof: seconds it would take at the machine's peak; 0 where nothing is known of it.
        bound: what its time goes to: one of :data:`BOUNDS`.
        float32: computed in float32 though the rest is not.
    """

    name: str
    op_type: str
    nodes: tuple[str, ...]
    module: str
    seconds: float
    flops: float
    bytes: int
    roof: float
    bound: str
    float32: bool = False

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.bytes if self.bytes else 0.0

    @property
    def roof_share(self) -> float:
        """Share of the speed that the machine's peak allows at this intensity."""
        return min(self.roof / self.seconds, 1.0) if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """One of the classic four, with the nodes and the fix.

    Attributes:
        kind: slow operator, copies, format conversions, or recompilation.
        text: what was found. fix: what to do about it.
        nodes: names, the slowest first.
        seconds: time that goes into them; ``None`` where it cannot be told.
    """

    kind: str
    text: str
    fix: str
    nodes: tuple[str, ...]
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """How long the computing would take if something were otherwise."""

    what: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Profile:
    """One model on one target.

    Attributes:
        model: file. target: its name. simulated: whether the times are a cost model's. device: in words.
        dtype: of storage. batch: samples of one run (of one shard, on the card). pass_file: or "".
        inputs: name -> shape, of one run.
        peak_flops: operations per second. bandwidth: bytes per second; where the roof comes from is in ``notes``.
        steps: in order. compute: seconds of all of them in one run.
        copy_in, copy_out: seconds between host and card; 0 on the host.
        call: seconds of one run seen from outside; on the card copies and computing.
        bottlenecks, what_if, notes: see there.
        sizes: where open sizes are from: ``model`` (it has none), ``flags``, ``samples`` or ``default``; "": not said.
    """

    model: str
    target: str
    simulated: bool
    device: str
    dtype: str
    batch: int
    pass_file: str
    inputs: Mapping[str, tuple[int, ...]]
    peak_flops: float
    bandwidth: float
    steps: tuple[Launch, ...]
    copy_in: float
    copy_out: float
    call: float
    bottlenecks: tuple[Bottleneck, ...] = ()
    what_if: tuple[WhatIf, ...] = ()
    notes: tuple[str, ...] = field(default=())
    sizes: str = ""
    compute: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Once: the share of each step asks for it.
        object.__setattr__(self, "compute", sum(step.seconds for step in self.steps))

    @property
    def kind(self) -> str:
        """Say how the times were found."""
        return "simulated" if self.simulated else "measured"

    def share(self, seconds: float) -> float:
        """Return a time as a share of the computing."""
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
        """The answer in a sentence."""
        return (
            f"{self.model} on {self.device}, {self.dtype}, batch {self.batch}: {in_words(self.compute)} computing, "
            f"{in_words(self.call)} a call ({self.kind})"
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return the steps as plain data, with the figures that follow from others."""
        return [
            asdict(step)
            | {
                "share": self.share(step.seconds),
                "intensity": step.intensity,
                "roof_share": step.roof_share,
                "kind": self.kind,
            }
            for step in self.steps
        ]

    def data(self) -> dict[str, Any]:
        """Return all but the steps and the notes as plain data."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("steps", "notes", "compute")}
        parts = {name: tuple(map(asdict, plain[name])) for name in ("bottlenecks", "what_if")}
        return plain | parts | {"kind": self.kind, "compute": self.compute}


def unique(names: Iterable[str]) -> list[str]:
    """Return names of which none is empty and no two are one: later ones get a number."""
    found: dict[str, None] = {}
    for i, name in enumerate(names):
        own = name or f"step_{i}"
        while own in found:
            own = f"{own}#{i}"
        found[own] = None
    return list(found)


def read_profile(path: Path) -> Profile:
    """Read the JSON file of a profile.

    Raises:
        ConfigError: the file is missing, damaged, or no profile of this version.
    """
    try:
        data = json.loads(text_of(path))
    except (OSError, ValueError, RecursionError) as error:
        reason = one_line(getattr(error, "strerror", None) or error)
        raise ConfigError(f"profile {path} cannot be read: {reason}; write one with 'teco profile --json'") from error
    if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION or data.get("command") != COMMAND:
        raise ConfigError(
            f"{path} is no profile of schema_version {SCHEMA_VERSION}; write it with 'teco profile --json'"
        )
    try:
        return _profile(data)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"profile {path} lacks or garbles {error}; write it again") from error


_PARTS = {"steps": ("rows", Launch), "bottlenecks": ("bottlenecks", Bottleneck), "what_if": ("what_if", WhatIf)}
"""Field of a profile -> where the file has it, and what each part of it is."""

_KINDS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "float | None": (int, float, type(None)),
}


def _profile(data: Mapping[str, Any]) -> Profile:
    plain = [name for name in Profile.__dataclass_fields__ if name not in (*_PARTS, "inputs", "notes", "compute")]
    added = {"sizes": ""}  # fields that came later: older files lack them
    values: dict[str, Any] = {name: _value(Profile, name, {**added, **data}[name]) for name in plain}
    for name, (key, kind) in _PARTS.items():
        values[name] = tuple(_part(kind, row) for row in data[key])
    values["inputs"] = {str(name): _shape(str(name), shape) for name, shape in data["inputs"].items()}
    return Profile(**values, notes=tuple(map(str, data["notes"])))


def _part(kind: Any, row: Mapping[str, Any]) -> Any:
    return kind(**{name: _value(kind, name, row[name]) for name in kind.__dataclass_fields__})


def _value(kind: Any, name: str, value: Any) -> Any:
    """Return a value of a file as the field's type.

    Raises:
        TypeError: it is of another type, or no finite number.
    """
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
