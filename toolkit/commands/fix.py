"""Find the nodes that make a model fail the accuracy gate on the card, and write the model that passes.

Writes MODEL_mixed.onnx (mixed precision) and MODEL_fix_pass.py (a pass file with skip_ops). With --baseline also finds
nodes that differ from the model that is right; with --reference or --golden tries mistakes that are not precision.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from model_config.config import ROOT
from toolkit.arguments import Parser
from toolkit.fix.fixing import Fix, fix
from toolkit.fix.records import METRICS
from toolkit.fix.suspects import Suspect
from toolkit.inputs import model_file
from toolkit.model_arguments import positive
from toolkit.output import Chart, Column, Line, Report, add_output_flags, print_report, write_files

COLUMNS = (
    Column("name", "node"),
    Column("op", "operator"),
    Column("module", "module", brief=False),
    Column("error", "isolated error", numeric=True),
    Column("culprit", "verdict"),
)
DONE = ("passes", "fixed", "model")


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Print what was found; the exit code is 1 where nothing helped."""
    args = _parser().parse_args(argv)
    path = model_file(args.model, root)
    out = args.out or Path()
    if args.reference is not None or args.golden is not None:
        report, done = _mistakes(path, args)
    else:
        kept = {"tolerance": args.tolerance, "batch": args.batch_size, "limit": args.samples}
        found = fix(path, args.data, args.metric, out, baseline=args.baseline, **kept)
        report, done = describe(found, path, args.data), found.verdict in DONE
    files = write_files(report, args)
    print_report(report, limit=20)
    for file in files:
        print(f"wrote {file}")
    return 0 if done else 1


def _parser() -> Parser:
    parser = Parser("teco fix", __doc__)
    add = parser.add_argument
    add("model", metavar="MODEL", help="an .onnx file, or a model of the zoo (its first case's file)")
    add("--data", type=Path, required=True, metavar="PATH", help="data set: an .npz (inputs, labels) or pictures")
    add("--metric", default="top1", help=f"one of: {METRICS} (default: top1)")
    add("--tolerance", type=_share, default=0.001, help="of the gate, relative (default: 0.001)")
    add("--batch_size", type=positive, default=32, help="samples of a call (default: 32)")
    add("--samples", type=positive, metavar="N", help="take the first N samples only")
    add("--out", type=Path, metavar="DIR", help="folder for the fixed model and its pass file (default: here)")
    add("--baseline", type=Path, metavar="FILE", help="the ONNX model that is right, with the same nodes by name")
    add("--reference", type=float, metavar="VALUE", help="the metric of the source: try what is not precision")
    add("--golden", type=Path, metavar="FILE", help="the source's outputs (.npz): try what is not precision")
    add_output_flags(parser)
    return parser


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from error
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1; 0.001 is 0.1 %")
    return value


def describe(found: Fix, path: Path, data: Path) -> Report:
    """Return the report on a search."""
    culprits = set(found.culprits)
    word = "wrong" if found.verdict == "model" else "stays float32"
    rows = [
        {
            "name": node.name,
            "op": node.op,
            "module": node.module,
            "error": found.errors.get(node.name),
            "culprit": word if node.name in culprits else "",
        }
        for node in found.nodes
    ]
    order = sorted(range(len(rows)), key=lambda i: (rows[i]["name"] not in culprits, i))
    facts = {"model": str(path), "data": str(data), "metric": found.metric, "baseline": f"{found.baseline:.6g}"}
    facts |= {"runs": str(len(found.trials)), "nodes": str(len(rows)), "before": found.before.reason}
    gates = {"after (pass file)": found.after, "after (mixed ONNX)": found.mixed}
    facts |= {name: gate.reason for name, gate in gates.items() if gate is not None}
    if found.cost is not None:
        facts["simulated time of a shard"] = (
            f"float16 {found.cost.float16 * 1e3:.3f} ms, fixed {found.cost.fixed * 1e3:.3f} ms, "
            f"float32 {found.cost.float32 * 1e3:.3f} ms"
        )
    files = [str(file) for file in (found.pass_file, found.model_file) if file is not None]
    notes = [f"{name}: {text}" for name, text in facts.items() if name in ("before", *gates)]
    notes += [*found.notes, *(f"wrote {file}" for file in files)]
    first = min((i for i, row in enumerate(rows) if row["name"] in culprits), default=None)
    return Report(
        "teco fix",
        path.name,
        _lead(found),
        COLUMNS,
        [rows[i] for i in order] if found.errors else [],
        frozenset(range(len(culprits))),
        facts,
        notes,
        _charts(found, first),
        {"verdict": found.verdict, "culprits": found.culprits, "files": files, "trials": _trials(found)},
    )


