"""What a comparison found, as a table, a picture and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from math import isfinite, log10
from typing import Any

from toolkit.compare.metrics import Difference
from toolkit.compare.nodes import INHERITED, Comparison, Row, is_bad
from toolkit.output import Chart, Column, Line, Report

COLUMNS = (
    Column("name", "node"),
    Column("op", "operator"),
    Column("module", "module", brief=False),
    Column("tensor", "tensor", brief=False),
    Column("dtype", "dtype"),
    Column("shape", "shape"),
    Column("minimum", "min", True),
    Column("maximum", "max", True),
    Column("reference_minimum", "min, a", True, brief=False),
    Column("reference_maximum", "max, a", True, brief=False),
    Column("nan", "NaN", True),
    Column("infinite", "Inf", True),
    Column("saturated", "saturated", True),
    Column("flushed", "flushed to 0", True),
    Column("mismatched", "NaN/Inf not in a", True, brief=False),
    Column("cosine", "cosine", True),
    Column("diff1", "diff1", True),
    Column("diff2", "diff2", True),
    Column("diff3_max", "diff3 max", True),
    Column("diff3_mean", "diff3 mean", True),
    Column("isolated_cosine", "cosine alone", True, brief=False),
    Column("isolated_diff1", "diff1 alone", True, brief=False),
    Column("isolated_diff2", "diff2 alone", True),
    Column("isolated_diff3_max", "diff3 max alone", True, brief=False),
    Column("isolated_diff3_mean", "diff3 mean alone", True, brief=False),
    Column("trend", "trend"),
    Column("status", "status"),
)

_BLOCKS = "▁▂▃▄▅▆▇█"


def report(found: Comparison, command: str, title: str, facts: dict[str, str]) -> Report:
    """Return what is printed and written."""
    marks = _trend([row.accumulated.diff2 if row.accumulated else None for row in found.rows])
    rows = [_plain(row) | {"trend": mark} for row, mark in zip(found.rows, marks, strict=True)]
    bad = frozenset(i for i, row in enumerate(found.rows) if row_is_bad(row, found.limit))
    facts |= {"threshold": f"diff2 {found.limit:g} alone, {INHERITED * found.limit:g} accumulated"}
    if found.seconds:
        facts |= {"time": ", ".join(f"{what} {seconds:.2f} s" for what, seconds in found.seconds.items())}
    data = {"threshold": found.limit, "seconds": found.seconds, "first_bad": _named(found.first_bad)}
    data |= {"first_isolated": _named(found.first_isolated), "first_accumulated": _named(found.first_accumulated)}
    charts = [chart(found)] if any(row.accumulated for row in found.rows) else []
    return Report(command, title, lead(found), COLUMNS, rows, bad, facts, found.notes, charts, data)


def row_is_bad(row: Row, limit: float) -> bool:
    """Say whether a row is to stand out."""
    inherited = row.accumulated is not None and is_bad(row.accumulated, INHERITED * limit)
    return inherited or (row.isolated is not None and is_bad(row.isolated, limit))


def lead(found: Comparison) -> str:
    """Return the answer in a sentence."""
    compared = [(row.accumulated.diff2, row) for row in found.rows if row.accumulated]
    bad = found.first_bad
    if not compared:
        return "nothing could be compared"
    if bad is None:
        worst, row = max(compared, key=lambda pair: pair[0])
        return f"no bad node: {len(compared)} tensors compared, largest diff2 {worst:.3g} at {row.node.name}"
    alone = bad is found.first_isolated
    difference = bad.isolated if alone else bad.accumulated
    module = f", module {bad.node.module}" if bad.node.module else ""
    figure = f"diff2 {difference.diff2:.3g} " if difference else ""
    how = f"by itself, beyond {found.limit:g}" if alone else f"accumulated, beyond {INHERITED * found.limit:g}"
    return f"first bad node: {bad.node.name} ({bad.node.op}{module}), {figure}{how}"


def chart(found: Comparison) -> Chart:
    """Return the trend of diff2 along the graph."""
    rows = [row for row in found.rows if row.accumulated]
    bad = found.first_bad
    return Chart(
        "diff2 along the graph",
        "node",
        [
            Line("accumulated", "var(--accent)", [row.accumulated.diff2 if row.accumulated else None for row in rows]),
            Line("isolated", "var(--fail)", [row.isolated.diff2 if row.isolated else None for row in rows]),
        ],
        found.limit,
        rows.index(bad) if bad in rows else None,
    )


def _named(row: Row | None) -> dict[str, Any] | None:
    if row is None:
        return None
    return {"name": row.node.name, "op": row.node.op, "module": row.node.module, "tensor": row.tensor}


def _plain(row: Row) -> dict[str, Any]:
    plain: dict[str, Any] = {"index": row.node.index, **(_named(row) or {}), "dtype": row.dtype}
    plain |= {"shape": list(row.shape) if row.accumulated else None, "status": row.status}
    if row.census is not None and row.reference is not None:
        plain |= asdict(row.census)
        plain |= {"reference_minimum": row.reference.minimum, "reference_maximum": row.reference.maximum}
    plain |= _figures(row.accumulated, "")
    return plain | _figures(row.isolated, "isolated_")


def _figures(difference: Difference | None, prefix: str) -> dict[str, Any]:
    return {f"{prefix}{key}": value for key, value in asdict(difference).items()} if difference else {}


def _trend(values: Sequence[float | None]) -> list[str]:
    """Return a bar for every value, on a logarithmic scale from 1e-6 to 1."""
    marks = []
    for value in values:
        if value is None:
            marks.append("")
            continue
        share = (log10(max(value, 1e-6)) + 6) / 6 if isfinite(value) else 1.0
        marks.append(_BLOCKS[min(len(_BLOCKS) - 1, int(share * len(_BLOCKS)))])
    return marks
