"""Find values beyond the range of float16, over a data set: above 65504 or below 2^-14, the smallest normal number.

Values are predicted from the float32 run and counted in the card's float16 storage (Inf, NaN, saturated, flushed to
zero), with the first sample that triggers them. Weights outside the range of float16 have separate rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import TecoInferError, find_pass
from engine.batching import batch_of
from model_config.cases.config import ROOT
from toolkit.arguments import Parser
from toolkit.chart import Chart, Line
from toolkit.fix.guide import LARGEST
from toolkit.graph.inputs import batched_specs, model_file, random_inputs, static_batch
from toolkit.graph.masks import masked_note
from toolkit.graph.nodes import load_named
from toolkit.model_arguments import MODEL, add_sample_flags, positive, sample_request, split_flags
from toolkit.output import Column, ToolReport, add_output_flags, publish
from toolkit.overflow import ACTUAL, PREDICTED, NodeRange, find_overflow, find_weights, weight_lead, weight_notes

if TYPE_CHECKING:
    from onnx import ModelProto

    from toolkit.fix.opening import SampleRequest
    from toolkit.fix.records import Feed

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
    Column("share", "share lost", numeric=True, brief=False, spare=4),
    Column("masked", "masked", numeric=True, brief=False, spare=4),
    Column("trigger", "first sample"),
)


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Print the affected nodes; return 1 if values overflow."""
    parser = Parser("teco overflow", __doc__)
    parser.add_argument("model", metavar="MODEL", help=MODEL)
    add_sample_flags(parser, "data set: an .npz or images; for a file random values")
    parser.add_argument("--batch_size", type=positive, default=8, metavar="N", help="samples per call (default: 8)")
    parser.add_argument("--pass_path", metavar="FILE", help="pass file of the float16 form, such as that of teco fix")
    parser.add_argument("--all", action="store_true", help="print all nodes, not only affected ones")
    add_output_flags(parser)
    words, flags = split_flags(argv)
    args = parser.parse_args(words)
    report = examine(model_file(args.model, root), sample_request(args, flags, root), find_pass(args.pass_path))
    affected = [i for i, row in enumerate(report.rows) if row.get("told", any(row[k] for k in ("beyond", *ACTUAL)))]
    kept = range(len(report.rows)) if args.all else affected
    bad = frozenset(j for j, i in enumerate(kept) if i in report.bad)
    publish(report, args, replace(report, rows=[report.rows[i] for i in kept], bad=bad))
    return 1 if report.bad else 0


def examine(path: Path, wanted: SampleRequest, pass_path: Path | None = None) -> ToolReport:
    """Return the report on a model over the selected samples."""
    from toolkit.fix.opening import open_samples

    model = load_named(path)
    found: list[NodeRange] | None = None
    unread: list[str] = []
    if wanted.given:
        try:
            with open_samples(path, model, wanted) as samples:
                batch, given = samples.batch, samples.where
                found = find_overflow(path, samples.calls(), batch, pass_path)
        except TecoInferError as error:
            if not wanted.own:
                raise
            unread = [f"the samples of case {wanted.own} cannot be used: {error}"]
    if found is None:
        batch, part = _drawn(path, model, wanted)
        found, given = find_overflow(path, [part], batch, pass_path), ""
    weights = find_weights(model, pass_path)
    bad = frozenset(i for i, one in enumerate(found) if _stands_out(one))
    also = frozenset(len(found) + i for i, one in enumerate(weights) if one.overflows)
    return ToolReport(
        "teco overflow",
        path.name,
        _lead(found) + weight_lead(weights),
        COLUMNS,
        [*map(_row, found), *(one.row() for one in weights)],
        bad | also,
        {"model": str(path), "data": given or "random (standard normal, seed 0)", "batch": str(batch)},
        unread + _notes(found, given) + weight_notes(weights),
        (_chart(found, min(bad, default=None)),),
    )


def _stands_out(one: NodeRange) -> bool:
    """Return whether values of a node overflow, or are stored beyond the range."""
    return one.overflows or bool(one.counts["beyond"] and one.stored)


def _lead(found: Sequence[NodeRange]) -> str:
    """Return the result in one sentence."""
    worst = [one for one in found if _stands_out(one)]
    lead = f"{len(worst)} of {len(found)} nodes overflow float16"
    if not worst:
        return lead
    return f"{lead}; the first is {worst[0].node.name} ({worst[0].node.op}), sample {worst[0].trigger}"


def _drawn(path: Path, model: ModelProto, wanted: SampleRequest) -> tuple[int, Feed]:
    """Return the number of random samples, and the samples."""
    from toolkit.fix.records import Feed

    specs = batched_specs(model, wanted.dims)
    inputs = random_inputs(path, batch=static_batch(specs) or wanted.batch, shapes=wanted.shapes, dims=wanted.dims)
    rows = batch_of(inputs, specs)
    return rows, Feed(inputs, None, [f"random[{i}]" for i in range(rows)])


def _notes(found: Sequence[NodeRange], data: str) -> list[str]:
    notes = [] if data else ["random values do not show real ranges; pass --data"]
    masked = [one for one in found if one.masked]
    if masked:
        notes.append(masked_note([one.node.name for one in masked], sum(one.masked for one in masked)))
    flushed = [one for one in found if one.counts["flushed"]]
    if flushed and not any(one.overflows for one in found):  # a division by Inf gives 0 too
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
        "share": None,
        "masked": one.masked,
        "trigger": one.trigger,
        "triggers": one.triggers,
    }


def _chart(found: Sequence[NodeRange], mark: int | None) -> Chart:
    smallest = [one.smallest if one.elements and one.largest else None for one in found]
    lines = [
        Line("largest |x|", "var(--accent)", [one.largest or None for one in found]),
        Line("smallest |x| > 0", "var(--pass)", smallest),
    ]
    return Chart("Range of every node's float32 values", "node", lines, LARGEST, mark, [one.node.name for one in found])
