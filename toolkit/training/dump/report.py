"""Report of a comparison of two trainings: table, chart and summary."""

from __future__ import annotations

from typing import Any

from engine.measures import Difference, ValueStats
from engine.training import OpCall
from tecoinfer_modelzoo.formatting import plural
from toolkit.chart import Chart, Line
from toolkit.output import Column, ToolReport
from toolkit.training.dump.judge import Judged, Pair

COLUMNS = (
    Column("call", "call"),
    Column("module", "module", spare=1),
    Column("phase", "phase", spare=3),
    Column("step", "step", True, spare=5),
    Column("source", "source", spare=2),
    Column("dtype", "dtype", spare=6),
    Column("shape", "shape", spare=4),
    Column("minimum", "min", True, brief=False, spare=8),
    Column("maximum", "max", True, brief=False, spare=8),
    Column("nan", "NaN", True, brief=False, spare=7),
    Column("infinite", "Inf", True, brief=False, spare=7),
    Column("mismatched", "NaN/Inf not in a", True, brief=False, spare=9),
    Column("cosine", "cosine", True, brief=False, spare=8),
    Column("diff1", "diff1", True, brief=False, spare=9),
    Column("inputs_diff2", "diff2 of inputs", True, spare=5),
    Column("diff2", "diff2", True),
    Column("diff3_max", "diff3 max", True, brief=False, spare=9),
    Column("diff3_mean", "diff3 mean", True, brief=False, spare=9),
    Column("isolated_cosine", "cosine alone", True, brief=False, spare=9),
    Column("isolated_diff1", "diff1 alone", True, brief=False, spare=9),
    Column("isolated_diff2", "diff2 alone", True),
    Column("isolated_diff3_max", "diff3 max alone", True, brief=False, spare=9),
    Column("isolated_diff3_mean", "diff3 mean alone", True, brief=False, spare=9),
    Column("loss_scale", "loss scale", True, brief=False, spare=9),
    Column("status", "status", spare=4),
    Column("why", "at fault", spare=1),
)


def report(found: Judged, title: str, facts: dict[str, str]) -> ToolReport:
    """Return the report to print and write."""
    rows = [_row(pair) for pair in found.pairs]
    bad = frozenset(k for k, pair in enumerate(found.pairs) if pair.why)
    facts |= {"threshold": f"diff2 {found.limit:g}, {found.precision}", "calls": str(len(rows))}
    data: dict[str, Any] = {"threshold": found.limit, "precision": found.precision}
    data |= {"first_bad": _named(found.first_bad), "first_off": _named(found.first_off)}
    data |= {name: [_place(call) for call in getattr(found.matched, name)] for name in ("only_a", "only_b")}
    return ToolReport(
        "teco train compare", title, lead(found), COLUMNS, rows, bad, facts, found.notes, [_chart(found)], data
    )


def lead(found: Judged) -> str:
    """Return the summary in one sentence."""
    bad = found.first_bad
    if bad is not None:
        return f"first bad operator: {_words(bad.a if bad.at == 'a' else bad.b)}: {bad.why}"
    compared = [pair for pair in found.pairs if pair.difference is not None]
    if not compared:
        return "nothing could be compared: no call of both runs has results"
    worst = max(compared, key=lambda pair: pair.difference.diff2 if pair.difference else 0.0)
    figure = f"{worst.difference.diff2:.3g}" if worst.difference else ""
    off = "" if found.first_off is None else ", though values are off"
    return f"no bad operator{off}: {plural(len(compared), 'call')} compared, largest diff2 {figure} at {worst.b.where}"


def _words(call: OpCall) -> str:
    module = f" of {call.module}" if call.module else ""
    source = f" ({call.source})" if call.source else ""
    return f"{call.where}{module}, {call.phase} of step {call.step}{source}"


def _place(call: OpCall) -> dict[str, Any]:
    fields = ("op", "module", "phase", "step", "source", "index", "loss_scale")
    return {"call": call.where, **{name: getattr(call, name) for name in fields}}


def _named(pair: Pair | None) -> dict[str, Any] | None:
    if pair is None:
        return None
    return _place(pair.a if pair.at == "a" else pair.b) | {"at": pair.at, "why": pair.why, "reference": pair.a.where}


def _row(pair: Pair) -> dict[str, Any]:
    row = _place(pair.b) | {"reference": pair.a.where, "status": pair.status, "why": pair.why}
    if pair.b.outputs:
        one = pair.b.outputs[min(pair.output, len(pair.b.outputs) - 1)]
        row |= {"dtype": one.dtype, "shape": list(one.shape), "output": pair.output}
    if pair.difference is not None:
        row |= {"inputs_diff2": pair.inputs, **_figures(pair.difference, "")}
    if pair.value_stats is not None:
        row |= {name: getattr(pair.value_stats, name) for name in ValueStats.__slots__}
    return row | (_figures(pair.isolated, "isolated_") if pair.isolated is not None else {})


def _figures(difference: Difference, prefix: str) -> dict[str, Any]:
    return {f"{prefix}{name}": getattr(difference, name) for name in Difference.__slots__}


def _chart(found: Judged) -> Chart:
    pairs = [pair for pair in found.pairs if pair.difference is not None]
    bad = found.first_bad
    values = [
        ("accumulated", "var(--accent)", [pair.difference.diff2 if pair.difference else None for pair in pairs]),
        ("alone", "var(--pass)", [pair.isolated.diff2 if pair.isolated else None for pair in pairs]),
    ]
    at = next((k for k, pair in enumerate(pairs) if pair is bad), None)
    lines, names = [Line(*value) for value in values], [pair.b.where for pair in pairs]
    return Chart("diff2 along the run", "call", lines, found.limit or None, at, names)
