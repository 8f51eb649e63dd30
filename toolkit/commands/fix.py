"""Find the nodes that make a model fail the accuracy gate on the card, and write a model that passes.

Writes MODEL_mixed.onnx (mixed precision) and MODEL_fix_pass.py (a pass file with skip_ops). With --baseline, also finds
nodes that differ from a correct model. With --reference or --golden, tries causes other than precision.

Samples are those of the case, for a model of the zoo; arrays or images for a classifier; or are read by a task with its
metric. Flags of the task follow --:
  teco fix digits
  teco fix model.onnx --data calls/ --task keywords -- --sample_rate 16000
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine import ConfigError, find_pass
from model_config.cases.config import ROOT, STEPS, relative
from model_config.results import Accuracy
from toolkit.arguments import Parser
from toolkit.chart import Chart, Line
from toolkit.fix.choice_search import Step
from toolkit.fix.choices import Questions, as_flags, explain, leaves_decoding_out
from toolkit.fix.fixing import Fix, fix
from toolkit.fix.opening import SampleRequest
from toolkit.fix.records import METRICS, needs_labels
from toolkit.fix.saving import trials_as_json
from toolkit.fix.suspects import UNCHANGED, Suspect
from toolkit.fix.trials import Trial
from toolkit.graph.inputs import model_file
from toolkit.model_arguments import MODEL, add_sample_flags, positive, sample_request, split_flags
from toolkit.output import Column, ToolReport, add_output_flags, publish

COLUMNS = (
    Column("name", "node"),
    Column("op", "operator"),
    Column("module", "module", brief=False, spare=1),
    Column("error", "isolated error", numeric=True),
    Column("overflows", "beyond 65504"),
    Column("culprit", "verdict"),
)
DONE = ("passes", "fixed", "model")
_WORDS = {"model": "wrong", "fixed": "stays float32", "passes": "", "other": "suspected"}
"""Text for a found node, by the verdict on the model."""


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Search and print the result; return 1 if no fix was found."""
    words, flags = split_flags(argv)
    args = _parser().parse_args(words)
    _check(args)
    wanted = sample_request(args, flags, root)
    if not wanted.given:
        raise ConfigError("the following arguments are required: --data (see teco fix --help)")
    _check_reference(args, wanted)
    path = model_file(args.model, root)
    out = args.out or Path()
    if _looks_for_mistakes(args) and wanted.asked is not None and wanted.asked.task.export_settings:
        asked = Questions(args.golden, args.reference, args.metric)
        report, done = explain(path, asked, wanted, on_trial=_say_step if sys.stderr.isatty() else _hush)
        if not done and leaves_decoding_out(wanted.asked.task.export_settings) and not _has_inputs(args, path):
            other, done = _mistakes(path, args, wanted)
            report = other if done else report
    elif _looks_for_mistakes(args):
        report, done = _mistakes(path, args, wanted)
    else:
        how = {"tolerance": args.tolerance, "batch": wanted.batch, "limit": wanted.limit, "asked": wanted.asked}
        how |= {"baseline": args.baseline, "pass_path": find_pass(args.pass_path)}
        how |= {"shapes": wanted.shapes, "dims": wanted.dims}
        found = fix(path, wanted.data, args.metric, out, **how, on_trial=_say if sys.stderr.isatty() else _hush)
        report, done = describe(found, path, _data_text(wanted)), found.verdict in DONE
        report = replace(report, notes=[*report.notes, *_for_the_case(found, args.model, root)])
    publish(report, args, limit=20)
    return 0 if done else 1


def _has_inputs(args: argparse.Namespace, path: Path) -> bool:
    """Return whether ``--golden`` has the model's inputs, which are compared without a run of the model."""
    from engine.onnx import graph_inputs, load_model
    from utils.arrays import read_npz

    if args.golden is None:
        return False
    return {one.name for one in graph_inputs(load_model(path))} <= set(read_npz(args.golden))


def _parser() -> Parser:
    parser = Parser("teco fix", __doc__)
    add = parser.add_argument
    add("model", metavar="MODEL", help=MODEL)
    add_sample_flags(parser, "data set: an .npz (inputs, labels) or images")
    metric = f"metric, of raw outputs one of: {METRICS} (default: the task's own; without a task top1)"
    add("--metric", metavar="NAME", help=metric)
    add("--tolerance", type=_share, default=0.001, metavar="SHARE", help="relative tolerance (default: 0.001)")
    add("--batch_size", type=positive, default=32, metavar="N", help="samples per call (default: 32)")
    add("--out", type=Path, metavar="DIR", help="output folder (default: the current folder)")
    add("--pass_path", metavar="FILE", help="pass file the card uses already; its passes are kept")
    add("--baseline", type=Path, metavar="FILE", help="correct ONNX model with the same node names")
    add("--reference", type=float, metavar="VALUE", help="metric of the source model; try causes other than precision")
    golden = "outputs of the source model (.npz), or final results of the task (detection: COCO results, .json)"
    add("--golden", type=Path, metavar="FILE", help=f"{golden}; try causes other than precision")
    add_output_flags(parser)
    return parser


