"""Compare two dumps of a training, operator by operator: which one went wrong first, in which module and line?

A is the reference, B the run that is judged: dumps of torch_sdaa.utils.dumper, such as of the CPU and the card, of two
runs, or of float32 and mixed precision. Calls are matched by step, phase, module and operator. Each operator of B whose
values differ is also repeated on this machine's CPU from what the file says it read, so that its own error stands apart
from what it inherits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine import ConfigError, open_training_dump
from toolkit.arguments import Parser
from toolkit.output import add_output_flags, publish
from toolkit.training.dump.isolated import Repeater
from toolkit.training.dump.judge import judged
from toolkit.training.dump.report import report

EPILOG = """\
diff1 = sum|a-b| / sum|b|, diff2 = sqrt(sum (a-b)^2 / sum b^2), diff3 = |a-b| / |b| where |b| is above 1e-6 (float16:
1e-4) and |a-b| elsewhere, where b is the reference; all accumulated in float64.
exit code: 0 no bad operator, 1 there is one, 2 the comparison could not be made
"""

_ROWS = 20
"""Rows that a terminal shows."""


def main(argv: Sequence[str]) -> int:
    """Compare and print; exit code 1 where an operator is bad."""
    parser = Parser("teco train compare", __doc__, EPILOG)
    parser.add_argument("a", metavar="A.h5", type=Path, help="the reference")
    parser.add_argument("b", metavar="B.h5", type=Path, help="the run that is judged")
    add_flags(parser)
    return compare(parser.parse_args(argv))


def add_flags(parser: Parser) -> None:
    """Add what both spellings of the command take."""
    parser.add_argument(
        "--threshold",
        type=_threshold,
        metavar="DIFF2",
        help="a value beyond it is off, by itself beyond a tenth (1e-4; float16 1e-2; bfloat16 8e-2)",
    )
    parser.add_argument("--exact", action="store_true", help="any other bit is a fault: is the training deterministic?")
    parser.add_argument("--no_isolated", dest="isolated", action="store_false", help="do not repeat operators alone")
    add_output_flags(parser)


def _threshold(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number above 0 and below 1")
    return value


def compare(args: argparse.Namespace) -> int:
    """Compare ``args.a`` and ``args.b``; return the exit code."""
    if args.exact and args.threshold is not None:
        raise ConfigError("--exact and --threshold exclude each other; --exact takes any difference")
    why = ""
    repeater = None
    if args.isolated:
        try:
            repeater = Repeater()
        except ConfigError as error:
            why = f"{error}: no isolated figures"
    with open_training_dump(args.a) as a, open_training_dump(args.b) as b:
        found = judged(a, b, args.threshold, repeater, args.exact)
        facts = {"reference (a)": f"{args.a}, {_devices(a.calls)}", "judged (b)": f"{args.b}, {_devices(b.calls)}"}
    found.notes += [why] if why else []
    made = report(found, args.b.name, facts)
    bad = sorted(made.bad)[:_ROWS]
    shown = replace(made, rows=[made.rows[k] for k in bad], bad=frozenset(range(len(bad))))
    if len(made.bad) > len(bad):
        shown = replace(shown, notes=[*made.notes, f"{len(made.bad) - len(bad)} more are bad; --html has all"])
    for file in publish(made, args, shown):
        print(f"written: {file}")
    if not any(pair.difference for pair in found.pairs) and found.first_bad is None:
        print(f"error: {args.b}: {made.lead}", file=sys.stderr)
        return 2
    return 1 if found.first_bad else 0


def _devices(calls: Sequence[object]) -> str:
    names = dict.fromkeys(str(getattr(call, "device", "")) for call in calls)
    return ", ".join(names)
