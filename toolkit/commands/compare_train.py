"""Compare two training dumps operator by operator; report the first bad operator with its module and source line.

A is the reference, B the run to judge: dumps of torch_sdaa.utils.dumper, for example of the CPU and the card, of two
runs, or of float32 and mixed precision. Calls are matched by step, phase, module and operator. Each operator of B whose
values differ is rerun on the CPU from its dumped inputs, which separates its own error from that of its inputs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine import ConfigError
from engine.training import open_training_dump
from toolkit.arguments import Parser
from toolkit.commands.compare import EPILOG as COMPARE_EPILOG
from toolkit.model_arguments import between
from toolkit.output import add_output_flags, publish
from toolkit.training.dump.isolated import Repeater
from toolkit.training.dump.judge import judged
from toolkit.training.dump.report import report

EPILOG = COMPARE_EPILOG.replace("node", "operator")

_ROWS = 20
"""Largest number of rows on the terminal."""


def main(argv: Sequence[str]) -> int:
    """Compare and print; return 1 if an operator is bad."""
    parser = Parser("teco train compare", __doc__, EPILOG)
    parser.add_argument("a", metavar="A.h5", type=Path, help="dump of the reference run")
    parser.add_argument("b", metavar="B.h5", type=Path, help="dump of the run to judge")
    add_flags(parser)
    return compare(parser.parse_args(argv))


def add_flags(parser: Parser) -> None:
    """Add the flags shared with ``teco msaccucmp compare``."""
    limit = "largest accumulated diff2; a tenth of it for isolated errors (default: 1e-4; float16 1e-2; bfloat16 8e-2)"
    parser.add_argument("--threshold", type=lambda text: between(text, 1), metavar="DIFF2", help=limit)
    parser.add_argument("--exact", action="store_true", help="report every bit that differs, to test determinism")
    parser.add_argument("--no_isolated", dest="isolated", action="store_false", help="do not compute isolated errors")
    add_output_flags(parser)


def compare(args: argparse.Namespace) -> int:
    """Compare ``args.a`` and ``args.b``; return the exit code."""
    if args.exact and args.threshold is not None:
        raise ConfigError("--exact and --threshold exclude each other: --exact reports any difference")
    why = ""
    repeater = None
    if args.isolated:
        try:
            repeater = Repeater()
        except ConfigError as error:
            why = f"{error}: no isolated errors"
    with open_training_dump(args.a) as a, open_training_dump(args.b) as b:
        found = judged(a, b, args.threshold, repeater, args.exact)
        facts = {"reference (a)": f"{args.a}, {_devices(a.calls)}", "judged (b)": f"{args.b}, {_devices(b.calls)}"}
    found.notes += [why] if why else []
    made = report(found, args.b.name, facts)
    bad = sorted(made.bad)[:_ROWS]
    shown = replace(made, rows=[made.rows[k] for k in bad], bad=frozenset(range(len(bad))))
    if len(made.bad) > len(bad):
        shown = replace(shown, notes=[*made.notes, f"{len(made.bad) - len(bad)} more are bad; --html has all"])
    publish(made, args, shown)
    if not any(pair.difference for pair in found.pairs) and found.first_bad is None:
        print(f"error: {args.b}: {made.lead}", file=sys.stderr)
        return 2
    return 1 if found.first_bad else 0


def _devices(calls: Sequence[object]) -> str:
    return ", ".join(dict.fromkeys(str(getattr(call, "device", "")) for call in calls))
