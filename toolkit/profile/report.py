"""What ``teco profile`` found as reports: tables for the terminal, and everything for the files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

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
_NODES = 3
"""Nodes of a bottleneck that the terminal names."""


def whole(profile: Profile, comparison: Comparison | None = None, suggestion: Suggestion | None = None) -> ToolReport:
    """Return everything, figures in full; :func:`toolkit.profile.record.read_profile` reads the profile in its JSON."""
    data = profile.data()
    if comparison:
        data["against"] = asdict(comparison)
    if suggestion:
        data["suggestion"] = asdict(suggestion) | {"useless": [gain.rule for gain in suggestion.useless]}
    columns = [Column(name, name) for name in _COLUMNS]
    return ToolReport(
        COMMAND, profile.model, profile.lead, columns, profile.rows(), notes=notes(profile, comparison), data=data
    )


def table(profile: Profile) -> ToolReport:
    """Return the steps with every value as a text, a step's nodes in one, for CSV."""
    made = whole(profile)
    made.rows = [{**row, "nodes": " ".join(row["nodes"])} for row in made.rows]
    return made


def notes(profile: Profile, comparison: Comparison | None) -> tuple[str, ...]:
    """Return what the reader must know of the figures."""
    return (*profile.notes, *(comparison.notes if comparison else ()))


def slowest(profile: Profile, comparison: Comparison | None = None) -> ToolReport:
    """Return the steps for people, the slowest first."""
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
    """Yield the bottlenecks with their fixes, and what would be if something were otherwise; one line each."""
    for one in profile.bottlenecks:
        yield f"{one.kind}: {one.text} ({_some(one)})"
        yield f"  fix: {one.fix}"
    if not profile.bottlenecks:
        yield "none of the four classic bottlenecks stands out"
    for other in profile.what_if:
        yield f"what if: {other.what}: {seconds(other.seconds)} computing ({profile.kind})"


def _some(one: Bottleneck) -> str:
    return ", ".join(shortened(name, 120) for name in one.nodes[:_NODES]) + (", ..." if len(one.nodes) > _NODES else "")


def differences(comparison: Comparison, kind: str, top: int) -> ToolReport:
    """Return what changed, by operator and in sum."""
    names = ("what", f"against {comparison.before}"), ("before", "before"), ("now", f"now ({kind})")
    columns = [Column(key, label, numeric=key != "what") for key, label in (*names, ("difference", "difference"))]
    rows = [_change(change) for change in (comparison.total, *comparison.operators[:top])]
    total = comparison.total
    share = f", {abs(total.difference) / total.before:.1%}" if total.before else ""
    what = "less" if total.difference < 0 else "more"
    lead = f"computing: {seconds(total.before)} before, {seconds(total.now)} now{share} {what} ({kind})"
    return ToolReport(COMMAND, comparison.before, lead, columns, rows)


def _change(change: TimeChange) -> dict[str, str]:
    figures = {"before": change.before, "now": change.now, "difference": change.difference}
    return {"what": change.name, **{name: seconds(value) for name, value in figures.items()}}


def suggestions(found: Suggestion) -> ToolReport:
    """Return the rules to apply with their gains, and in the notes those that fire and are left out."""
    columns = (
        Column("rule", "rule"),
        Column("fires", "fires", numeric=True),
        Column("kernels", "kernels", numeric=True),
        Column("saves", "saves (simulated)", numeric=True),
    )
    rows = [
        {
            "rule": gain.rule,
            "fires": str(gain.fired),
            "kernels": f"{gain.kernels_before} to {gain.kernels_after}",
            "saves": seconds(gain.seconds),
        }
        for gain in found.chosen
    ]
    lead = "no rewrite rule saves time on this model"
    if found.chosen:
        share = 1 - found.after / found.before if found.before else 0.0
        both = f"{seconds(found.before)} becomes {seconds(found.after)} a shard"
        lead = f"together: {both}, {share:.1%} less (simulated)"
    return ToolReport(COMMAND, "rules", lead, columns, rows, notes=tuple(_remarks(found, found.chosen)))


def _remarks(found: Suggestion, chosen: Sequence[Any]) -> Iterator[str]:
    if found.useless:
        tried = ", ".join(f"{gain.rule} (fires {plural(gain.fired, 'time')})" for gain in found.useless)
        than = " beside the rules above" if chosen else ""
        yield f"tried and found useless{than}: {tried}"
    if found.opset:
        yield f"the pass raises the model to opset {found.opset}, which has the operators that these rules write"
    if abs(found.tidied) > NOTHING:
        yield f"the default pass, which comes before every rule, saves {seconds(found.tidied)} of it (simulated)"
    if found.too_new:
        names = ", ".join(f"{name} ({opset})" for name, opset in found.too_new)
        yield f"not tried, since the model cannot be raised to their opset: {names}"