def _check(args: argparse.Namespace) -> None:
    """Raise ConfigError for flags that exclude each other."""
    other = next((f"--{name}" for name in ("baseline", "pass_path") if getattr(args, name) is not None), None)
    if other and _looks_for_mistakes(args):
        raise ConfigError(f"{other} cannot be combined with --reference or --golden; leave one out")


def _check_reference(args: argparse.Namespace, wanted: SampleRequest) -> None:
    has_labels = wanted.asked is not None or needs_labels(args.metric or "top1")
    if args.reference is not None and args.golden is None and not has_labels:
        raise ConfigError(f"--reference needs a metric with labels; with --metric {args.metric} pass --golden FILE.npz")


def _data_text(wanted: SampleRequest) -> str:
    """Return the data paths as text, or the case whose data they are."""
    data = [str(wanted.data)] if isinstance(wanted.data, Path) else list(wanted.data or ())
    return " ".join(data) or (f"the default of case {wanted.own}" if wanted.own else "")


def _looks_for_mistakes(args: argparse.Namespace) -> bool:
    """Return whether to search for causes other than precision."""
    return args.reference is not None or args.golden is not None


def _say(trial: Trial) -> None:
    """Print the result of a run as progress."""
    print(f"{trial.what}: {trial.accuracy.metric:.5g}, {trial.accuracy.verdict.value}", file=sys.stderr)


def _say_step(step: Step) -> None:
    print(f"{as_flags(step.values) or 'nothing changed'}: {step.value:.5g}", file=sys.stderr)


def _hush(_: object) -> None:
    """Print no progress."""


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from error
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1; 0.001 is 0.1 %")
    return value


def describe(found: Fix, path: Path, data: str) -> ToolReport:
    """Return the report of a search."""
    gates = _gates(found)
    files = [str(file) for file in (found.pass_file, found.model_file) if file is not None]
    notes = [f"{name}: {gate.reason}" for name, gate in gates.items()]
    notes += [*found.notes, *(f"written: {file}" for file in files)]
    hidden = "overflows" if found.verdict == "model" else ""
    return ToolReport(
        "teco fix",
        path.name,
        _lead(found),
        [column for column in COLUMNS if column.key != hidden],
        _rows(found) if found.errors else [],
        frozenset(range(len(set(found.culprits)))),
        {"model": str(path), "data": data, **_facts(found, gates)},
        notes,
        _charts(found),
        {"verdict": found.verdict, "culprits": found.culprits, "files": files, "trials": trials_as_json(found.trials)},
    )


def _for_the_case(found: Fix, model: str, root: Path) -> list[str]:
    """Return the line on what the case of a model needs so that its runs use the pass file; none without a fix.

    For a model of the zoo that is what to copy, and the lines for its case; for a file, the flag of the scripts.
    """
    if found.verdict != "fixed" or found.pass_file is None:
        return []
    from toolkit.own_samples import own_case

    named, file = own_case(model, root), found.pass_file
    if named is None:
        return [
            f"for the scripts: --pass_path {file}; in a case: others: {{pass_path: {file.name}}}, beside its scripts"
        ]
    home, case = named
    ckpt = found.renamed_file
    steps = ", ".join(STEPS[step.name] for step in case.steps if "ckpt" in step.params)
    files = " ".join(str(one) for one in (file, ckpt) if one is not None)
    values = f"{{pass_path: {file.name}}}" + (f" and ckpt: {ckpt.name}" if ckpt is not None else "")
    where = f"{relative(case.source, root)}:{case.line}"
    return [
        f"for case {case.name} ({where}): cp {files} {home.path}/, and write under params of {steps}: others: {values}"
    ]


def _rows(found: Fix) -> list[dict[str, Any]]:
    """Return a row per node: found nodes in graph order, then the others by descending error."""
    culprits = set(found.culprits)
    word = _WORDS[found.verdict]
    rows = [
        {
            "name": node.name,
            "op": node.op,
            "module": node.module,
            "error": found.errors.get(node.name),
            "overflows": "yes" if node.name in found.overflows else "",
            "culprit": word if node.name in culprits else "",
        }
        for node in found.nodes
    ]
    blamed = [row for row in rows if row["name"] in culprits]
    others = [row for row in rows if row["name"] not in culprits]
    return blamed + sorted(others, key=lambda row: -found.errors.get(str(row["name"]), -1.0))


def _gates(found: Fix) -> dict[str, Accuracy]:
    """Return the accuracy before and after the fix, as far as it was measured."""
    after = "after (repaired model)" if found.verdict == "model" else "after (pass file)"
    gates = {"before": found.before, after: found.after, "after (mixed ONNX)": found.mixed}
    return {name: gate for name, gate in gates.items() if gate is not None}


