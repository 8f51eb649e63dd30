"""The collected data as figures (JSON types): the four layers, launches by origin, OP_INFO.

Host figures are measured seconds of this machine; device figures are simulated. No sum contains both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from engine.sdaa import load_card
from torch_sdaa.cost.prices import Meta, shown
from torch_sdaa.profiling.collect import BACKWARD, LAUNCH, OP, RUNTIME, Collected, DeviceSpan, HostSpan, Signature
from torch_sdaa.profiling.origins import BACKWARDS, Origin, origins
from torch_sdaa.profiling.spans import covered, merged
from torch_sdaa.reports.summaries import pricer

SCHEMA_VERSION = 1
"""Version of the record, increased if a field is removed or changes its meaning."""

KIND = "training profile"
ENGINES = ("compute", "copy in", "copy out", "copy between", "copy between")
"""Engine of a device, by ``DeviceSpan.what``."""

_OTHER_END = 4
_SEVERAL = 4
_NO_PLACE = ("", "", 0)


def record(found: Collected) -> dict[str, Any]:
    """Return the complete record."""
    where = origins(found)
    rows = _launches(found, where)
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "torch": torch.__version__,
        "card": load_card().name,
        "steps": len(found.steps),
        "passes": _passes(found, where),
        "host": host_layers(found),
        "devices": device_layers(found),
        "launches": rows,
        "op_info": op_info(rows),
        "fresh": _fresh(found, where),
        "synchronisations": _synchronisations(found),
        "compilations": found.compiled,
        "calls": _calls(found),
        "rough": sorted({row["op"] for row in rows} & pricer().rough),
        "dropped": found.dropped,
    }


def _passes(found: Collected, where: dict[int, Origin]) -> dict[str, int]:
    """Return by step how often a backward followed another phase: the number of batches per step.

    Of optimizers that take turns, it is that of the one that steps most often in a round.
    """
    counts: Counter[str] = Counter()
    before: dict[int, str] = {}
    for at in sorted(one.at for one in found.device):
        origin = where.get(at)
        if origin is None:
            continue
        if origin.phase == BACKWARDS != before.get(origin.step):
            counts[str(origin.step)] += 1
        before[origin.step] = origin.phase
    return {step: max(1, count // found.turns) * found.repeats for step, count in counts.items()}


# ------------------------------------------------------------------------------------------------------------- layers


def host_layers(found: Collected) -> dict[str, Any]:
    """Return seconds of the host by layer; framework, runtime and launch add up to the wall time.

    Activities of autograd's threads count for the caller, which waits for them; other threads are ignored.
    """
    mine = [one for one in found.host if one.thread == found.thread or one.worker]
    window = found.begin, found.end
    launch = covered(_clipped(mine, {LAUNCH}, window))
    below = covered(_clipped(mine, {LAUNCH, RUNTIME}, window))
    dispatched = covered(_clipped(mine, {LAUNCH, RUNTIME, OP}, window))
    autograd = covered(_clipped(mine, {LAUNCH, RUNTIME, OP, BACKWARD}, window))
    wall = found.end - found.begin
    parts: dict[str, int] = Counter()
    for one in mine:
        if one.doing == RUNTIME:
            parts[found.names[one.name]] += one.end - one.begin
    return {
        "wall": wall / 1e9,
        "framework": (wall - below) / 1e9,
        "runtime": (below - launch) / 1e9,
        "launch": launch / 1e9,
        "framework_parts": {
            "dispatcher": (dispatched - below) / 1e9,
            "autograd": (autograd - dispatched) / 1e9,
            "python": (wall - autograd) / 1e9,
        },
        "runtime_calls": {name: ns / 1e9 for name, ns in sorted(parts.items())},
    }


def _clipped(spans: Iterable[HostSpan], doing: set[int], window: tuple[int, int]) -> list[tuple[int, int]]:
    first, last = window
    return [
        (max(one.begin, first), min(one.end, last))
        for one in spans
        if one.doing in doing and one.end > first and one.begin < last
    ]


def window_begin(found: Collected, device: int) -> float:
    """Return the begin of a device's profile on its clock.

    The clock is at the end of the last launch; an idle stream may start earlier, which is then the begin.
    """
    starts = (one.start for one in found.device if one.device == device)
    return min((found.clocks[device][0]["now"], *starts))


def device_layers(found: Collected) -> list[dict[str, Any]]:
    """Return simulated seconds of each used device; busy and idle add up to ``simulated``."""
    out = []
    for i, (before, after) in sorted(found.clocks.items()):
        begin = window_begin(found, i)
        spans = [one for one in found.device if one.device == i]
        stretches = merged((one.start, one.end) for one in spans)
        busy = covered(stretches)
        edges = [begin, *(edge for stretch in stretches for edge in stretch)]
        idle = sum(later - end for end, later in zip(edges[::2], edges[1::2], strict=False))
        compute = covered((one.start, one.end) for one in spans if not one.what)
        copies = covered((one.start, one.end) for one in spans if one.what)
        out.append(
            {
                "device": f"sdaa:{i}",
                "simulated": after["now"] - begin,
                "busy": busy,
                "idle": idle,
                "compute": compute,
                "copies": copies,
                "overlap": max(0.0, compute + copies - busy),
                "assumed": after["assumed"] - before["assumed"],
                "launches": int(after["launches"] - before["launches"]),
            }
        )
    return out


# ----------------------------------------------------------------------------------------------------------- launches


def _launches(found: Collected, where: dict[int, Origin]) -> list[dict[str, Any]]:
    """Return one row for all launches of one signature, device and origin, the longest first."""
    groups: dict[tuple[Any, ...], list[tuple[DeviceSpan, Origin | None]]] = defaultdict(list)
    for one in found.device:
        origin = where.get(one.at)
        at = (origin.phase, origin.line, origin.module, origin.node, origin.own) if origin else ("", -1, -1, "", False)
        groups[one.signature, one.device, one.what, at].append((one, origin))
    hidden = _hidden(found)
    rows = [_row(found, key, members, hidden) for key, members in groups.items()]
    return sorted(rows, key=lambda row: (-row["seconds"], row["op"]))


def _hidden(found: Collected) -> dict[int, float]:
    """Return the simulated seconds of each copy during which the device also computes, by index in the log."""
    out: dict[int, float] = {}
    for device in found.clocks:
        spans = [one for one in found.device if one.device == device]
        busy = merged((one.start, one.end) for one in spans if not one.what)
        for one in spans:
            if one.what:
                first = max(bisect_left(busy, (one.start, one.start)) - 1, 0)
                last = bisect_left(busy, (one.end, one.end), first)
                meets = busy[first:last]
                out[one.at] = sum(max(0.0, min(one.end, end) - max(one.start, start)) for start, end in meets)
    return out


def _row(
    found: Collected,
    key: tuple[Any, ...],
    members: Sequence[tuple[DeviceSpan, Origin | None]],
    hidden: dict[int, float],
) -> dict[str, Any]:
    number, device, what, (phase, line, module, node, own) = key
    signature = found.signatures[number]
    file, function, at = found.lines[line] if line >= 0 else _NO_PLACE
    parts = pricer().parts(signature.op, signature.inputs, signature.outputs, signature.flops)
    known = [origin for _, origin in members if origin]
    return {
        "op": signature.op,
        "inputs": shapes(signature.inputs),
        "outputs": shapes(signature.outputs),
        "device": f"sdaa:{device}",
        "engine": ENGINES[what],
        "other_end": what == _OTHER_END,
        "waits": signature.waits or ENGINES[what] == "copy out",
        "phase": phase,
        "node": node,
        "own": own,
        "module": found.modules[module] if module >= 0 else "",
        "file": file,
        "line": at,
        "function": function,
        "count": len(members),
        "by_step": {str(step): count for step, count in sorted(Counter(one.step for one in known).items())},
        "seconds": sum(one.end - one.start for one, _ in members),
        "hidden": sum(hidden.get(one.at, 0.0) for one, _ in members),
        "assumed": signature.assumed * len(members),
        "launch_seconds": parts.launch * len(members),
        "arithmetic_seconds": parts.arithmetic * len(members),
        "memory_seconds": parts.memory * len(members),
        "flops": parts.flops * len(members),
        "bytes": parts.bytes * len(members),
        "host_seconds": sum(one.end - one.begin for one in known) / 1e9,
        "kernels": [each._asdict() for each in pricer().kernels(signature.op)],
    }


def shapes(metas: Iterable[Meta]) -> list[str]:
    """Return operands as text: ``float32[64, 128]``."""
    return [f"{shown(dtype)}{list(sizes)}" for dtype, _, sizes in metas]


def op_info(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for each operator and operands: number of launches, origin and cost."""
    kinds: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        if row["other_end"]:  # a copy between devices occupies both, but is one launch
            continue
        key = row["op"], tuple(row["inputs"]), tuple(row["outputs"])
        what = {name: row[name] for name in ("op", "inputs", "outputs", "engine")}
        nothing = {"count": 0, "seconds": 0.0, "host_seconds": 0.0, "flops": 0.0, "bytes": 0, "phases": {}}
        one = kinds.setdefault(key, what | nothing)
        for name in ("count", "seconds", "host_seconds", "flops", "bytes"):
            one[name] += row[name]
        one["phases"][row["phase"]] = one["phases"].get(row["phase"], 0) + row["count"]
    return sorted(kinds.values(), key=lambda one: (-one["seconds"], one["op"]))


