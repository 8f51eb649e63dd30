"""List the operators, dtypes, attributes and shapes of a model, and their support on a target.

MODEL is an ONNX file, a model of the zoo, or a torch module before its export: `package.module:name` or `file.py:name`,
where the name is a module, its class, or a function that returns one; --dim INPUT=NxN.. gives the shape of each
argument of forward. With --training, list the PyTorch operators of a training (`teco ops --training --help`).
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
from toolkit.model_arguments import add_size_flags, positive, split_flags
from toolkit.ops.judge import Judgement, judge_file, summary
from toolkit.ops.table import LACKING, Table, load_table
from toolkit.ops.torch_source import is_torch_source, judge_torch
from toolkit.ops.trial import trial_of
from toolkit.output import Column, ToolReport, add_output_flags, print_written, publish
from utils.shapes import parse_dims

TYPES = "float32, float16, bfloat16, float64, int64, int32, int16, int8, uint8, bool"

EPILOG = """\
stated: documented as supported; simulated: the simulated card runs it, the real card was not tested;
tried: the engine of the target ran the operator alone; unknown: neither in the table nor tried
The table of a third party is <target>.ops.yaml in the folder of its engine's module, or --table FILE
exit code: 0 all operators are supported, 1 an operator is missing or runs on the host, 2 the model cannot be read
"""

COLUMNS = (
    Column("op", "operator"),
    Column("count", "nodes", True),
    *(Column(name, name) for name in ("support", "reads", "writes")),
    Column("first", "first node"),
    Column("fix", "what to do"),
    Column("source", "known from", brief=False),
    Column("shapes", "shapes", brief=False),
    Column("attributes", "attributes", brief=False),
    Column("version", "opset", True, brief=False),
)


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Print the operators and their support; return 1 if an operator is missing or runs on the host."""
    if any(word.partition("=")[0] == "--training" for word in split_flags(argv)[0]):
        return ops_training.main(argv)
    parser = Parser("teco ops", __doc__, EPILOG)
    add = parser.add_argument
    several: dict[str, Any] = {"action": "append", "default": []}
    add("model", metavar="MODEL", help="an ONNX file, a model of the zoo, or a torch module as module:name")
    add("--training", metavar="WHAT", help="list the operators of a training instead of a model")
    add("--target", default="sdaa", metavar="TARGET", help="target of the support table (default: sdaa)")
    add("--table", type=Path, metavar="FILE", help="another support table, such as that of the vendor")
    add("--batch_size", type=positive, default=1, metavar="N", help="batch size of a dynamic batch axis (default: 1)")
    add_size_flags(parser)
    add("--input_dtype", type=_dtype, **several, metavar="INPUT=TYPE", help=f"input dtype of a torch module: {TYPES}")
    add("--rewrites", type=Path, metavar="DIR", help="write every suggested rewrite as an ONNX file")
    add_output_flags(parser)
    args = parser.parse_args(argv)
    found, table, notes, data = _judged(args, root)
    made = report(args.model, found, table, notes, data)
    publish(made, args)
    print_written(write_rewrites(found, args.rewrites) if args.rewrites else [])
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
            raise ConfigError("sizes by name are for ONNX files; for a torch module use --dim INPUT=NxN..")
        found, more, data = judge_torch(args.model, table, trial, dict(args.shape), dict(args.input_dtype))
        return found, table, notes + more, data
    if args.input_dtype:
        raise ConfigError("--input_dtype is for torch modules; an ONNX file has the dtypes of its inputs")
    if args.model.endswith(".py"):
        raise ConfigError(f"{args.model} is a Python file; name a torch module in it: {args.model}:NAME")
    dims = parse_dims(args.dim)
    found, more = judge_file(model_file(args.model, root), table, args.batch_size, dict(args.shape), trial, dims)
    return found, table, notes + more, {}


def _dtype(text: str) -> tuple[str, str]:
    """Parse ``name=int64``."""
    name, _, kind = text.rpartition("=")
    if not name or kind not in TYPES.split(", "):
        raise argparse.ArgumentTypeError(f"{text!r} is not an input dtype; write INPUT=int64 ({TYPES})")
    return name, kind


def report(
    model: str, found: Sequence[Judgement], table: Table, notes: Sequence[str] = (), data: dict[str, Any] | None = None
) -> ToolReport:
    """Return the report of the command."""
    bad = frozenset(i for i, one in enumerate(found) if one.level in LACKING)
    facts = {"target": table.target, "operators": str(len({one.need.op for one in found}))}
    name = Path(model).name if os.path.isfile(model) else model
    rows, notes = [row(one) for one in found], [*notes, *table.notes]
    return ToolReport("teco ops", name, summary(found, table.target), COLUMNS, rows, bad, facts, notes, data=data or {})


def row(one: Judgement) -> dict[str, Any]:
    """Return an operator as a row of the table."""
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
    """Write every suggested rewrite; return the files; raise DataError if the folder cannot be written."""
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
