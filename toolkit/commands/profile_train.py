"""Show the time of a training, its bottlenecks with their source lines, and how to fix them.

SCRIPT runs unchanged in a separate process, as with `python -m torch_sdaa.run` (CUDA names refer to the card), for
--steps optimizer steps. Its output goes to standard error. Host times are measured, device times are simulated;
bottlenecks are found from simulated times and counts only.
"""

from __future__ import annotations

import json
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from engine import ConfigError, ModelError
from tecoinfer_modelzoo.formatting import clean_line
from toolkit.arguments import Parser
from toolkit.model_arguments import positive, split_flags
from toolkit.output import add_output_flags, print_report, print_written, publish, write_files, write_text
from toolkit.training.profile.bottlenecks import bottlenecks
from toolkit.training.profile.comparison import Comparison, compare
from toolkit.training.profile.record import Profile, read_profile
from toolkit.training.profile.report import differences, findings, layers, lead, shown_rows, training_page, whole
from toolkit.training.profile.runs import failed, profile_script
from utils.pipeline.run.interrupt import ended_like_ctrl_c

EPILOG = """\
arguments of the script follow --: teco train profile train.py --steps 20 -- --device sdaa
compare two profiles: teco train profile --compare before.json after.json
exit code: 0 profiled, 2 the script failed; the steps before the failure are still profiled
"""


def main(argv: Sequence[str]) -> int:
    """Profile a script, or compare two profiles; print and write the result."""
    words, rest = split_flags(argv)
    args = _arguments(words)
    if args.compare is not None:
        if args.script is not None or rest:
            raise ConfigError("--compare takes two JSON files and no script; write the files with --json first")
        before, after = map(read_profile, args.compare)
        publish(differences(compare(before, after)), args, limit=args.top + 1)
        return 0
    if args.script is None:
        raise ConfigError("pass the Python file of a training script, or two profiles: --compare A.json B.json")
    known = read_profile(args.against) if args.against else None
    with ended_like_ctrl_c(), tempfile.TemporaryDirectory(prefix="teco-profile-train-") as folder:
        found, trace = profile_script(args.script, rest, args.steps, args.timeout, Path(folder))
    comparison = compare(known, found) if known else None
    try:
        _print(found, comparison, args.top)
    finally:
        files = _write(found, comparison, args)
        if args.trace is not None:
            files.append(write_text(args.trace, json.dumps(trace) + "\n", "trace"))
    print_written(files)
    if found.data.get("failed"):
        why = failed(found.name, found.steps, str(found.data["failed"]))
        raise ModelError(f"{why}; only the steps before the failure are shown")
    return 0


def _arguments(words: Sequence[str]) -> Namespace:
    parser = Parser("teco train profile", __doc__, EPILOG)
    add = parser.add_argument
    add("script", nargs="?", metavar="SCRIPT", type=Path, help="Python file of the training")
    add("--steps", type=positive, default=10, metavar="N", help="optimizer steps to run (default: 10)")
    add("--timeout", type=positive, default=600, metavar="SECONDS", help="time limit of the script (default: 600)")
    add("--top", type=positive, default=15, metavar="N", help="largest number of operators to print (default: 15)")
    add("--against", type=Path, metavar="FILE", help="compare with an earlier profile (its --json file)")
    add("--compare", type=Path, nargs=2, metavar=("A", "B"), help="compare two profiles without running a script")
    add_output_flags(parser)
    add("--trace", type=Path, metavar="FILE", help="write a Chrome trace, for Perfetto")
    return parser.parse_args(words)


def _print(profile: Profile, comparison: Comparison | None, top: int) -> None:
    found = bottlenecks(profile)
    table = shown_rows(profile, top)
    table.lead = next(layers(profile), "")
    print_report(table)
    for line in list(layers(profile))[1:]:
        print(clean_line(line))
    for line in findings(found):
        print(clean_line(line))
    if comparison:
        print_report(differences(comparison, top))
    print(clean_line(lead(profile, found)))


def _write(profile: Profile, comparison: Comparison | None, args: Namespace) -> list[Path]:
    """Write the output files that the flags name; return their paths."""
    found = bottlenecks(profile)
    made = whole(profile, found, comparison)
    files = write_files(made, Namespace(json=args.json, csv=args.csv, html=None))
    if args.html is not None:
        files.append(write_text(args.html, training_page(profile, found, comparison), "html"))
    return files
