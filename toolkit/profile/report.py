"""Reports of ``teco profile``: tables for the terminal, and the whole profile for files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from tecoinfer_modelzoo.formatting import plural, seconds
from tecoinfer_modelzoo.text import shortened
from toolkit.output import Column, ToolReport
from toolkit.profile.comparison import Comparison, TimeChange
from toolkit.profile.fixes import NOTHING
from toolkit.profile.record import COMMAND, Bottleneck, Launch, Profile
from toolkit.profile.suggest import Suggestion

_COLUMNS = (
    *("name", "op_type", "module", "seconds", "flops", "bytes", "roof", "bound", "float32"),
    *("share", "intensity", "roof_share", "kind", "nodes"),
)
_NODES = 3  # number of nodes of a bottleneck on the terminal


def whole(profile: Profile, comparison: Comparison | None = None, suggestion: Suggestion | None = None) -> ToolReport:
    """Return the whole profile; its JSON can be read with :func:`toolkit.profile.record.read_profile`."""
    data = profile.data()
    if comparison:
        data["against"] = asdict(comparison)
    if suggestion:
        data["suggestion"] = asdict(suggestion) | {"useless": [gain.rule for gain in suggestion.useless]}
    columns = [Column(name, name) for name in _COLUMNS]
    rows, lines = profile.rows(), notes(profile, comparison)
    return ToolReport(COMMAND, profile.model, profile.lead, columns, rows, notes=lines, data=data)


def table(profile: Profile) -> ToolReport:
    """Return the steps for CSV, with the nodes of a step in one text."""
    made = whole(profile)
    made.rows = [{**row, "nodes": " ".join(row["nodes"])} for row in made.rows]
    return made


def notes(profile: Profile, comparison: Comparison | None) -> tuple[str, ...]:
    """Return the notes of the profile and of the comparison."""
    return (*profile.notes, *(comparison.notes if comparison else ()))


def slowest(profile: Profile, comparison: Comparison | None = None) -> ToolReport:
    """Return the steps for the terminal, the slowest first."""
    columns = (
        Column("step", "step"),
        Column("operator", "operator"),
        Column("time", f"time ({profile.kind})", numeric=True),
        Column("share", "share", numeric=True),
        Column("intensity", "FLOP/byte", numeric=True),
        Column("roof", "of roof", numeric=True),
        Column("bound", "bound"),
        Column("module", "module"),
    )
    rows = [_cells(step, profile) for step in sorted(profile.steps, key=lambda step: -step.seconds)]
    return ToolReport(COMMAND, profile.model, profile.lead, columns, rows, notes=notes(profile, comparison))


def _cells(step: Launch, profile: Profile) -> dict[str, str]:
    return {
        "step": step.name,
        "operator": step.op_type,
        "time": seconds(step.seconds),
        "share": f"{profile.share(step.seconds):.1%}",
        "intensity": f"{step.intensity:.3g}",
        "roof": f"{step.roof_share:.0%}",
        "bound": step.bound,
        "module": step.module,
    }


def findings(profile: Profile) -> Iterator[str]:
    """Yield the bottlenecks with their fixes, and the times with changes, one line each."""
    for one in profile.bottlenecks:
        yield f"{one.kind}: {one.text} ({_some(one)})"
        yield f"  fix: {one.fix}"
    if not profile.bottlenecks:
        yield "no bottleneck found"
    for other in profile.what_if:
        yield f"what if: {other.what}: {seconds(other.seconds)} compute ({profile.kind})"


def _some(one: Bottleneck) -> str:
    return ", ".join(shortened(name, 120) for name in one.nodes[:_NODES]) + (", ..." if len(one.nodes) > _NODES else "")


def differences(comparison: Comparison, kind: str, top: int) -> ToolReport:
    """Return the changes by operator and in total."""
    names = ("what", f"compared with {comparison.before}"), ("before", "before"), ("now", f"now ({kind})")
    columns = [Column(key, label, numeric=key != "what") for key, label in (*names, ("difference", "difference"))]
    rows = [_change(change) for change in (comparison.total, *comparison.operators[:top])]
    total = comparison.total
    share = f", {abs(total.difference) / total.before:.1%}" if total.before else ""
    what = "less" if total.difference < 0 else "more"
    lead = f"compute: {seconds(total.before)} before, {seconds(total.now)} now{share} {what} ({kind})"
    return ToolReport(COMMAND, comparison.before, lead, columns, rows)


def _change(change: TimeChange) -> dict[str, str]:
    figures = {"before": change.before, "now": change.now, "difference": change.difference}
    return {"what": change.name, **{name: seconds(value) for name, value in figures.items()}}


def suggestions(found: Suggestion) -> ToolReport:
    """Return the rules to apply with their gains, and notes on the other rules."""
    columns = (
        Column("rule", "rule"),
        Column("fires", "fires", numeric=True),
        Column("kernels", "kernels", numeric=True),
        Column("saves", "saves (simulated)", numeric=True),
    )
    rows = [
        {"rule": gain.rule, "fires": str(gain.fired), "saves": seconds(gain.seconds)}
        | {"kernels": f"{gain.kernels_before} to {gain.kernels_after}"}
        for gain in found.chosen
    ]
    lead = "no rewrite rule saves time on this model"
    if found.chosen:
        share = 1 - found.after / found.before if found.before else 0.0
        both = f"{seconds(found.before)} becomes {seconds(found.after)} per shard"
        lead = f"together: {both}, {share:.1%} less (simulated)"
    return ToolReport(COMMAND, "rules", lead, columns, rows, notes=tuple(_rule_notes(found)))


def _rule_notes(found: Suggestion) -> Iterator[str]:
    if found.useless:
        tried = ", ".join(f"{gain.rule} (fires {plural(gain.fired, 'time')})" for gain in found.useless)
        also = " in addition to the rules above" if found.chosen else ""
        yield f"tried, but save no time{also}: {tried}"
    if found.opset:
        yield f"the pass converts the model to opset {found.opset}, which these rules need"
    if abs(found.tidied) > NOTHING:
        yield f"the default pass, which runs before the rules, saves {seconds(found.tidied)} of it (simulated)"
    if found.too_new:
        names = ", ".join(f"{name} ({opset})" for name, opset in found.too_new)
        yield f"not tried, since the model cannot be converted to their opset: {names}"
