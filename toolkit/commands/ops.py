"""Say which operators, dtypes, attributes and shapes a model needs, and hold them against the target's support table.

MODEL is an ONNX file, a model of the zoo, or a torch module before its export: `package.module:name` or `file.py:name`,
where the name is a module, its class, or a function that returns one. With --training: the operators of PyTorch that
a training needs (`teco train ops WHAT`).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine import ConfigError, DataError, TargetError
from model_config.cases.config import ROOT
from toolkit.arguments import Parser
from toolkit.commands import ops_training
from toolkit.graph.inputs import model_file
from toolkit.model_arguments import positive, shape, split_flags
from toolkit.ops.judge import Judgement, judge_file, summary
from toolkit.ops.table import LACKING, Table, load_table
from toolkit.ops.torch_source import is_torch_source, judge_torch
from toolkit.ops.trial import trial_of
from toolkit.output import Column, ToolReport, add_output_flags, publish
from utils.shapes import parse_dims

TYPES = "float32, float16, bfloat16, float64, int64, int32, int16, int8, uint8, bool"

EPILOG = """\
stated: a document says so; simulated: the simulated card runs it, of the real one nothing is known;
tried: the target's engine took it by itself; unknown: neither in the table nor tried
A third party's table is the file <target>.ops.yaml beside the module of its engine, or --table FILE
exit code: 0 the target has everything, 1 something is missing or belongs on the host, 2 the model could not be read
"""

COLUMNS = (
    Column("op", "operator"),
    Column("count", "nodes", True),
    Column("support", "support"),
    Column("reads", "reads"),
    Column("writes", "writes"),
    Column("first", "first node"),
    Column("fix", "what to do"),
    Column("source", "known from", brief=False),
    Column("shapes", "shapes", brief=False),
    Column("attributes", "attributes", brief=False),
    Column("version", "opset", True, brief=False),
)


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Print the operators and what is missing; exit code 1 where something is."""
    if any(word.partition("=")[0] == "--training" for word in split_flags(argv)[0]):
        return ops_training.main(argv)
    parser = Parser("teco ops", __doc__, EPILOG)
    parser.add_argument("model", metavar="MODEL", help="ONNX file, model of the zoo, or module:name of a torch module")
    parser.add_argument("--training", metavar="WHAT", help="a training's operators instead of a model's")
    parser.add_argument("--target", default="sdaa", help="whose table (default: sdaa)")
    parser.add_argument("--table", type=Path, metavar="FILE", help="another support table, such as the vendor's own")
    parser.add_argument("--batch_size", type=positive, default=1, help="where the batch is dynamic (default: 1)")
    parser.add_argument(
        "--shape",
        type=shape,
        action="append",
        default=[],
        metavar="INPUT=N,N,..",
        help="a torch module needs one per argument of forward",
    )
    parser.add_argument(
        "--dim",
        action="append",
        nargs="+",
        default=[],
        metavar="NAME=N",
        help="sizes of an ONNX file by name: nodes=128",
    )
    parser.add_argument(
        "--input_dtype",
        type=_dtype,
        action="append",
        default=[],
        metavar="INPUT=TYPE",
        help=f"of a torch module: {TYPES}",
    )
    parser.add_argument("--rewrites", type=Path, metavar="DIR", help="write each rewrite offered as an ONNX file")
    add_output_flags(parser)
    args = parser.parse_args(argv)
    found, table, notes, data = _judged(args, root)
    made = report(args.model, found, table, notes, data)
    written = publish(made, args) + (write_rewrites(found, args.rewrites) if args.rewrites else [])
    for file in written:
        print(f"written: {file}")
    return 1 if made.bad else 0


def _judged(args: argparse.Namespace, root: Path) -> tuple[list[Judgement], Table, list[str], dict[str, Any]]:
    table = load_table(args.target, args.table)
    notes: list[str] = []
    trial = None
    try:
        trial = trial_of(args.target)
    except TargetError as error:
        if args.table is None:
            raise
        notes.append(f"{error}; judged by the table alone")
    if is_torch_source(args.model):
        if args.dim:
            raise ConfigError("--dim is for ONNX files; a torch module takes --shape INPUT=N,N,..")
        found, more, data = judge_torch(args.model, table, trial, dict(args.shape), dict(args.input_dtype))
        return found, table, notes + more, data
    if args.input_dtype:
        raise ConfigError("--input_dtype is for torch modules; an ONNX file says what its inputs are")
    if args.model.endswith(".py"):
        raise ConfigError(f"{args.model} is Python: name the torch module in it, as {args.model}:NAME")
    dims = parse_dims([word for words in args.dim for word in words])
    found, more = judge_file(model_file(args.model, root), table, args.batch_size, dict(args.shape), trial, dims)
    return found, table, notes + more, {}


def _dtype(text: str) -> tuple[str, str]:
    """Read ``name=int64``."""
    name, _, kind = text.rpartition("=")
    if not name or kind not in TYPES.split(", "):
        raise argparse.ArgumentTypeError(f"{text!r} is not an input's type; write INPUT=int64 ({TYPES})")
    return name, kind


def report(
    model: str, found: Sequence[Judgement], table: Table, notes: Sequence[str] = (), data: dict[str, Any] | None = None
) -> ToolReport:
    """Return what the command shows."""
    bad = frozenset(i for i, one in enumerate(found) if one.level in LACKING)
    lead = summary(found, table.target)
    said = [*notes, *table.notes]
    facts = {"target": table.target, "operators": str(len({one.need.op for one in found}))}
    name = Path(model).name if os.path.isfile(model) else model
    return ToolReport("teco ops", name, lead, COLUMNS, [row(one) for one in found], bad, facts, said, data=data or {})


def row(one: Judgement) -> dict[str, Any]:
    """Return a finding as the table shows it."""
    need = one.need
    return {
        "op": need.op,
        "version": need.version or None,
        "count": len(need.nodes),
        "support": one.level,
        "reads": " ".join(name or "-" for name in need.reads),
        "writes": " ".join(name or "-" for name in need.writes),
        "shapes": "; ".join(need.shapes),
        "attributes": " ".join(f"{name}={value}" for name, value in sorted(need.attributes.items())),
        "first": need.nodes[0],
        "fix": one.fix,
        "source": one.source,
    }


def write_rewrites(found: Sequence[Judgement], folder: Path) -> list[Path]:
    """Write every rewrite offered; return the files.

    Raises:
        DataError: the folder cannot be written.
    """
    files = []
    for i, one in enumerate(found):
        if one.rewrite is None:
            continue
        file = folder / f"{one.need.op.replace('::', '_')}_{i}.onnx"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file.write_bytes(one.rewrite.model.SerializeToString())
        except OSError as error:
            raise DataError(f"{file} cannot be written: {error.strerror}; choose another --rewrites") from error
        files.append(file)
    return files
