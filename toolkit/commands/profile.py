"""Show where a model's time goes: per node, against the roof, with the bottlenecks and what would help.

On target sdaa every time is simulated, from the cost model, for one shard on one SPA; on target onnx it is measured,
with ONNX Runtime's profiler. The exit code is 1 where --apply finds no rule that saves time, and writes no pass file.
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
from toolkit.model_arguments import add_sample_flags, positive, split_flags, wanted_samples
from toolkit.output import add_output_flags, print_report, write_files, write_text
from toolkit.profile.card import prepare, profile_prepared
from toolkit.profile.checks import checked_inputs
from toolkit.profile.comparison import Comparison, compare
from toolkit.profile.host import profile_host
from toolkit.profile.record import Profile, read_profile
from toolkit.profile.report import differences, findings, slowest, suggestions, table, whole
from toolkit.profile.sizes import Sizes, sizes_of
from toolkit.profile.suggest import Suggestion, check_free, suggest, write_pass
from toolkit.profile.trace import chrome_trace

if TYPE_CHECKING:
    from toolkit.fix.opening import Wanted

TARGETS = ("sdaa", "onnx")


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Profile a model and print or write what was found."""
    words, flags = split_flags(argv)
    args = _parser().parse_args(words)
    if args.target not in TARGETS:
        raise ConfigError(
            f"target {args.target!r} does not tell the time of single nodes; profile on {' or '.join(TARGETS)}"
        )
    before = read_profile(args.against) if args.against else None
    if args.apply is not None:
        check_free(args.apply)
    found, suggestion, loaded = _profiled(args, wanted_samples(args, flags, root), root)
    comparison = compare(before, found) if before else None
    try:
        print_profile(found, comparison, suggestion, args.top)
    finally:
        files = write_all(found, comparison, suggestion, args)
    for file in files:
        print(f"written: {file}")
    return _apply(args.apply, suggestion, loaded) if args.apply and suggestion and loaded else 0


def _profiled(args: Namespace, samples: Wanted, root: Path) -> tuple[Profile, Suggestion | None, Lowered | None]:
    """Return the profile that the flags ask for, the suggestion if they ask for one, and the model for the card."""
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
    """Profile on the host; where it fails with sizes that nobody asked for, say so."""
    try:
        return profile_host(spec, sizes.shapes, runs)
    except EngineError as error:
        if sizes.source != "default":
            raise
        raise ConfigError(f"{error} ({sizes.note})") from error


def _apply(path: Path, suggestion: Suggestion, loaded: Lowered) -> int:
    """Write the pass file last of all, so that nothing is lost where there is none to write; return the exit code."""
    if not suggestion.chosen:
        print(f"not written: {path}, since no rewrite rule saves time on this model")
        return 1
    write_pass(path, suggestion, loaded)
    print(f"written: {path}; use it with --pass_path {path}")
    return 0


def _parser() -> Parser:
    parser = Parser("teco profile", __doc__)
    add = parser.add_argument
    add("model", metavar="MODEL", help="an ONNX file, or a model of the zoo")
    add("--target", default="sdaa", help="sdaa (simulated times, the default) or onnx (measured times)")
    add("--batch_size", type=positive, default=1, metavar="N", help="samples of a call, on sdaa of the whole card (1)")
    add_sample_flags(parser, "samples that say the sizes: an .npz or pictures (default: sizes that are then said)")
    add("--dtype", choices=DTYPES, help="precision; default: the target's own")
    add("--pass_path", metavar="FILE", help="pass file to run the model with (sdaa)")
    add("--runs", type=positive, default=20, metavar="N", help="measured runs on onnx (20)")
    add("--top", type=positive, default=15, metavar="N", help="steps to print (15)")
    add("--against", type=Path, metavar="FILE", help="compare with the JSON of an earlier profile")
    add("--suggest", action="store_true", help="name the rewrite rules that would save time on the card")
    add(
        "--apply",
        type=Path,
        metavar="FILE",
        help="write the pass file of the rules that save time (exit code 1: none does)",
    )
    add_output_flags(parser)
    add("--trace", type=Path, metavar="FILE", help="write a Chrome trace (open it in Perfetto)")
    return parser


def print_profile(
    profile: Profile, comparison: Comparison | None = None, suggestion: Suggestion | None = None, top: int = 15
) -> None:
    """Print the slowest steps, the totals, the bottlenecks with their fix, and what was asked for besides."""
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
    """Write what the flags ask for; return the files.

    Raises:
        DataError: a file cannot be written. ConfigError: the page needs a package that is not installed.
    """
    written = write_files(whole(profile, comparison, suggestion), Namespace(json=args.json, csv=None, html=None))
    written += write_files(table(profile), Namespace(json=None, csv=args.csv, html=None))
    if args.html is not None:
        from toolkit.profile.page import profile_page

        written.append(write_text(args.html, profile_page(profile, comparison, suggestion), "html"))
    if args.trace is not None:
        written.append(write_text(args.trace, json.dumps(chrome_trace(profile)) + "\n", "trace"))
    return written
