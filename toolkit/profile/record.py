"""A profile: what was launched, how long each took, and what stands in the way; as data and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine.base import ConfigError

SCHEMA_VERSION = 1

BOUNDS = ("compute", "memory", "launch", "unknown")


@dataclass(frozen=True, slots=True)
class Step:
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
        peak_flops: operations per second. bandwidth: bytes per second; where the roof comes from is in ``notes``.
        steps: in order. compute: seconds of all of them in one run.
        copy_in, copy_out: seconds between host and card; 0 on the host.
        call: seconds of one run seen from outside; on the card copies and computing.
        bottlenecks, what_if, notes: see there.
    """

    model: str
    target: str
    simulated: bool
    device: str
    dtype: str
    batch: int
    pass_file: str
    peak_flops: float
    bandwidth: float
    steps: tuple[Step, ...]
    copy_in: float
    copy_out: float
    call: float
    bottlenecks: tuple[Bottleneck, ...] = ()
    what_if: tuple[WhatIf, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def compute(self) -> float:
        """Seconds of all steps in one run."""
        return sum(step.seconds for step in self.steps)

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

    def as_json(self) -> dict[str, Any]:
        """Return plain data, with the figures that follow from others where readers look for them."""
        data = asdict(self)
        for step, row in zip(self.steps, data["steps"], strict=True):
            row |= {"intensity": step.intensity, "roof_share": step.roof_share, "share": self.share(step.seconds)}
        return {"schema_version": SCHEMA_VERSION, **data, "kind": self.kind, "compute": self.compute}


def read_profile(path: Path) -> Profile:
    """Read the JSON file of a profile.

    Raises:
        ConfigError: the file is missing, damaged, or no profile of this version.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise ConfigError(f"profile {path} cannot be read: {reason}; write one with 'teco profile --json'") from error
    if not isinstance(data, dict) or data.get("schema_version") != SCHEMA_VERSION or "steps" not in data:
        raise ConfigError(
            f"{path} is no profile of schema_version {SCHEMA_VERSION}; write it with 'teco profile --json'"
        )
    try:
        return _profile(data)
    except (KeyError, TypeError) as error:
        raise ConfigError(f"profile {path} lacks or garbles {error}; write it again") from error


def _profile(data: Mapping[str, Any]) -> Profile:
    parts = {"steps": Step, "bottlenecks": Bottleneck, "what_if": WhatIf}
    values: dict[str, Any] = {name: data[name] for name in Profile.__dataclass_fields__}
    for name, kind in parts.items():
        values[name] = tuple(_part(kind, row) for row in data[name])
    return Profile(**{**values, "notes": tuple(data["notes"])})


def _part(kind: Any, row: Mapping[str, Any]) -> Any:
    values = {name: row[name] for name in kind.__dataclass_fields__}
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in values.items()})