def _facts(found: Fix, gates: Mapping[str, Accuracy]) -> dict[str, str]:
    facts = {"metric": found.metric, "baseline": f"{found.baseline:.6g}"}
    facts |= {"runs": str(len(found.trials)), "nodes": str(len(found.nodes))}
    facts |= {name: f"{gate.metric:.6g}" for name, gate in gates.items()}
    if found.cost is not None:
        facts["simulated time of a shard"] = (
            f"float16 {found.cost.float16 * 1e3:.3f} ms, fixed {found.cost.fixed * 1e3:.3f} ms, "
            f"float32 {found.cost.float32 * 1e3:.3f} ms"
        )
    return facts


def _lead(found: Fix) -> str:
    names = ", ".join(found.culprits[:5]) + (", ..." if len(found.culprits) > 5 else "")
    runs = f"{len(found.trials)} runs"
    if found.verdict == "passes":
        return f"the float16 form passes the gate ({found.before.reason})"
    if found.verdict == "model":
        return f"{len(found.culprits)} of {len(found.nodes)} nodes differ from the baseline's: {names} ({runs})"
    if found.verdict == "other" and found.model_file is not None:
        return f"{len(found.culprits)} nodes were found ({runs}), but the model written from them does not pass"
    if found.verdict == "other":
        return (
            "float32 on the card fails too: float16 inputs and outputs lose too much, or the cause is not precision; "
            "see teco overflow, or pass --baseline, --reference or --golden"
        )
    price = "" if found.cost is None else f"; costs {found.cost.given_up:.2%} of the float16 speed (simulated)"
    return f"fixed: {len(found.culprits)} of {len(found.nodes)} nodes stay float32: {names} ({runs}){price}"


def _charts(found: Fix) -> tuple[Chart, ...]:
    if not found.errors:
        return ()
    errors = [found.errors.get(node.name) for node in found.nodes]
    culprits = [error if n.name in found.culprits else None for n, error in zip(found.nodes, errors, strict=True)]
    label = "isolated error (Inf: upper edge)" if math.inf in errors else "isolated error"
    lines = [Line(label, "var(--accent)", errors), Line(_WORDS[found.verdict], "var(--fail)", culprits)]
    differences = [abs(trial.accuracy.relative_difference) for trial in found.trials]
    runs = [None if math.isnan(size) else size for size in differences]
    passed = [Line("difference", "var(--accent)", runs)]
    first = next((i for i, node in enumerate(found.nodes) if node.name in found.culprits), None)
    return (
        Chart("Isolated error of every node", "node", lines, None, first, [node.name for node in found.nodes]),
        Chart("Relative difference of the metric, run by run", "run", passed, found.before.tolerance),
    )


def _mistakes(path: Path, args: argparse.Namespace, wanted: SampleRequest) -> tuple[ToolReport, bool]:
    """Try the known causes other than precision."""
    from toolkit.fix.opening import open_samples
    from toolkit.fix.records import RawMeasure
    from toolkit.fix.suspects import tried_inputs, try_suspects
    from toolkit.graph.nodes import load_named
    from utils.arrays import read_npz

    with open_samples(path, load_named(path), wanted) as samples:
        if args.golden is None:
            golden, reference = None, float(args.reference)
            measure = RawMeasure(args.metric or "top1") if wanted.asked is None else samples.measure(args.metric)
        else:
            golden, reference = [a[: samples.count] for a in read_npz(args.golden).values()], 1.0
            measure = samples.measure("agree" if args.metric == "agree" else "close")
        tried = try_suspects(path, samples, measure, reference, golden=golden, tolerance=0.01)
        notes = tried_inputs(samples)
    cured = [one for one in tried if one.cured]
    report = _suspects(path, _data_text(wanted), measure.name, reference, tried)
    return replace(report, notes=notes), bool(cured)


def _suspects(path: Path, data: str, metric: str, reference: float, tried: Sequence[Suspect]) -> ToolReport:
    cured = [one.name for one in tried if one.cured]
    found = ", or ".join(cured)
    lead = f"{metric} reaches the reference's {reference:g} with: {found}" if cured else "no tried change explains it"
    if UNCHANGED in cured:
        lead = f"{metric} is the reference's {reference:g} without a change"
    columns = (Column("name", "changed"), Column("metric", metric, numeric=True), Column("cured", "explains"))
    rows = [{"name": one.name, "metric": one.metric, "cured": "yes" if one.cured else ""} for one in tried]
    facts = {"model": str(path), "data": data, "metric": metric, "reference": f"{reference:g}"}
    stands_out = range(0 if UNCHANGED in cured else len(cured))
    return ToolReport("teco fix", path.name, lead, columns, rows, frozenset(stands_out), facts)
