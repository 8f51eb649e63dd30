"""Judge the operators of a training by the device's table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolkit.training.operators.table import COMPOSITE, FALLBACK, KERNEL, LEVELS, MISSING, UNKNOWN, DeviceTable
from toolkit.training.operators.watch import Asked, Watched

FIX = (
    "compute it on the host (.cpu() before it, .sdaa() after), or register a custom kernel for the device "
    "(example/training/custom_op)"
)
LIMITS = {
    "float64": "float64, which such cards lack: use float32",
    "complex128": "complex128, which such cards lack: use complex64",
}
"""dtypes that strict mode refuses: the adapter guide (002) states that such cards have no float64."""
VARYING = "the shape of its result depends on values, which such cards do not support"
_DEVICE = "PrivateUse1"


@dataclass(frozen=True, slots=True)
class Served:
    """How the device serves an operator of a training."""

    name: str  # ``aten::add.Tensor``
    calls: Mapping[str, int]  # by phase
    dtypes: Sequence[str]  # of the recorder
    shapes: Sequence[str]  # of the recorder
    first: str  # of the recorder
    level: str  # a key of ``LEVELS``, or ``unknown``
    source: str  # how the level was determined
    seconds: float | None  # simulated, of all judged calls; ``None`` if not all could be made
    assumed: float  # the part of them that rests on assumed rates
    parts: Sequence[str]  # launched kernels
    remarks: Sequence[str]  # what to do, and strict mode's objections


def judge(watched: Watched, table: DeviceTable, asked: Asked | None) -> list[Served]:
    """Judge every operator that does not stay on the host; missing ones come first.

    ``table``: of the device, stored or live. ``asked``: results of the calls on the live one.
    """
    later = watched.steps > 1
    found = [_served(one, table, asked, later) for one in watched.operators if one["calls"].keys() - {"host"}]
    order = {MISSING: 0, UNKNOWN: 1}
    return sorted(found, key=lambda one: order.get(one.level, 2))


def on_host(watched: Watched) -> int:
    """Return the number of calls that stay on the host."""
    return sum(one["calls"].get("host", 0) for one in watched.operators)


def _served(one: Mapping[str, Any], table: DeviceTable, asked: Asked | None, later: bool) -> Served:
    name = one["name"]
    tried = asked.tried.get(name, []) if asked else []
    level, source = _level(one, table)
    refused = [form["why"] for form in tried if form["outcome"] == "refused"]
    if refused:
        level, source = MISSING, f"tried: {refused[0]}"
    elif level == UNKNOWN and tried and all(form["outcome"] == "ran" for form in tried):
        level, source = FALLBACK, "tried: the device took it"
    counts = [form["later" if later else "calls"] for form in one["forms"]]
    pairs = [(form, count) for form, count in zip(tried, counts, strict=False) if count]
    whole = bool(tried) and all(form["outcome"] == "ran" for form, _ in pairs)
    return Served(
        name,
        {phase: count for phase, count in one["calls"].items() if phase != "host"},
        one["dtypes"],
        one["shapes"],
        one["first"],
        level,
        source,
        sum(form["seconds"] * count for form, count in pairs) if whole else None,
        sum(form["assumed"] * count for form, count in pairs) if whole else 0.0,
        list(dict.fromkeys(part for form in tried for part in form["launches"])),
        _remarks(one, table, level, [why for form in tried for why in form["strict"]]),
    )


def _level(one: Mapping[str, Any], table: DeviceTable) -> tuple[str, str]:
    """Return how the device serves an operator, and how this was determined."""
    name, keys = one["name"], one["keys"]
    odd = [layout for layout in one["layouts"] if layout != "strided"]
    if odd:
        return UNKNOWN, f"the table is of plain tensors, and some are {', '.join(odd)}"
    if name.startswith("aten::"):
        level = table.level(name)
        return level, f"registered with torch {table.torch}" if level != UNKNOWN else f"not in torch {table.torch}"
    if _DEVICE in keys:
        return KERNEL, "the script registers a kernel for the device"
    if any(key.startswith("Composite") for key in keys):
        return COMPOSITE, "the script registers one for every device"
    return (FALLBACK, "registered for the CPU") if "CPU" in keys else (MISSING, "registered for neither CPU nor device")


def _remarks(one: Mapping[str, Any], table: DeviceTable, level: str, strict: Sequence[str]) -> list[str]:
    """Return what to do about an operator, and strict mode's objections; ``strict``: those of the live device."""
    limits = [why for dtype, why in LIMITS.items() if dtype in one["dtypes"]]
    limits += [VARYING] if one["name"] in table.varying else []
    objections = list(dict.fromkeys(strict)) or [f"strict mode: {why}" for why in limits]
    return [*([FIX] if level == MISSING else []), *objections]


def summary(found: Sequence[Served]) -> str:
    """Return the summary in one sentence."""
    levels = Counter(one.level for one in found)
    known = ", ".join(f"{levels[level]} {level}" for level in (*LEVELS, UNKNOWN) if levels[level])
    lacking = [one.name for one in found if one.level == MISSING]
    if lacking:
        return f"sdaa lacks {', '.join(lacking)} ({known})"
    if levels[UNKNOWN]:
        return f"it is unknown whether sdaa has everything the training needs ({known})"
    return f"sdaa has everything the training needs ({known})"
