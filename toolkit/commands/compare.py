"""Compare every node of a model on two engines: where does the judged one leave the baseline?

Every figure has engine a as its reference. *Accumulated* figures compare what both engines compute from the model's
inputs; *isolated* ones run each node of b on a's values, so that a node's own error stands apart from what it inherits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from engine import ConfigError
from model_config.cases.config import ROOT
from toolkit.arguments import Parser
from toolkit.compare.nodes import compare_nodes
from toolkit.compare.report import lead, report
from toolkit.dump.golden import Golden
from toolkit.dump.other_inputs import input_notes, input_rows
from toolkit.graph.grouping import MEMORY
from toolkit.graph.inputs import model_file
from toolkit.graph.trace import Traced
from toolkit.graph.weights import source
from toolkit.model_arguments import add_model_flags, given_inputs, is_dump, opened, positive
from toolkit.output import add_output_flags, publish

EPILOG = """\
diff1 = sum|a-b| / sum|b|, diff2 = sqrt(sum (a-b)^2 / sum b^2), diff3 = |a-b| / |b| where |b| is above 1e-6 (float16:
1e-4) and |a-b| elsewhere, where b is the reference; all accumulated in float64.
exit code: 0 no bad node, 1 there is one, 2 the comparison could not be made
"""


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Compare and print; exit code 1 where a node is bad, 2 where there was nothing to compare."""
    args = parse(argv)
    path = model_file(args.model, root)
    held = source(path)  # read once, for the inputs and both engines
    dumps = _dumps(path, args.a, args.b)
    if args.a_model is not None and args.a in dumps:
        raise ConfigError(f"--a {args.a} is a dump, which has its values; leave out --a_model {args.a_model}")
    golden = dumps.get(args.a) or dumps.get(args.b)
    inputs, origin = given_inputs(args, path, golden)
    with (
        dumps.get(args.a) or opened(args, args.a_model or path, args.a, args.a_dtype, inputs) as a,
        dumps.get(args.b) or opened(args, path, args.b, args.b_dtype, inputs) as b,
    ):
        del held
        found = compare_nodes(a, b, inputs, isolated=args.isolated, limit=args.threshold, memory=args.memory * 2**20)
        for dump in dumps.values():
            found.rows[:0] = input_rows(dump, inputs)
            found.notes += input_notes(dump, inputs)
        made = report(found, "teco compare", path.name, engine_facts(a, b, origin))
    drawn = [] if args.data or golden else ["inputs are random; --data takes real ones"]
    shown = replace(made, notes=[*made.notes, *drawn])  # the files have it among their facts
    for file in publish(made, args, shown):
        print(f"written: {file}")
    if found.code == 2:
        print(f"error: {path}: {lead(found)}; compare targets that show the same tensors", file=sys.stderr)
    return found.code


def _dumps(path: Path, *names: str) -> dict[str, Golden]:
    """Return the names that are dumps', and the dumps; a folder called ``onnx``, as an engine is, is not meant."""
    return {name: Golden(path, Path(name)) for name in names if is_dump(Path(name)) and not is_target(name)}


def is_target(name: str) -> bool:
    """Say whether an engine goes by a name."""
    from engine import available_targets

    return name in available_targets()


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
    parser.add_argument(
        "--a_model", type=Path, metavar="FILE", help="another file for a, such as the export before a change"
    )
    parser.add_argument("--b", default="sdaa", metavar="TARGET", help="the engine that is judged (default: sdaa)")
    parser.add_argument("--a_dtype", metavar="DTYPE", help="precision of a; default: its own")
    parser.add_argument("--b_dtype", metavar="DTYPE", help="precision of b; default: its own")
    parser.add_argument("--pass_path", metavar="FILE", help="optimisation passes, used where the engine does")
    parser.add_argument(
        "--threshold", type=float, metavar="DIFF2", help="a node beyond it is bad (1e-2; 1e-4 where both are float32)"
    )
    parser.add_argument("--no_isolated", dest="isolated", action="store_false", help="do not run the nodes alone")
    parser.add_argument("--memory", type=positive, default=MEMORY // 2**20, metavar="MIB", help="held at once (2048)")
    add_output_flags(parser)
    return parser.parse_args(argv)