def _fresh(found: Collected, where: dict[int, Origin]) -> list[dict[str, Any]]:
    """Return the launches that are new in this profile, by step, in order."""
    seen: set[int] = set()
    out = []
    for one in sorted(found.device, key=lambda one: one.at):
        origin = where.get(one.at)
        if one.signature in seen or origin is None:
            continue
        seen.add(one.signature)
        signature: Signature = found.signatures[one.signature]
        file, function, line = found.lines[origin.line] if origin.line >= 0 else _NO_PLACE
        out.append(
            {
                "step": origin.step,
                "op": signature.op,
                "inputs": shapes(signature.inputs),
                "phase": origin.phase,
                "module": found.modules[origin.module] if origin.module >= 0 else "",
                "file": file,
                "line": line,
                "function": function,
            }
        )
    return out


def _calls(found: Collected) -> list[dict[str, Any]]:
    """Return the lines that call several modules: the modules, the number of calls, and those with the same operand."""
    return [
        {
            "file": file,
            "line": line,
            "modules": [found.modules[i] for i in sorted(one.modules)],
            "inside": [found.modules[i] for i in sorted(one.inside)],
            "count": one.count,
            "beside": one.beside,
        }
        for (file, line), one in found.called.items()
        if len(one.modules) >= _SEVERAL
    ]


def _synchronisations(found: Collected) -> list[dict[str, Any]]:
    """Return the lines at which the script explicitly waited for a device."""
    places: dict[int, list[HostSpan]] = defaultdict(list)
    for one in found.host:
        if one.doing == RUNTIME and found.names[one.name] == "synchronize":
            places[one.line].append(one)
    out = []
    for number, calls in places.items():
        file, function, line = found.lines[number] if number >= 0 else _NO_PLACE
        steps = Counter(sum(1 for step in found.steps if step < one.begin) for one in calls)
        by_step = {str(step): count for step, count in sorted(steps.items())}
        place = {"file": file, "line": line, "function": function}
        out.append({**place, "count": len(calls), "by_step": by_step})
    return out
