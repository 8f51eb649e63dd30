"""Show the time of each node, its share of the roofline, the bottlenecks and their fixes.

On target sdaa all times are simulated by the cost model, for one shard on one SPA. On target onnx they are measured
with ONNX Runtime's profiler. The exit code is 1 if --apply finds no rule that saves time; no pass file is written then.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from engine import DTYPES, ConfigError, EngineError, EngineSpec, find_pass
from engine.sdaa import Lowered, spa_count
from model_config.cases.config import ROOT
from tecoinfer_modelzoo.formatting import clean_line
from toolkit.arguments import Parser
from toolkit.graph.inputs import model_file
from toolkit.model_arguments import MODEL, add_sample_flags, positive, sample_request, split_flags
from toolkit.output import add_output_flags, print_report, print_written, write_files, write_text
from toolkit.profile.card import prepare, profile_prepared
from toolkit.profile.comparison import Comparison, compare
from toolkit.profile.host import profile_host
from toolkit.profile.record import Profile, read_profile
from toolkit.profile.report import differences, findings, slowest, suggestions, table, whole
from toolkit.profile.sizes import Sizes, checked_inputs, sizes_of
from toolkit.profile.suggest import Suggestion, check_free, suggest, write_pass
from toolkit.profile.trace import chrome_trace

if TYPE_CHECKING:
    from toolkit.fix.opening import SampleRequest

TARGETS = ("sdaa", "onnx")


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Profile a model; print and write the result."""
    words, flags = split_flags(argv)
    args = _parser().parse_args(words)
    if args.target not in TARGETS:
        raise ConfigError(f"target {args.target!r} reports no times of nodes; profile on {' or '.join(TARGETS)}")
    before = read_profile(args.against) if args.against else None
    if args.apply is not None:
        check_free(args.apply)
    found, suggestion, loaded = _profiled(args, sample_request(args, flags, root), root)
    comparison = compare(before, found) if before else None
    try:
        print_profile(found, comparison, suggestion, args.top)
    finally:
        files = write_all(found, comparison, suggestion, args)
    print_written(files)
    return _apply(args.apply, suggestion, loaded) if args.apply and suggestion and loaded else 0


def _profiled(args: Namespace, samples: SampleRequest, root: Path) -> tuple[Profile, Suggestion | None, Lowered | None]:
    """Return the profile, the suggestion if a flag asks for one, and the model lowered for the card."""
    from engine.onnx import load_model

    pass_path = find_pass(args.pass_path)
    spec = EngineSpec(model_file(args.model, root), args.batch_size, dtype=args.dtype, pass_path=pass_path)
    model = load_model(spec.ckpt)
    checked_inputs(model, samples.shapes)
    wanted = args.suggest or args.apply is not None
    on_card = args.target == "sdaa"
    shard = -(-spec.batch_size // spa_count(spec))
    sizes = sizes_of(model, spec.ckpt, shard if on_card else spec.batch_size, samples)
    loaded = None
    if on_card or wanted:
        loaded = prepare(spec, sizes.shapes if on_card else sizes_of(model, spec.ckpt, shard, samples).shapes)
    suggestion = suggest(loaded) if loaded and wanted else None
    saved = suggestion.saved if suggestion else None
    found = profile_prepared(spec, loaded, saved) if loaded and on_card else _measured(spec, sizes, args.runs)
    notes = (*found.notes, sizes.note) if sizes.note else found.notes
    return replace(found, sizes=sizes.source, notes=notes), suggestion, loaded


def _measured(spec: EngineSpec, sizes: Sizes, runs: int) -> Profile:
    """Profile on the host; if it fails with default sizes, add these to the error."""
    try:
        return profile_host(spec, sizes.shapes, runs)
    except EngineError as error:
        if sizes.source != "default":
            raise
        raise ConfigError(f"{error} ({sizes.note})") from error


def _apply(path: Path, suggestion: Suggestion, loaded: Lowered) -> int:
    """Write the pass file, after all other output; return the exit code."""
    if not suggestion.chosen:
        print(f"not written: {path}, since no rewrite rule saves time on this model")
        return 1
    write_pass(path, suggestion, loaded)
    print(f"written: {path}; use it with --pass_path {path}")
    return 0


def _parser() -> Parser:
    parser = Parser("teco profile", __doc__)
    add = parser.add_argument
    add("model", metavar="MODEL", help=MODEL)
    target = "target: sdaa (simulated times) or onnx (measured times) (default: sdaa)"
    add("--target", default="sdaa", metavar="TARGET", help=target)
    batch = "samples per call, on sdaa for the whole card (default: 1)"
    add("--batch_size", type=positive, default=1, metavar="N", help=batch)
    add_sample_flags(parser, "samples that set the dynamic sizes: an .npz or images")
    add("--dtype", choices=DTYPES, help="precision (default: the target's own)")
    add("--pass_path", metavar="FILE", help="pass file, for target sdaa")
    add("--runs", type=positive, default=20, metavar="N", help="measured runs on target onnx (default: 20)")
    add("--top", type=positive, default=15, metavar="N", help="largest number of nodes to print (default: 15)")
    add("--against", type=Path, metavar="FILE", help="compare with an earlier profile (its --json file)")
    add("--suggest", action="store_true", help="list the rewrite rules that save time on the card")
    add("--apply", type=Path, metavar="FILE", help="write a pass file with the rewrite rules that save time")
    add_output_flags(parser)
    add("--trace", type=Path, metavar="FILE", help="write a Chrome trace, for Perfetto")
    return parser


def print_profile(
    profile: Profile, comparison: Comparison | None = None, suggestion: Suggestion | None = None, top: int = 15
) -> None:
    """Print the slowest steps, the totals, the bottlenecks with their fixes, the comparison and the suggestions."""
    print_report(slowest(profile, comparison), limit=top)
    for line in findings(profile):
        print(clean_line(line))
    if comparison:
        print_report(differences(comparison, profile.kind, top))
    if suggestion:
        print_report(suggestions(suggestion))


def write_all(
    profile: Profile, comparison: Comparison | None, suggestion: Suggestion | None, args: Namespace
) -> list[Path]:
    """Write the output files that the flags name; return their paths.

    Raises DataError if a file cannot be written, ConfigError if the page needs a package that is not installed.
    """
    written = write_files(whole(profile, comparison, suggestion), Namespace(json=args.json, csv=None, html=None))
    written += write_files(table(profile), Namespace(json=None, csv=args.csv, html=None))
    if args.html is not None:
        from toolkit.profile.roofline import profile_page

        written.append(write_text(args.html, profile_page(profile, comparison, suggestion), "html"))
    if args.trace is not None:
        written.append(write_text(args.trace, json.dumps(chrome_trace(profile)) + "\n", "trace"))
    return written
