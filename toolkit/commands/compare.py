"""Compare every node of a model on engine b with engine a, the reference.

Accumulated errors compare the tensors that both engines compute from the inputs of the model. Isolated errors run each
node of b on the values of a, which separates the error of the node from the error of its inputs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
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
from toolkit.model_arguments import DATA, RANDOM, add_model_flags, given_calls, is_dump, opened, positive
from toolkit.output import add_output_flags, publish

BASELINE = "onnx"
"""Target of the accuracy baseline, which computes in float32."""

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
    calls, origin = given_calls(args, path, golden, root)
    inputs = calls[0]
    with ExitStack() as stack:
        reference = args.a_model or (path if args.a in dumps else float32_reference(path, args, stack))
        a = stack.enter_context(dumps.get(args.a) or opened(args, reference, args.a, args.a_dtype, inputs))
        b = stack.enter_context(dumps.get(args.b) or opened(args, path, args.b, args.b_dtype, inputs))
        del held
        found = compare_calls(a, b, calls, isolated=args.isolated, limit=args.threshold, memory=args.memory * 2**20)
        for dump in dumps.values():
            found.rows[:0] = input_rows(dump, inputs)
            found.notes += input_notes(dump, inputs)
        facts = engine_facts(a, b, origin)
        if reference != path:
            facts["reference (a)"] += f" of {reference_text(reference, path)}"
        made = report(found, "teco compare", path.name, facts)
    drawn = ["inputs are random; pass real ones with --data"] if origin.startswith(RANDOM) else []
    drawn += [f"inputs: {origin}"] if "cannot be used" in origin else []
    shown = replace(made, notes=[*made.notes, *drawn])  # in the files this is a fact
    publish(made, args, shown)
    if found.code == 2:
        print(f"error: {path}: {lead(found)}; compare targets that return the same tensors", file=sys.stderr)
    return found.code


def float32_reference(path: Path, args: argparse.Namespace, stack: ExitStack) -> Path:
    """Return the file of the reference: for a float16 MODEL its float32 file, as in the accuracy gate, else MODEL.

    A float16 file run by the baseline computes in float16 too, which hides the error of that precision. Without a
    float32 file beside it (the same name without ``_float16``), the reference is the file itself with float32
    computation, written to a temporary folder until ``stack`` is closed.
    """
    from toolkit.fix.wide import float32_file, has_float16

    if args.a != BASELINE or args.a_dtype not in (None, "float32") or not has_float16(source(path).model):
        return path
    twin = path.with_name(path.name.replace("_float16", ""))
    if twin != path and twin.is_file():
        return twin
    return float32_file(path, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="teco-compare-"))))


def reference_text(reference: Path, path: Path) -> str:
    """Return a description of another file of the reference than the model's."""
    return f"{path.name} with float32 computation" if reference.name == path.name else str(reference)


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
    add(
        "--a_model",
        type=Path,
        metavar="FILE",
        help="another ONNX file for a (default: of a float16 MODEL its float32 file)",
    )
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