def _lead(found: Fix) -> str:
    names = ", ".join(found.culprits[:5]) + (", ..." if len(found.culprits) > 5 else "")
    runs = f"{len(found.trials)} runs"
    if found.verdict == "passes":
        return f"the float16 form passes the gate as it is ({found.before.reason})"
    if found.verdict == "model":
        return f"{len(found.culprits)} of {len(found.nodes)} nodes differ from the baseline's: {names} ({runs})"
    if found.verdict == "other" or found.after is None:
        return "float32 on the card fails too, so it is not precision; pass --baseline, --reference or --golden"
    price = "" if found.cost is None else f"; costs {found.cost.given_up:.2%} of the float16 speed (simulated)"
    return f"fixed: {len(found.culprits)} of {len(found.nodes)} nodes stay float32: {names} ({runs}){price}"


def _charts(found: Fix, mark: int | None) -> tuple[Chart, ...]:
    if not found.errors:
        return ()
    errors = [found.errors.get(node.name) for node in found.nodes]
    runs = [abs(trial.accuracy.relative_difference) for trial in found.trials]
    return (
        Chart("Isolated error of every node", "node", [Line("isolated error", "var(--accent)", errors)], None, mark),
        Chart(
            "Relative difference of the metric, run by run",
            "run",
            [Line("difference", "var(--accent)", runs)],
            found.before.tolerance,
        ),
    )


def _trials(found: Fix) -> list[dict[str, Any]]:
    return [
        {"what": t.what, "nodes": t.nodes, "metric": t.accuracy.metric, "verdict": str(t.accuracy.verdict.value)}
        for t in found.trials
    ]


def _mistakes(path: Path, args: argparse.Namespace) -> tuple[Report, bool]:
    """Try the usual suspects."""
    from toolkit.fix.fixing import open_samples, static_batch
    from toolkit.fix.records import metric_named
    from toolkit.fix.suspects import try_suspects
    from toolkit.inputs import read_npz
    from toolkit.intermediates import load_named

    model = load_named(path)
    batch = static_batch(model) or args.batch_size
    samples = open_samples(model, args.data, batch, args.samples)
    golden = None if args.golden is None else [a[: samples.count] for a in read_npz(args.golden).values()]
    name = args.metric if golden is None else "close"
    reference = 1.0 if args.reference is None or golden is not None else args.reference
    tried = try_suspects(path, samples, metric_named(name), reference, golden=golden, tolerance=0.01, batch=batch)
    cured = [one for one in tried if one.cured]
    return _suspects(path, args.data, name, reference, tried), bool(cured)


def _suspects(path: Path, data: Path, metric: str, reference: float, tried: Sequence[Suspect]) -> Report:
    cured = [one.name for one in tried if one.cured]
    found = ", or ".join(cured)
    lead = f"with {metric} {reference:g} this explains it: {found}" if cured else "no usual suspect explains it"
    if "nothing changed" in cured:
        lead = f"{metric} is the reference's {reference:g} as it is"
    columns = (Column("name", "changed"), Column("metric", metric, numeric=True), Column("cured", "explains"))
    rows = [{"name": one.name, "metric": one.metric, "cured": "yes" if one.cured else ""} for one in tried]
    facts = {"model": str(path), "data": str(data), "metric": metric, "reference": f"{reference:g}"}
    return Report("teco fix", path.name, lead, columns, rows, frozenset(range(len(cured))), facts)
