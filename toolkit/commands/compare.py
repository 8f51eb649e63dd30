"""Compare every node of a model on engine b with engine a, the reference.

Accumulated errors compare the tensors that both engines compute from the inputs of the model. Isolated errors run each
node of b on the values of a, which separates the error of the node from the error of its inputs.
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
from toolkit.compare.nodes import compare_calls
from toolkit.compare.report import lead, report
from toolkit.dump.golden import Golden
from toolkit.dump.other_inputs import input_notes, input_rows
from toolkit.graph.inputs import model_file
from toolkit.graph.nodes import MEMORY
from toolkit.graph.trace import Traced
from toolkit.graph.weights import source
from toolkit.model_arguments import DATA, add_model_flags, given_calls, is_dump, opened, positive
from toolkit.output import add_output_flags, publish

EPILOG = """\
diff1 = sum|a-b| / sum|b|, diff2 = sqrt(sum (a-b)^2 / sum b^2), diff3 = |a-b| / |b| where |b| is above 1e-6 (float16:
1e-4) and |a-b| elsewhere, where b is the reference; all accumulated in float64.
exit code: 0 no bad node, 1 at least one bad node, 2 the comparison failed
"""


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Compare and print; return 1 if a node is bad, 2 if no tensor could be compared."""
    args = parse(argv)
    path = model_file(args.model, root)
    held = source(path)  # loaded once, for the inputs and both engines
    # A name of a target is never a dump, even if such a folder exists.
    dumps = {name: Golden(path, Path(name)) for name in (args.a, args.b) if is_dump(Path(name)) and not is_target(name)}
    if args.a_model is not None and args.a in dumps:
        raise ConfigError(f"--a {args.a} is a dump; --a_model {args.a_model} cannot be combined with it")
    golden = dumps.get(args.a) or dumps.get(args.b)
    calls, origin = given_calls(args, path, golden)
    inputs = calls[0]
    with (
        dumps.get(args.a) or opened(args, args.a_model or path, args.a, args.a_dtype, inputs) as a,
        dumps.get(args.b) or opened(args, path, args.b, args.b_dtype, inputs) as b,
    ):
        del held
        found = compare_calls(a, b, calls, isolated=args.isolated, limit=args.threshold, memory=args.memory * 2**20)
        for dump in dumps.values():
            found.rows[:0] = input_rows(dump, inputs)
            found.notes += input_notes(dump, inputs)
        made = report(found, "teco compare", path.name, engine_facts(a, b, origin))
    drawn = [] if args.data or golden else ["inputs are random; pass real ones with --data"]
    shown = replace(made, notes=[*made.notes, *drawn])  # in the files this is a fact
    publish(made, args, shown)
    if found.code == 2:
        print(f"error: {path}: {lead(found)}; compare targets that return the same tensors", file=sys.stderr)
    return found.code


def is_target(name: str) -> bool:
    """Return whether a name is that of an available target."""
    from engine import available_targets

    return name in available_targets()


def engine_facts(a: Traced, b: Traced, source: str) -> dict[str, str]:
    """Return the facts of the report: both engines, the inputs and the number of nodes."""
    simulated = ", simulated card" if b.target == "sdaa" and not b.note else ""
    return {
        "reference (a)": f"{a.target} {a.dtype}",
        "judged (b)": f"{b.target} {b.dtype}{simulated}",
        "inputs": source,
        "nodes": str(len(a.nodes)),
    }


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = Parser("teco compare", __doc__, EPILOG)
    add_model_flags(parser, f"{DATA}; several .npz are one call each, compared as one")
    add = parser.add_argument
    add("--a", default="onnx", metavar="TARGET", help="the reference: a target or a dump (default: onnx)")
    add("--a_model", type=Path, metavar="FILE", help="another ONNX file for a, such as the export before a change")
    add("--b", default="sdaa", metavar="TARGET", help="the target or dump to judge (default: sdaa)")
    add("--a_dtype", metavar="DTYPE", help="precision of a (default: the target's own)")
    add("--b_dtype", metavar="DTYPE", help="precision of b (default: the target's own)")
    add("--pass_path", metavar="FILE", help="pass file, for targets that use one")
    limit = "largest diff2 of a good node (default: 1e-2, or 1e-4 if both are float32)"
    add("--threshold", type=float, metavar="DIFF2", help=limit)
    add("--no_isolated", dest="isolated", action="store_false", help="do not compute isolated errors")
    memory = f"memory for the tensors of one group of nodes (default: {MEMORY // 2**20})"
    add("--memory", type=positive, default=MEMORY // 2**20, metavar="MIB", help=memory)
    add_output_flags(parser)
    return parser.parse_args(argv)
