"""Say where float16 is too narrow for a model: values beyond 65504 or below the smallest normal, over a data set.

Predicted from the float32 run, and seen in the card's float16 storage: Inf, NaN, saturated, flushed to zero; with the
sample that triggers it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from model_config.config import ROOT
from toolkit.arguments import Parser
from toolkit.fix.guide import LARGEST
from toolkit.inputs import model_file
from toolkit.intermediates import load_named, random_inputs
from toolkit.model_arguments import positive, shape
from toolkit.output import Chart, Column, Line, Report, add_output_flags, publish
from toolkit.overflow import ACTUAL, PREDICTED, NodeRange, find_overflow

COLUMNS = (
    Column("name", "node"),
    Column("op", "operator"),
    Column("module", "module", brief=False, spare=3),
    Column("largest", "largest |x|", numeric=True),
    Column("smallest", "smallest |x| > 0", numeric=True, spare=1),
    Column("beyond", "> 65504", numeric=True),
    Column("below", "< 2^-14", numeric=True, spare=2),
    *(Column(name, name, numeric=True) for name in ACTUAL),
    Column("inherited", "inherited", brief=False, spare=4),
    Column("stored", "stored", brief=False, spare=4),
    Column("elements", "elements", numeric=True, brief=False, spare=4),
    Column("trigger", "first sample"),
)


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Print the nodes; the exit code is 1 where values overflow."""
    parser = Parser("teco overflow", __doc__)
    parser.add_argument("model", metavar="MODEL", help="an .onnx file, or a model of the zoo (its first case's file)")
    parser.add_argument("--data", type=Path, metavar="PATH", help="data set: .npz or pictures; default: random values")
    parser.add_argument("--samples", type=positive, metavar="N", help="take the first N samples only")
    parser.add_argument("--batch_size", type=positive, default=8, help="samples of a call (default: 8)")
    parser.add_argument(
        "--shape", type=shape, action="append", default=[], metavar="INPUT=N,N,..", help="for other dynamic dimensions"
    )
    parser.add_argument("--pass_path", type=Path, metavar="FILE", help="pass file of the float16 form, such as a fix")
    parser.add_argument("--all", action="store_true", help="print all nodes, not only those with something to say")
    add_output_flags(parser)
    args = parser.parse_args(argv)
    report = examine(model_file(args.model, root), args)
    for file in publish(report, args, report if args.all else _told(report)):
        print(f"written: {file}")
    return 1 if report.bad else 0


def _told(report: Report) -> Report:
    """Return a report of the nodes that have something to say."""
    told = [i for i, row in enumerate(report.rows) if any(row[kind] for kind in ("beyond", *ACTUAL))]
    bad = frozenset(j for j, i in enumerate(told) if i in report.bad)
    return replace(report, rows=[report.rows[i] for i in told], bad=bad)


def examine(path: Path, args: argparse.Namespace) -> Report:
    """Return the report on a model, run as the flags say."""
    from engine.onnx_graph import signature
    from toolkit.fix.fixing import open_samples, static_batch
    from toolkit.fix.samples import Part

    model, shapes = load_named(path), dict(args.shape)
    batch, data = static_batch(model) or args.batch_size, args.data
    if data is None:
        inputs = random_inputs(path, batch=batch, shapes=shapes)
        batch = next((len(inputs[i]) for i, spec in enumerate(signature(model)[0]) if spec.batched), batch)
        parts: Any = [Part(inputs, None, [f"random[{i}]" for i in range(batch)])]
    else:
        parts = open_samples(model, data, batch, args.samples, shapes)
    found = find_overflow(path, parts, batch, args.pass_path)
    bad = frozenset(i for i, one in enumerate(found) if one.overflows or (one.counts["beyond"] and one.stored))
    worst = [found[i] for i in sorted(bad)]
    lead = f"{len(worst)} of {len(found)} nodes overflow float16"
    lead += f"; the first is {worst[0].node.name} ({worst[0].node.op}), sample {worst[0].trigger}" if worst else ""
    return Report(
        "teco overflow",
        path.name,
        lead,
        COLUMNS,
        [_row(one) for one in found],
        bad,
        {"model": str(path), "data": str(data or "random (standard normal, seed 0)"), "batch": str(batch)},
        _notes(found, data),
        (_chart(found, min(bad, default=None)),),
    )


def _notes(found: Sequence[NodeRange], data: Path | None) -> list[str]:
    notes = [] if data else ["random values say little about real ranges; pass --data"]
    flushed = [one for one in found if one.counts["flushed"]]
    if flushed and not any(one.overflows for one in found):  # whatever is divided by Inf becomes 0 too
        worst = max(flushed, key=lambda one: one.counts["flushed"] / one.elements)
        share = worst.counts["flushed"] / worst.elements
        notes.append(f"values become 0 in {len(flushed)} nodes, the largest share in {worst.node.name}: {share:.2%}")
    return notes


def _row(one: NodeRange) -> dict[str, Any]:
    row: dict[str, Any] = {"name": one.node.name, "op": one.node.op, "module": one.node.module}
    row |= {"largest": one.largest, "smallest": one.smallest if math.isfinite(one.smallest) else None}
    row |= {kind: one.counts[kind] for kind in (*PREDICTED, *ACTUAL)}
    return row | {
        "inherited": "yes" if one.inherited else "",
        "stored": "yes" if one.stored else "",
        "elements": one.elements,
        "trigger": one.trigger,
        "triggers": one.triggers,
    }


def _chart(found: Sequence[NodeRange], mark: int | None) -> Chart:
    lines = [
        Line("largest |x|", "var(--accent)", [one.largest or None for one in found]),
        Line(
            "smallest |x| > 0", "var(--pass)", [one.smallest if one.elements and one.largest else None for one in found]
        ),
    ]
    return Chart("Range of every node's float32 values", "node", lines, LARGEST, mark)
