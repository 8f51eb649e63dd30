"""Test whether a training script converges on a device as on the CPU, by its loss curves and its final metric.

SCRIPT is run on both devices for every seed: `python SCRIPT [ARGUMENTS] --device NAME --seed N --losses FILE`.
It writes JSON lines to FILE, first {"device": "sdaa:0", "seed": 0}, then {"step": 0, "loss": 2.31} for every step, and
prints its final metric as a line `eval_metric 0.98`. docs/how-to/training.md has a complete example.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine import ConfigError
from model_config.results import EXIT_CODES, Verdict
from toolkit.arguments import Parser
from toolkit.chart import Chart, Line
from toolkit.model_arguments import between, positive, split_flags
from toolkit.output import Column, ToolReport, add_output_flags, publish
from toolkit.training.gate.judge import BOUNDS, Outcome, Pair, judge, paired
from toolkit.training.gate.runs import Run, run_script
from utils.pipeline.run.interrupt import ended_like_ctrl_c
from utils.places import check_folder

EPILOG = """\
arguments of the script follow --: teco train gate train.py --seeds 5 -- --epochs 3
PASS: bit-identical, or the 95 % interval of the metric's difference over the seeds lies inside --tolerance
FAIL: it lies outside, or a run on the device diverges. INCONCLUSIVE: it overlaps the tolerance; use more seeds
exit code: 0 PASS, 1 FAIL, 4 INCONCLUSIVE, 2 a run crashed, exceeded --timeout or did not write the required lines
"""

COLUMNS = (
    Column("seed", "seed", True),
    Column("steps", "steps", True),
    Column("parted", "curves differ from step", True),
    Column("largest", "largest difference of a loss", True, spare=1),
    Column("baseline_loss", "last loss, baseline", True, spare=2),
    Column("target_loss", "last loss, device", True, spare=2),
    Column("baseline_metric", "metric, baseline", True),
    Column("target_metric", "metric, device", True),
    Column("trouble", "problem"),
)

_CHARTS = 4
"""Largest number of seeds whose curves are drawn."""

_AT_ONCE = (
    "the losses differ before the first update, so that more seeds do not explain it: compare dumps of one step on "
    "both devices, which find the first operator that differs (teco train compare, docs/how-to/training_accuracy.md)"
)

_POINTS = 1000
"""Largest number of points of a drawn curve; longer curves are subsampled."""


def main(argv: Sequence[str]) -> int:
    """Run the script for every seed on both devices; print and return the verdict."""
    words, rest = split_flags(argv)
    args = _arguments(words)
    if not args.script.is_file():
        raise ConfigError(f"{args.script} is not a file; name the Python file of a training script")
    if args.device == args.baseline:
        raise ConfigError(f"--device {args.device} equals --baseline; choose another device")
    with ended_like_ctrl_c(), tempfile.TemporaryDirectory(prefix="teco-train-gate-") as folder:
        pairs = _pairs(args, rest, args.work_dir or Path(folder))
    outcome = judge(pairs, args.tolerance)
    publish(report(args.script.name, pairs, outcome, args.tolerance), args)
    return EXIT_CODES[outcome.verdict]


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = Parser("teco train gate", __doc__, EPILOG)
    add = parser.add_argument
    add("script", metavar="SCRIPT", type=Path, help="Python file of the training")
    add("--device", default="sdaa", metavar="DEVICE", help="device to judge, such as sdaa or sdaa:1 (default: sdaa)")
    add("--baseline", default="cpu", metavar="DEVICE", help="device of the reference runs (default: cpu)")
    add("--seeds", type=positive, default=3, metavar="N", help="number of seeds, from 0 (default: 3)")
    tolerance = "relative tolerance of the final metric (default: 0.001)"
    add("--tolerance", type=lambda text: between(text, 1), default=BOUNDS[0], metavar="SHARE", help=tolerance)
    add("--timeout", type=between, default=600.0, metavar="SECONDS", help="time limit of each run (default: 600)")
    add("--work_dir", type=Path, metavar="DIR", help="folder for the losses and logs (default: a temporary one)")
    parser.hide("--work_dir", "--keep")
    add_output_flags(parser)
    args = parser.parse_args(words)
    check_folder("--work_dir", args.work_dir)
    return args


def _pairs(args: argparse.Namespace, rest: Sequence[str], folder: Path) -> list[Pair]:
    found = []
    for seed in range(args.seeds):
        runs: list[Run] = []
        for device in (args.baseline, args.device):
            run = run_script(args.script, rest, device, seed, folder, args.timeout)
            summary = f"{len(run.steps)} steps, eval_metric {run.metric:.6g}, {run.seconds:.1f} s on this machine"
            print(f"{run.name}: {summary}", file=sys.stderr, flush=True)
            runs.append(run)
        found.append(paired(*runs))
    return found


def report(title: str, pairs: Sequence[Pair], outcome: Outcome, tolerance: float) -> ToolReport:
    """Return the report: a row per seed, charts of the curves, and all losses for the JSON."""
    devices = {"device": pairs[0].target.device, "baseline": pairs[0].baseline.device}
    facts = {**devices, "seeds": str(len(pairs)), "tolerance": f"{100 * tolerance:g} %"}
    data: dict[str, Any] = {"verdict": outcome.verdict.value, "tolerance": tolerance}
    data |= {"difference": outcome.difference, "interval": outcome.interval, "needed": outcome.needed}
    data["bounds"] = [
        {"tolerance": bound, "verdict": verdict.value} for bound, verdict in zip(BOUNDS, outcome.bounds, strict=True)
    ]
    data["curves"] = [
        {"device": run.device, "seed": run.seed, "steps": run.steps, "losses": run.losses, "metric": run.metric}
        for pair in pairs
        for run in (pair.baseline, pair.target)
    ]
    bad = frozenset(i for i, pair in enumerate(pairs) if pair.trouble)
    rows = [_row(pair) for pair in pairs]
    lead = f"{outcome.verdict.value}: {outcome.reason}"
    charts = [chart for pair in pairs[:_CHARTS] for chart in _charts(pair)]
    return ToolReport("teco train gate", title, lead, COLUMNS, rows, bad, facts, _notes(pairs, outcome), charts, data)


def _notes(pairs: Sequence[Pair], outcome: Outcome) -> list[str]:
    notes = []
    if outcome.interval is not None:
        words = [f"{verdict.value} at {100 * bound:g} %" for bound, verdict in zip(BOUNDS, outcome.bounds, strict=True)]
        notes.append(" and ".join(words))
    parted = [pair for pair in pairs if pair.parted is not None]
    if parted and not any(pair.trouble for pair in pairs):
        first = min(parted, key=lambda pair: pair.parted or 0)
        where = f"the curves of {len(parted)} of {len(pairs)} seeds diverge, the first at step {first.parted}"
        notes.append(f"{where} (seed {first.baseline.seed})")
        if outcome.verdict is Verdict.INCONCLUSIVE and first.parted == first.baseline.steps[0]:
            notes.append(_AT_ONCE)
    elif not parted and any(not pair.same for pair in pairs):
        notes.append("all losses are equal but the metrics differ; check the evaluation")
    if len(pairs) > _CHARTS:
        notes.append(f"the page shows the curves of the first {_CHARTS} seeds; the JSON contains all")
    if any(loss <= 0 for pair in pairs for run in (pair.baseline, pair.target) for loss in run.losses):
        notes.append("losses of 0 or less are drawn as dots below the curves")
    return notes


def _row(pair: Pair) -> dict[str, Any]:
    row: dict[str, Any] = {"seed": pair.baseline.seed, "steps": len(pair.target.steps), "parted": pair.parted}
    row |= {"largest": pair.largest, "trouble": pair.trouble}
    row |= {"baseline_loss": pair.baseline.losses[-1], "target_loss": pair.target.losses[-1]}
    return row | {"baseline_metric": pair.baseline.metric, "target_metric": pair.target.metric}


def _charts(pair: Pair) -> list[Chart]:
    """Return a chart of the curves of a seed, and one of their difference if they differ."""
    shown = range(0, len(pair.baseline.steps), -(-len(pair.baseline.steps) // _POINTS))
    lines = [
        Line(run.device, colour, [run.losses[i] if i < len(run.losses) else None for i in shown])
        for run, colour in ((pair.baseline, "var(--accent)"), (pair.target, "var(--open)"))
    ]
    axis = "step" if shown.step == 1 else f"step, every {shown.step}"
    charts = [Chart(f"Loss, seed {pair.baseline.seed}", axis, lines)]
    if pair.parted is not None:
        ours, theirs = (line.values for line in lines)
        gaps = [None if a is None or b is None else abs(a - b) for a, b in zip(ours, theirs, strict=True)]
        line = Line(f"|{pair.target.device} - {pair.baseline.device}|", "var(--fail)", gaps)
        charts.append(Chart(f"Difference of the losses, seed {pair.baseline.seed}", axis, [line]))
    return charts
