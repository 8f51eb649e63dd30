"""Show where a model's time goes: per node, against the roof, with the bottlenecks and what would help.

On target sdaa every time is simulated, from the cost model, for one shard on one SPA; on target onnx it is measured,
with ONNX Runtime's profiler.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from engine.base import DTYPES, ConfigError, EngineSpec
from model_config.config import ROOT
from model_config.reports.extra import extra
from model_config.reports.text import seconds, write_text
from toolkit.arguments import Parser
from toolkit.inputs import model_file
from toolkit.model_arguments import positive, shape
from toolkit.profile.against import Comparison, compare
from toolkit.profile.card import prepare, profile_prepared
from toolkit.profile.host import profile_host
from toolkit.profile.record import Profile, Step, read_profile
from toolkit.profile.suggest import Suggestion, suggest, write_pass
from toolkit.profile.trace import chrome_trace

TARGETS = ("sdaa", "onnx")
_NODES = 3
"""Nodes of a bottleneck that the terminal names."""


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Profile a model and print or write what was found."""
    args = _parser().parse_args(argv)
    if args.target not in TARGETS:
        raise ConfigError(
            f"target {args.target!r} does not tell the time of single nodes; profile on {' or '.join(TARGETS)}"
        )
    before = read_profile(args.against) if args.against else None
    spec = EngineSpec(model_file(args.model, root), args.batch_size, dtype=args.dtype, pass_path=args.pass_path)
    shapes = dict(args.shape)
    wanted = args.suggest or args.apply is not None
    if args.target == "onnx" and not wanted:
        found, suggestion = profile_host(spec, shapes, args.runs), None
    else:
        loaded = prepare(spec, shapes)
        suggestion = suggest(loaded) if wanted else None
        on_card = args.target == "sdaa"
        found = profile_prepared(spec, loaded) if on_card else profile_host(spec, shapes, args.runs)
        if suggestion and args.apply is not None:
            write_pass(args.apply, suggestion, loaded)
    comparison = compare(before, found) if before else None
    print_profile(found, comparison, suggestion, args.top)
    if args.apply is not None:
        print(f"wrote {args.apply}; use it with --pass_path {args.apply}")
    write_files(found, comparison, suggestion, {kind: getattr(args, kind) for kind in ("json", "csv", "html", "trace")})
    return 0


def _parser() -> Parser:
    parser = Parser("teco profile", __doc__)
    add = parser.add_argument
    add("model", metavar="MODEL", help="an ONNX file, or a model of the zoo")
    add("--target", default="sdaa", help="sdaa (simulated times, the default) or onnx (measured times)")
    add("--batch_size", type=positive, default=1, metavar="N", help="samples of a call, on sdaa of the whole card (1)")
    add(
        "--shape",
        type=shape,
        action="append",
        default=[],
        metavar="NAME=1,3,224,224",
        help="shape of an input, on sdaa per SPA",
    )
    add("--dtype", choices=DTYPES, help="precision; default: the target's own")
    add("--pass_path", type=Path, metavar="FILE", help="pass file to run the model with (sdaa)")
    add("--runs", type=positive, default=20, metavar="N", help="measured runs on onnx (20)")
    add("--top", type=positive, default=15, metavar="N", help="steps to print (15)")
    add("--against", type=Path, metavar="FILE", help="compare with the JSON of an earlier profile")
    add("--suggest", action="store_true", help="name the rewrite rules that would save time on the card")
    add("--apply", type=Path, metavar="FILE", help="write the pass file of the rules that save time")
    add("--json", type=Path, metavar="FILE", help="write all of it as JSON")
    add("--csv", type=Path, metavar="FILE", help="write a row per step")
    add("--html", type=Path, metavar="FILE", help="write one self-contained page")
    add("--trace", type=Path, metavar="FILE", help="write a Chrome trace (open it in Perfetto)")
    return parser


def print_profile(
    profile: Profile, comparison: Comparison | None = None, suggestion: Suggestion | None = None, top: int = 15
) -> None:
    """Print the totals, the slowest steps, the bottlenecks with their fix, and what was asked for besides."""
    print(
        f"{profile.model} on {profile.device}, {profile.dtype}, batch {profile.batch}: "
        f"{seconds(profile.compute)} computing, {seconds(profile.call)} a call ({profile.kind})"
    )
    slowest = sorted(profile.steps, key=lambda step: -step.seconds)
    titles = ("step", "operator", f"time ({profile.kind})", "share", "FLOP/byte", "of roof", "bound", "module")
    _table(titles, [_cells(step, profile) for step in slowest[:top]], right=(2, 3, 4, 5))
    if len(slowest) > top:
        print(f"... and {len(slowest) - top} more steps (--top, --csv)")
    for one in profile.bottlenecks:
        nodes = ", ".join(one.nodes[:_NODES]) + (", ..." if len(one.nodes) > _NODES else "")
        print(f"{one.kind}: {one.text} ({nodes})\n  fix: {one.fix}")
    if not profile.bottlenecks:
        print("none of the four classic bottlenecks stands out")
    for other in profile.what_if:
        print(f"what if: {other.what}: {seconds(other.seconds)} computing ({profile.kind})")
    if comparison:
        _print_comparison(comparison, profile.kind, top)
    if suggestion:
        _print_suggestion(suggestion)
    for note in profile.notes:
        print(f"note: {note}")


