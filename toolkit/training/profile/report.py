"""Reports of ``teco train profile``: for the terminal, the files and the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from tecoinfer_modelzoo.formatting import plural, seconds
from tecoinfer_modelzoo.text import shortened
from toolkit.output import PAGES, Column, ToolReport
from toolkit.training.profile import fixes
from toolkit.training.profile.bottlenecks import LAUNCHES, Bottleneck, launch_share
from toolkit.training.profile.comparison import Change, Comparison
from toolkit.training.profile.record import Profile, total

COMMAND = "teco train profile"

_COLUMNS = (
    Column("op", "operator"),
    Column("inputs", "operands", spare=2),
    Column("outputs", "results", brief=False),
    Column("engine", "engine", spare=1),
    Column("count", "launches", True),
    Column("seconds", "seconds (simulated)", True),
    Column("share", "share", True),
    Column("host_seconds", "seconds of the host (measured)", True, brief=False),
    Column("flops", "operations", True, brief=False),
    Column("bytes", "bytes", True, brief=False),
    Column("phases", "part", spare=3),
)
_MOST = 4  # maximum operators of a bottleneck that a line lists
_LONGEST = 240  # maximum characters of an operator's operands: lists of tensors have hundreds, complete in the JSON
HOST_LAYERS = ("framework", "runtime", "launch")
DEVICE_PARTS = ("compute", "copies", "idle")


def whole(profile: Profile, found: Sequence[Bottleneck], comparison: Comparison | None = None) -> ToolReport:
    """Return the full report: OP_INFO as the table; record, layers and bottlenecks in the JSON."""
    data = {**profile.data, "bottlenecks": [asdict(one) for one in found], "launch_share": launch_share(profile)}
    if comparison:
        data["against"] = asdict(comparison)
    return ToolReport(
        COMMAND, profile.name, lead(profile, found), _COLUMNS, op_rows(profile), notes=notes(profile), data=data
    )


def op_rows(profile: Profile) -> list[dict[str, Any]]:
    """Return OP_INFO of all steps."""
    rows = profile.data["op_info"]
    spent = sum(row["seconds"] for row in rows) or 1.0
    return [
        {
            **row,
            "inputs": "; ".join(row["inputs"]),
            "outputs": "; ".join(row["outputs"]),
            "phases": " ".join(row["phases"]),
            "share": row["seconds"] / spent,
        }
        for row in rows
    ]


def shown_rows(profile: Profile, top: int) -> ToolReport:
    """Return the operators that take most time, formatted."""
    rows = [
        {
            **row,
            "inputs": shortened(row["inputs"], 60),
            "seconds": seconds(row["seconds"]),
            "share": f"{row['share']:.1%}",
        }
        for row in op_rows(profile)[:top]
    ]
    return ToolReport(COMMAND, profile.name, "", _COLUMNS, rows, notes=notes(profile))


def lead(profile: Profile, found: Sequence[Bottleneck]) -> str:
    """Return the summary in one sentence."""
    kinds = ", ".join(dict.fromkeys(one.kind for one in found))
    step = seconds(profile.per_step(total(profile.launches())))
    verdict = f"{plural(len(found), 'bottleneck')}: {kinds}" if found else "none of the four classic bottlenecks"
    return f"{verdict}{_by_launches(profile, found)}; a step takes {step} of the device (simulated)"


def _by_launches(profile: Profile, found: Sequence[Bottleneck]) -> str:
    """Return that a training is bound by launches, as that of a tiny network is; "" if it is not, or a loop is why."""
    share = launch_share(profile)
    if share < LAUNCHES or any(one.kind == fixes.GAPS for one in found):
        return ""
    return (
        f"; bound by launches: {share:.0%} of the device's time is for kernels that take longer to launch than to "
        "compute; use a larger batch or network, or torch.compile, which fuses them"
    )


def notes(profile: Profile) -> list[str]:
    """Return the caveats of the figures."""
    out = []
    if not profile.steps:
        out.append("no optimizer step returned: the whole run is judged as one step")
    elif profile.steps == 1:
        out.append("one step only, which includes loading and building; profile more (--steps)")
    out += _graphs(profile)
    if profile.data.get("rough"):
        names = some(profile.data["rough"])
        out.append(f"the arithmetic of {names} is unknown: counted as elementwise, so they may be slower than shown")
    if profile.data.get("dropped"):
        out.append(f"{profile.data['dropped']} spans were dropped for lack of memory; profile fewer --steps")
    return out


def _graphs(profile: Profile) -> Iterator[str]:
    """Yield the kernels inside compiled graphs."""
    for op, kernels in {row.op: row.kernels for row in profile.launches() if row.kernels}.items():
        count, spent = sum(each["launches"] for each in kernels), sum(each["seconds"] for each in kernels)
        most = ", ".join(f"{each['kind']} x{each['launches']} {seconds(each['seconds'])}" for each in kernels[:_MOST])
        yield f"{op} is a compiled graph, {plural(count, 'kernel')} and {seconds(spent)} a run; most of it {most}"


def layers(profile: Profile) -> Iterator[str]:
    """Yield the layers as text, one line for the host and one for each device."""
    host = profile.data.get("host")
    if host and "framework" in host:
        parts = ", ".join(f"{name} {seconds(host[name])}" for name in ("framework", "runtime", "launch"))
        yield f"host: {seconds(host['wall'])} measured = {parts}"
    for one in profile.data["devices"]:
        parts = f"compute {seconds(one['compute'])}, copies {seconds(one['copies'])}, idle {seconds(one['idle'])}"
        beside = f", {seconds(one['overlap'])} of them side by side" if one["overlap"] > 1e-9 else ""
        yield f"{one['device']}: {seconds(one['simulated'])} simulated = {parts}{beside}"


def findings(found: Sequence[Bottleneck]) -> Iterator[str]:
    """Yield the bottlenecks with their place and fix, two lines each."""
    for one in found:
        where = f" at {one.source}" if one.source else ""
        inside = f" in {one.modules[0]}" if one.modules else ""
        yield f"{one.kind}: {one.text}{where}{inside} ({some(one.ops)})"
        yield f"  fix: {one.fix}"


def some(names: Sequence[str]) -> str:
    """Return the first of some names."""
    return ", ".join(shortened(name, 80) for name in names[:_MOST]) + (", ..." if len(names) > _MOST else "")


def differences(found: Comparison, top: int | None = None) -> ToolReport:
    """Return the changes by operator and in total."""
    columns = (
        Column("op", "operator"),
        Column("before", "before, a step", True),
        Column("now", "now (simulated)", True),
        Column("difference", "difference", True),
        Column("launches", "launches", True),
    )
    rows = [_changed(change) for change in (found.total, *found.operators[:top])]
    share = f", {abs(found.total.difference) / found.total.before:.1%}" if found.total.before else ","
    what = f"{share} {'less' if found.total.difference < 0 else 'more'}" if found.total.difference else ", the same"
    text = f"a step: {seconds(found.total.before)} before, {seconds(found.total.now)} now{what} (simulated)"
    words = [f"gone: {one.kind} at {one.source or 'an unknown line'} ({some(one.ops)})" for one in found.gone]
    words += [f"new: {one.kind} at {one.source or 'an unknown line'} ({some(one.ops)})" for one in found.come]
    title = f"{found.before} and {found.now}"
    data = {"against": asdict(found)}
    return ToolReport(COMMAND, title, text, columns, rows, notes=(*found.notes, *words), data=data)


def _changed(change: Change) -> dict[str, str]:
    return {
        "op": change.name,
        "before": seconds(change.before),
        "now": seconds(change.now),
        "difference": seconds(change.difference),
        "launches": f"{change.launches_before:g} to {change.launches_now:g}",
    }


def training_page(profile: Profile, found: Sequence[Bottleneck], comparison: Comparison | None = None) -> str:
    """Return a profile as one self-contained HTML page; raise ConfigError if jinja2 is not installed."""
    return PAGES.render(
        "training_profile.html.j2",
        profile=profile,
        lead=lead(profile, found),
        notes=notes(profile),
        found=found,
        comparison=comparison,
        operators=[{**row, "inputs": shortened(row["inputs"], _LONGEST)} for row in op_rows(profile)],
        host_layers=HOST_LAYERS,
        device_parts=DEVICE_PARTS,
    )
