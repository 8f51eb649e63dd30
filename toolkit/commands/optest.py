"""Extract one node of a model as a test case for the developer of the operator: pytest file, ONNX file and data."""

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

EPILOG = "exit code: 0 every engine passes, 1 an engine fails the case, 2 no case was written"

COLUMNS = (
    Column("target", "target"),
    Column("dtype", "dtype"),
    Column("result", "result"),
    Column("error", "largest error", numeric=True),
    Column("tolerance", "tolerated", numeric=True),
    Column("reason", "reason"),
)


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Write the case, run it on the engines and print the results; return 1 if an engine fails the case."""
    parser = Parser("teco optest", __doc__, EPILOG)
    add_model_flags(parser)
    add = parser.add_argument
    add("node", metavar="NODE", help="name, output tensor or index of the node; for a dump (.h5) the name of a call")
    add("--out", type=Path, metavar="DIR", help="output folder (default: optest_<node>)")
    targets = f"target to run the case on; repeatable (default: {' and '.join(TARGETS)})"
    add("--target", action="append", metavar="TARGET", help=targets)
    add_output_flags(parser)
    args = parser.parse_args(argv)
    if Path(args.model).suffix.lower() in SUFFIXES:
        return _call(Path(args.model), args)
    path = model_file(args.model, root)
    case, data = _write(path, args, root)
    report = describe(path, case, run_case(case), data)
    publish(report, args)
    return 1 if report.bad else 0


def _call(path: Path, args: argparse.Namespace) -> int:
    """Write and run the case of a call of a training dump."""
    case = write_aten_case(path, args.node, args.out)
    passed, why = run_aten_case(case)
    where = " and ".join(case.devices)
    state = f"passes on {where}" if passed else "fails"
    row = {"target": ", ".join(case.devices), "result": "pass" if passed else "FAIL", "reason": "" if passed else why}
    lead = f"{case.op}: {state}; run: pytest {case.test}"
    notes = ["the expected values are those of the training run"]
    bad = frozenset(() if passed else (0,))
    facts = {"operator": case.op, "folder": str(case.folder)}
    publish(ToolReport("teco optest", path.name, lead, COLUMNS, [row], bad, facts, notes), args)
    return 0 if passed else 1


def _write(path: Path, args: argparse.Namespace, root: Path) -> tuple[NodeTest, str]:
    """Write the case; return it and the source of the inputs."""
    shapes, targets = dict(args.shape), args.target or TARGETS
    runs_of(targets)  # raises for an unknown target before any work
    model = load_named(path)
    node = find_node(model, args.node, path)
    with traced(path, "onnx", dtype="float32", batch=args.batch_size, shapes=shapes, only=()) as run:
        check_node(node, run)
        inputs, data = given_inputs(args, path, run, root)
    folder = args.out or Path(f"optest_{re.sub(r'[^A-Za-z0-9]+', '_', node.name).strip('_')}")
    return write_case(path, args.node, folder, inputs, batch=args.batch_size, shapes=shapes, targets=targets), data


def describe(path: Path, case: NodeTest, outcomes: Sequence[Outcome], data: str) -> ToolReport:
    """Return the report of the command."""
    rows = [
        {c.key: getattr(one, c.key, None) for c in COLUMNS} | {"result": "pass" if one.passed else "FAIL"}
        for one in outcomes
    ]
    bad = frozenset(i for i, one in enumerate(outcomes) if not one.passed)
    failed = ", ".join(f"{outcomes[i].target} {outcomes[i].dtype}" for i in sorted(bad))
    state = f"fails on {failed}" if bad else "passes everywhere"
    lead = f"{case.op} node {case.node}: {state}; run: pytest {case.test}"
    notes = [f"inputs: {data}; the expected values are those of the baseline (ONNX Runtime, float32)"]
    facts = {"node": case.node, "operator": case.op, "folder": str(case.folder)}
    return ToolReport("teco optest", path.name, lead, COLUMNS, rows, bad, facts, notes)
