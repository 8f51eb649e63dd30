"""Compare every node of a model on two engines: where does the judged one leave the baseline?

Every figure has engine a as its reference. *Accumulated* figures compare what both engines compute from the model's
inputs; *isolated* ones run each node of b on a's values, so that a node's own error stands apart from what it inherits.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from model_config.config import ROOT
from toolkit.arguments import Parser
from toolkit.compare.nodes import compare_nodes
from toolkit.compare.report import report
from toolkit.dump.golden import Golden
from toolkit.inputs import model_file
from toolkit.intermediates import MEMORY, Traced, traced
from toolkit.model_arguments import add_model_flags, given_inputs, is_dump, positive
from toolkit.output import add_output_flags, print_report, write_files

EPILOG = """\
diff1 = sum|a-b| / sum|b|, diff2 = sqrt(sum (a-b)^2 / sum b^2), diff3 = |a-b| / |b| where |b| is above 1e-6 (float16:
1e-4) and |a-b| elsewhere, where b is the reference; all accumulated in float64.
exit code: 0 no bad node, 1 there is one, 2 the comparison could not be made
"""


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Compare and print; exit code 1 where a node is bad."""
    args = parse(argv)
    path = model_file(args.model, root)
    with _opened(args, path, args.a, args.a_dtype) as a, _opened(args, path, args.b, args.b_dtype) as b:
        inputs, source = given_inputs(args, path, a)
        found = compare_nodes(a, b, inputs, isolated=args.isolated, limit=args.threshold, memory=args.memory * 2**20)
        drawn = [] if args.data or isinstance(a, Golden) else ["inputs are random; --data takes real ones"]
        made = report(found, "teco compare", path.name, engine_facts(a, b, source))
    print_report(replace(made, notes=[*made.notes, *drawn]))  # the files have it among their facts
    for file in write_files(made, args):
        print(f"written: {file}")
    return 1 if found.first_bad else 0


def _opened(args: argparse.Namespace, path: Path, target: str, dtype: str | None) -> Traced:
    """Open the model on a target, or take a dump in its place."""
    if is_dump(Path(target)):
        return Golden(path, Path(target))
    shapes = dict(args.shape)
    return traced(path, target, dtype=dtype, pass_path=args.pass_path, batch=args.batch_size, shapes=shapes)


def engine_facts(a: Traced, b: Traced, source: str) -> dict[str, str]:
    """Return what was compared with what, in words."""
    simulated = ", simulated card" if b.target == "sdaa" and not b.note else ""
    return {
        "reference (a)": f"{a.target} {a.dtype}",
        "judged (b)": f"{b.target} {b.dtype}{simulated}",
        "inputs": source,
        "nodes": str(len(a.nodes)),
    }


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser("teco compare", __doc__, EPILOG)
    add_model_flags(parser)
    parser.add_argument(
        "--a", default="onnx", metavar="TARGET", help="the baseline (default: onnx), or a dump with its values"
    )
    parser.add_argument("--b", default="sdaa", metavar="TARGET", help="the engine that is judged (default: sdaa)")
    parser.add_argument("--a_dtype", metavar="DTYPE", help="precision of a; default: its own")
    parser.add_argument("--b_dtype", metavar="DTYPE", help="precision of b; default: its own")
    parser.add_argument(
        "--pass_path", type=Path, metavar="FILE", help="optimisation passes, used where the engine does"
    )
    parser.add_argument(
        "--threshold", type=float, metavar="DIFF2", help="a node beyond it is bad (1e-2; float32: 1e-4)"
    )
    parser.add_argument("--no_isolated", dest="isolated", action="store_false", help="do not run the nodes alone")
    parser.add_argument("--memory", type=positive, default=MEMORY // 2**20, metavar="MIB", help="held at once (2048)")
    add_output_flags(parser)
    return parser.parse_args(argv)
