"""Cut one node out of a model as a test case, to send to whoever owns the operator: pytest file, ONNX file, data."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from model_config.cases.config import ROOT
from toolkit.arguments import Parser
from toolkit.graph.inputs import model_file
from toolkit.graph.nodes import load_named
from toolkit.graph.trace import traced
from toolkit.model_arguments import add_model_flags, given_inputs
from toolkit.optest import TARGETS, NodeTest, Outcome, check_node, find_node, run_case, runs_of, write_case
from toolkit.optest.aten import SUFFIXES, run_aten_case, write_aten_case
from toolkit.output import Column, ToolReport, add_output_flags, publish

EPILOG = "exit code: 0 every engine passes, 1 one fails the case, 2 there is no case"

COLUMNS = (
    Column("target", "target"),
    Column("dtype", "dtype"),
    Column("result", "result"),
    Column("error", "largest error", numeric=True),
    Column("tolerance", "tolerated", numeric=True),
    Column("reason", "reason"),
)


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Write the case, run it on the engines, and say how it went; exit code 1 where an engine fails it."""
    parser = Parser("teco optest", __doc__, EPILOG)
    add_model_flags(parser)
    parser.add_argument(
        "node", metavar="NODE", help="a node's name, a tensor it writes, or its position; of a dump (.h5) a call"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to write (default: optest_<node>)")
    parser.add_argument(
        "--target",
        action="append",
        metavar="TARGET",
        help=f"whose engine it is to pass on; repeatable (default: {' and '.join(TARGETS)})",
    )
    add_output_flags(parser)
    args = parser.parse_args(argv)
    if Path(args.model).suffix.lower() in SUFFIXES:
        return _call(Path(args.model), args)
    path = model_file(args.model, root)
    case, data = _write(path, args)
    report = describe(path, case, run_case(case), data)
    for file in publish(report, args):
        print(f"written: {file}")
    return 1 if report.bad else 0


def _call(path: Path, args: argparse.Namespace) -> int:
    """Write and run the case of a call out of a training's dump."""
    case = write_aten_case(path, args.node, args.out)
    passed, why = run_aten_case(case)
    where = " and ".join(case.devices)
    state = f"passes on {where}" if passed else "fails"
    row = {"target": ", ".join(case.devices), "result": "pass" if passed else "FAIL", "reason": "" if passed else why}
    lead = f"{case.op}: {state}; run: pytest {case.test}"
    notes = ["the values expected are those that the training had"]
    bad = frozenset(() if passed else (0,))
    facts = {"operator": case.op, "folder": str(case.folder)}
    for file in publish(ToolReport("teco optest", path.name, lead, COLUMNS, [row], bad, facts, notes), args):
        print(f"written: {file}")
    return 0 if passed else 1


def _write(path: Path, args: argparse.Namespace) -> tuple[NodeTest, str]:
    """Write the case; return it and where the inputs are from."""
    shapes, targets = dict(args.shape), args.target or TARGETS
    runs_of(targets)  # before anything runs
    model = load_named(path)
    node = find_node(model, args.node, path)
    with traced(path, "onnx", dtype="float32", batch=args.batch_size, shapes=shapes, only=()) as run:
        check_node(node, run)
        inputs, data = given_inputs(args, path, run)
    folder = args.out or Path(f"optest_{re.sub(r'[^A-Za-z0-9]+', '_', node.name).strip('_')}")
    return write_case(path, args.node, folder, inputs, batch=args.batch_size, shapes=shapes, targets=targets), data


def describe(path: Path, case: NodeTest, outcomes: Sequence[Outcome], data: str) -> ToolReport:
    """Return what the command shows."""
    rows = [
        {
            "target": one.target,
            "dtype": one.dtype,
            "result": "pass" if one.passed else "FAIL",
            "error": one.error,
            "tolerance": one.tolerance,
            "reason": one.reason,
        }
        for one in outcomes
    ]
    bad = frozenset(i for i, one in enumerate(outcomes) if not one.passed)
    failed = ", ".join(f"{outcomes[i].target} {outcomes[i].dtype}" for i in sorted(bad))
    lead = (
        f"{case.op} node {case.node}: {'fails on ' + failed if bad else 'passes everywhere'}; run: pytest {case.test}"
    )
    notes = [f"inputs: {data}; the values expected are the baseline's (ONNX Runtime, float32)"]
    facts = {"node": case.node, "operator": case.op, "folder": str(case.folder)}
    return ToolReport("teco optest", path.name, lead, COLUMNS, rows, bad, facts, notes)
