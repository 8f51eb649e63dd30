"""Write one page about a model, to send: accuracy, speed, memory, operators, overflow and times of layers.

Every target is evaluated with the model's valid script and its case's data. The page is one self-contained file; the
JSON beside it has the same figures. Times and memory of the card are simulated and say so; the others are measured on
this host. An ONNX file has no case, so its report has no accuracy.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from model_config.cases.config import ROOT
from tecoinfer_modelzoo.flags import STDOUT, add_json_flag, write_stdout
from tecoinfer_modelzoo.formatting import clean_line
from toolkit.arguments import Parser
from toolkit.model_arguments import between, positive
from toolkit.output import print_report, print_written, write_text
from toolkit.report.build import TIMEOUT, build, write
from toolkit.report.model import ModelReport

PRINTED = 6
"""Largest number of rows and of notes of a section on the terminal; the page and the JSON have all."""

EPILOG = "exit code: 0 the page was written, 1 it was, and the accuracy is beyond the tolerance on a target, 2 an error"


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Make the report, print it, write its files; return 1 if the accuracy is beyond the tolerance on a target."""
    from model_config.results import Verdict
    from toolkit.report.page import json_text
    from utils.tasks.find import add_contrib

    args = _parser().parse_args(argv)
    add_contrib(root)
    report = build(args.model, root=root, targets=args.target or (), samples=args.samples, timeout=args.timeout)
    files = write(report, args.out or Path())
    print_text(report)
    written = [files.html, files.json]
    if args.json == STDOUT:
        write_stdout(json_text(report))
    elif args.json is not None:
        written.append(write_text(args.json, json_text(report), "json"))
    print_written(written)
    failed = any(run.accuracy is not None and run.accuracy.verdict is Verdict.FAIL for run in report.runs)
    return 1 if failed else 0


def print_text(report: ModelReport) -> None:
    """Print the sections, each with its first rows, and the result last; raise ConfigError if rich is missing."""
    from toolkit.report.page import filled

    lines = [clean_line(report.title), *(f"  {name}: {clean_line(str(text))}" for name, text in report.facts.items())]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    for section in report.sections.values():
        columns = [column for column in filled(section) if not column.spare]
        left = len(section.rows) - PRINTED
        more = [f"{left} more rows are in the page"] if left > 0 else []
        sys.stdout.write(f"\n{clean_line(section.title)}\n")
        notes = [*more, *section.notes[:PRINTED]]
        print_report(replace(section, columns=columns, rows=section.rows[:PRINTED], notes=notes))
    sys.stdout.write(f"\n{clean_line(report.title)}: {clean_line(report.lead)}\n")


def _parser() -> Parser:
    parser = Parser("teco report", __doc__, EPILOG)
    add = parser.add_argument
    add("model", metavar="MODEL", help="a model of the zoo, its folder or a case; or an ONNX file, without accuracy")
    add("--out", type=Path, metavar="DIR", help="folder of the page and of its JSON (default: the current folder)")
    targets = "evaluate on this target, besides the baseline; repeatable (default: all that are available)"
    add("--target", action="append", metavar="TARGET", help=targets)
    samples = "evaluate the first N samples, rounded up to whole batches (default: all)"
    add("--samples", type=positive, metavar="N", help=samples)
    limit = f"time limit of the evaluation on one target (default: {TIMEOUT:g})"
    add("--timeout", type=between, default=TIMEOUT, metavar="SECONDS", help=limit)
    add_json_flag(parser, "everything")
    return parser
