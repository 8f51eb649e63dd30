"""Report of a comparison: table, chart and summary."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, log10, prod
from typing import Any

from engine.measures import Difference, ValueStats
from tecoinfer_modelzoo.formatting import plural
from toolkit.chart import Chart, Line
from toolkit.compare.nodes import INHERITED, Comparison, Row, is_bad
from toolkit.graph.nodes import Node
from toolkit.output import Column, ToolReport

COLUMNS = (
    Column("name", "node"),
    Column("op", "operator", spare=1),
    Column("module", "module", brief=False, spare=1),
    Column("tensor", "tensor", brief=False, spare=10),
    Column("dtype", "dtype", spare=4),
    Column("shape", "shape", spare=2),
    Column("minimum", "min", True, spare=6),
    Column("maximum", "max", True, spare=6),
    Column("reference_minimum", "min, a", True, brief=False, spare=10),
    Column("reference_maximum", "max, a", True, brief=False, spare=10),
    Column("nan", "NaN", True, spare=3),
    Column("infinite", "Inf", True, spare=3),
    Column("saturated", "saturated", True, spare=9),
    Column("flushed", "flushed to 0", True, spare=9),
    Column("mismatched", "NaN/Inf not in a", True, brief=False, spare=10),
    Column("masked", "masked", True, brief=False, spare=10),
    Column("cosine", "cosine", True, spare=5),
    Column("diff1", "diff1", True, spare=7),
    Column("diff2", "diff2", True),
    Column("diff3_max", "diff3 max", True, spare=4),
    Column("diff3_mean", "diff3 mean", True, spare=8),
    Column("isolated_cosine", "isolated cosine", True, brief=False, spare=10),
    Column("isolated_diff1", "isolated diff1", True, brief=False, spare=10),
    Column("isolated_diff2", "isolated diff2", True),
    Column("isolated_diff3_max", "isolated diff3 max", True, brief=False, spare=10),
    Column("isolated_diff3_mean", "isolated diff3 mean", True, brief=False, spare=10),
    Column("trend", "trend"),
    Column("status", "status"),
)

_BLOCKS = "▁▂▃▄▅▆▇█"


def report(found: Comparison, command: str, title: str, facts: dict[str, str]) -> ToolReport:
    """Return the report of a comparison."""
    marks = _trend([row.accumulated.diff2 if row.accumulated else None for row in found.rows])
    rows = [_plain(row) | {"trend": mark} for row, mark in zip(found.rows, marks, strict=True)]
    bad = frozenset(i for i, row in enumerate(found.rows) if row_is_bad(row, found.limit))
    facts |= {"threshold": f"diff2 {found.limit:g} isolated, {INHERITED * found.limit:g} accumulated"}
    if found.seconds:
        facts |= {"time": ", ".join(f"{what} {seconds:.2f} s" for what, seconds in found.seconds.items())}
    data = {"threshold": found.limit, "seconds": found.seconds, "first_bad": _named(found.first_bad)}
    data |= {"first_isolated": _named(found.first_isolated), "first_accumulated": _named(found.first_accumulated)}
    charts = [chart(found)] if any(row.accumulated for row in found.rows) else []
    return ToolReport(command, title, lead(found), COLUMNS, rows, bad, facts, found.notes, charts, data)


def row_is_bad(row: Row, limit: float) -> bool:
    """Return whether a row is bad."""
    inherited = row.accumulated is not None and is_bad(row.accumulated, INHERITED * limit)
    return inherited or (row.isolated is not None and is_bad(row.isolated, limit))


def lead(found: Comparison) -> str:
    """Return the summary in one sentence."""
    compared = [(row.accumulated.diff2, row) for row in found.rows if row.accumulated]
    bad = found.first_bad
    if not compared:
        why = f"{found.rows[0].tensor}: {found.rows[0].status}" if found.rows else "no common tensor"
        return f"nothing could be compared ({why})"
    if bad is None:
        worst, row = max(compared, key=lambda pair: pair[0])
        return f"no bad node: {plural(len(compared), 'tensor')} compared, largest diff2 {worst:.3g} at {row.node.name}"
    module = f", module {bad.node.module}" if bad.node.module else ""
    return f"first bad node: {bad.node.name} ({bad.node.op}{module}){_together(bad)}, {_why_bad(found, bad)}"


def _why_bad(found: Comparison, bad: Row) -> str:
    if bad.value_stats is None:
        return bad.status
    alone = bad is found.first_isolated
    difference = bad.isolated if alone else bad.accumulated
    figure = f"diff2 {difference.diff2:.3g} " if difference else ""
    return figure + (f"isolated, limit {found.limit:g}" if alone else f"accumulated, limit {INHERITED * found.limit:g}")


def _together(row: Row) -> str:
    """Return the text that lists the fused nodes of a row and their modules."""
    modules = dict.fromkeys(node.module for node in row.fused if node.module not in ("", row.node.module))
    return _span(row.fused) + (f" of module {', '.join(modules)}" if modules else "")


def chart(found: Comparison) -> Chart:
    """Return the chart of diff2 along the graph."""
    rows = [row for row in found.rows if row.accumulated]
    bad = found.first_bad
    return Chart(
        "diff2 along the graph",
        "node",
        [
            Line("accumulated", "var(--accent)", [row.accumulated.diff2 if row.accumulated else None for row in rows]),
            Line("isolated", "var(--pass)", [row.isolated.diff2 if row.isolated else None for row in rows]),
        ],
        found.limit,
        rows.index(bad) if bad in rows else None,
        [row.node.name for row in rows],
    )


def _named(row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    named = {"name": row.node.name, "op": row.node.op, "module": row.node.module, "tensor": row.tensor}
    return named | {"fused": [node.name for node in row.fused]}


def _plain(row: Row) -> dict[str, Any]:
    plain: dict[str, Any] = {"index": row.node.index, **(_named(row) or {}), "dtype": row.dtype}
    plain |= {"shape": list(row.shape) if row.accumulated else None, "status": row.status + _span(row.fused)}
    if row.value_stats is not None and row.reference is not None:
        plain |= {key: getattr(row.value_stats, key) for key in ValueStats.__slots__}
        plain |= {"reference_minimum": row.reference.minimum, "reference_maximum": row.reference.maximum}
        plain |= {"masked": row.masked}
        if prod(row.shape) == row.masked:  # all elements are masked
            plain |= dict.fromkeys(("minimum", "maximum", "reference_minimum", "reference_maximum"))
    plain |= _figures(row.accumulated, "")
    return plain | _figures(row.isolated, "isolated_")


def _span(fused: Sequence[Node]) -> str:
    if len(fused) < 3:
        return f" together with {' and '.join(node.name for node in fused)}" if fused else ""
    return f" together with {len(fused)} nodes from {fused[0].name} on"


def _figures(difference: Difference | None, prefix: str) -> dict[str, Any]:
    # Several times as fast as dataclasses.asdict, which matters for graphs with many nodes.
    return {f"{prefix}{key}": getattr(difference, key) for key in Difference.__slots__} if difference else {}


def _trend(values: Sequence[float | None]) -> list[str]:
    """Return a bar for every value, on a logarithmic scale from 1e-6 to 1."""
    steps = len(_BLOCKS)

    def bar(value: float) -> str:
        share = (log10(max(value, 1e-6)) + 6) / 6 if isfinite(value) else 1.0
        return _BLOCKS[min(steps - 1, int(share * steps))]

    return ["" if value is None else bar(value) for value in values]