def _cells(step: Step, profile: Profile) -> list[str]:
    return [
        step.name,
        step.op_type,
        seconds(step.seconds),
        f"{profile.share(step.seconds):.1%}",
        f"{step.intensity:.3g}",
        f"{step.roof_share:.0%}",
        step.bound,
        step.module,
    ]


def _print_comparison(comparison: Comparison, kind: str, top: int) -> None:
    rows = [
        [change.name, seconds(change.before), seconds(change.now), seconds(change.difference)]
        for change in (comparison.total, *comparison.operators[:top])
    ]
    _table((f"against {comparison.before}", "before", f"now ({kind})", "difference"), rows, right=(1, 2, 3))


def _print_suggestion(found: Suggestion) -> None:
    if not found.chosen:
        print("no rewrite rule saves time on this model")
    else:
        rows = [
            [gain.rule, str(gain.fired), f"{gain.kernels_before} to {gain.kernels_after}", seconds(gain.seconds)]
            for gain in found.chosen
        ]
        _table(("rule", "fires", "kernels", "saves (simulated)"), rows, right=(1, 2, 3))
        share = 1 - found.after / found.before if found.before else 0.0
        print(f"together: {seconds(found.before)} becomes {seconds(found.after)} a shard, {share:.1%} less (simulated)")
    chosen = {gain.rule for gain in found.chosen}
    for gain in found.alone:
        if gain.rule not in chosen:
            why = (
                "saves nothing that others do not" if gain.priced else "the cost model has no figure for what it writes"
            )
            print(f"{gain.rule} fires {gain.fired} times, not suggested: {why}")
    if found.too_new:
        print(
            f"not tried, for want of a newer opset: {', '.join(f'{name} ({opset})' for name, opset in found.too_new)}"
        )


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> None:
    with extra("the table of the profile"):
        from rich.box import ASCII2, SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
    width = None if sys.stdout.isatty() else 10_000
    console = Console(highlight=False, emoji=False, markup=False, width=width)
    box = SIMPLE_HEAD if console.encoding.lower().startswith("utf") else ASCII2
    table = Table(box=box, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="bold")
    for i, title in enumerate(titles):
        table.add_column(title, justify="right" if i in right else "left", no_wrap=i in right, overflow="fold")
    for row in rows:
        table.add_row(*(cell.encode(console.encoding, "backslashreplace").decode(console.encoding) for cell in row))
    console.print(table)


def write_files(
    profile: Profile, comparison: Comparison | None, suggestion: Suggestion | None, paths: dict[str, Path | None]
) -> None:
    """Write what was asked for: ``json``, ``csv``, ``html`` and ``trace``.

    Raises:
        ConfigError: a file cannot be written, or the page needs a package that is not installed.
    """
    makers: dict[str, Callable[[], str]] = {
        "json": lambda: json.dumps(as_json(profile, comparison, suggestion), indent=1) + "\n",
        "csv": lambda: csv_text(profile),
        "html": lambda: _page(profile, comparison, suggestion),
        "trace": lambda: json.dumps(chrome_trace(profile)) + "\n",
    }
    for kind, make in makers.items():
        path = paths.get(kind)
        if path is not None:
            write_text(make(), path)


def as_json(profile: Profile, comparison: Comparison | None, suggestion: Suggestion | None) -> dict[str, object]:
    """Return all of it as plain data; :func:`toolkit.profile.record.read_profile` reads the profile in it."""
    data: dict[str, object] = profile.as_json()
    if comparison:
        data["against"] = asdict(comparison)
    if suggestion:
        data["suggestion"] = asdict(suggestion)
    return data


def csv_text(profile: Profile) -> str:
    """Return a row per step, in order."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = ("name", "op_type", "module", "seconds", "flops", "bytes", "roof", "bound", "float32")
    writer.writerow([*names, "share", "intensity", "roof_share", "kind", "nodes"])
    for step in profile.steps:
        figures = [profile.share(step.seconds), step.intensity, step.roof_share, profile.kind, " ".join(step.nodes)]
        writer.writerow([*(getattr(step, name) for name in names), *figures])
    return out.getvalue()


def _page(profile: Profile, comparison: Comparison | None, suggestion: Suggestion | None) -> str:
    from toolkit.profile.page import profile_page

    return profile_page(profile, comparison, suggestion)
