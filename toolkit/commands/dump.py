"""Store the tensors inside a model, as .npy files or one HDF5 file, or compare two dumps.

full     dump every node, or every N-th (--every)
once     dump one output, selected by the name of the node or tensor (--name)
range    dump from one node to another, by index or name (--from, --to)
compare  compare two dumps, for example of one model on two machines
recover  copy the readable part of an incomplete dump

A dump can be used as inputs ('--data DUMP') and as golden values ('teco compare MODEL --a DUMP').
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine import ConfigError
from model_config.cases.config import ROOT
from tecoinfer_modelzoo.formatting import plural
from tecoinfer_modelzoo.text import did_you_mean
from toolkit.arguments import Parser
from toolkit.dump.entries import Entry
from toolkit.graph.inputs import model_file
from toolkit.graph.nodes import MEMORY, Node
from toolkit.graph.weights import source
from toolkit.model_arguments import add_model_flags, given_inputs, opened, positive
from toolkit.output import Column, ToolReport, add_output_flags, publish

KINDS = ("full", "once", "range", "compare", "recover")

COLUMNS = (
    Column("index", "index", True),
    Column("op", "operator"),
    Column("sequence", "sequence", True),
    Column("name", "node"),
    Column("slot", "slot"),
    Column("position", "position", True, brief=False),
    *(Column(name, name) for name in ("tensor", "dtype", "shape")),
    Column("key", "where"),
)


def main(argv: Sequence[str], root: Path = ROOT) -> int:
    """Dump, or compare two dumps; return 1 if two dumps differ."""
    kind = argv[0] if argv else "--help"
    if kind in ("-h", "--help", "--version"):
        _parser("|".join(KINDS)).parse_args([kind])
    if kind not in KINDS:
        raise ConfigError(f"unknown kind of dump {kind!r};{did_you_mean(kind, KINDS)} kinds: {', '.join(KINDS)}")
    others = {"compare": _compare, "recover": _recover}
    return others[kind](argv[1:]) if kind in others else _dump(kind, argv[1:], root)


def _parser(kind: str) -> Parser:
    return Parser(f"teco dump {kind}", __doc__)


def _dump(kind: str, argv: Sequence[str], root: Path) -> int:
    from toolkit.dump.write import write_dump

    args = _dump_arguments(kind, argv)
    path = model_file(args.model, root)
    held = source(path)  # loaded once, for the inputs and the engine
    inputs, origin = given_inputs(args, path, root=root)
    with opened(args, path, args.target, args.dtype, inputs) as model:
        del held
        nodes = _chosen(kind, args, model.nodes)
        done = write_dump(model, inputs, nodes, args.out, with_inputs=args.inputs, memory=args.memory * 2**20)
        note = [model.note] if model.note else []
    if done.missing:
        note.append(f"{len(done.missing)} outputs do not exist on {model.target}, such as {done.missing[0]}")
    rows = _rows(done.entries)
    facts = {"target": f"{model.target} {model.dtype}", "inputs": origin, "out": str(args.out)}
    lead = f"{plural(len(nodes), 'node')}, {_tensors(done.entries)} in {args.out}"
    made = ToolReport(f"teco dump {kind}", path.name, lead, COLUMNS, rows, frozenset(), facts, note, (), done.about)
    return _show(made, args, 0, limit=None if kind == "once" else 40)


def _tensors(entries: Sequence[Entry]) -> str:
    return plural(len({entry.tensor for entry in entries}), "tensor")


def _rows(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    return [{column.key: getattr(entry, column.key) for column in COLUMNS} for entry in entries]


def _dump_arguments(kind: str, argv: Sequence[str]) -> argparse.Namespace:
    parser = _parser(kind)
    add_model_flags(parser)
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="PATH", help="output: an .h5 file, or a folder for .npy files")
    add("--target", default="onnx", metavar="TARGET", help="target that runs the model (default: onnx)")
    add("--dtype", metavar="DTYPE", help="precision (default: the target's own)")
    add("--pass_path", metavar="FILE", help="pass file, for targets that use one")
    memory = f"memory for the tensors of one group of nodes (default: {MEMORY // 2**20})"
    add("--memory", type=positive, default=MEMORY // 2**20, metavar="MIB", help=memory)
    add("--no_inputs", dest="inputs", action="store_false", help="store only the outputs of the nodes")
    if kind == "full":
        add("--every", type=positive, default=1, metavar="N", help="dump every N-th node (default: 1)")
    if kind == "once":
        add("--name", required=True, metavar="NAME", help="name of a node, or of one of its output tensors")
    if kind == "range":
        add("--from", dest="first", default="", metavar="NODE", help="first node, by index or name (default: first)")
        add("--to", dest="last", default="", metavar="NODE", help="last node, by index or name (default: last)")
    add_output_flags(parser)
    return parser.parse_args(argv)


def _chosen(kind: str, args: argparse.Namespace, nodes: Sequence[Node]) -> list[Node]:
    from toolkit.dump.select import between, every, once

    if kind == "once":
        return once(nodes, args.name)
    return every(nodes, args.every) if kind == "full" else between(nodes, args.first, args.last)


def _compare(argv: Sequence[str]) -> int:
    from toolkit.compare.report import report
    from toolkit.dump.pair import compare_dumps
    from toolkit.dump.store import open_dump

    parser = _parser("compare")
    parser.add_argument("a", type=Path, metavar="A", help="the reference dump")
    parser.add_argument("b", type=Path, metavar="B", help="the dump to judge")
    limit = "a tenth of the largest diff2 of a good node (default: 1e-2, or 1e-4 if both are float32)"
    parser.add_argument("--threshold", type=float, metavar="DIFF2", help=limit)
    add_output_flags(parser)
    args = parser.parse_args(argv)
    a, b = open_dump(args.a), open_dump(args.b)
    found = compare_dumps(a, b, args.threshold)
    facts = {name: f"{d.path} ({d.about.get('target')} {d.about.get('dtype')})" for name, d in (("a", a), ("b", b))}
    made = report(found, "teco dump compare", str(b.about.get("model")), facts)
    return _show(made, args, found.code)


def _recover(argv: Sequence[str]) -> int:
    from toolkit.dump.recover import recover

    parser = _parser("recover")
    parser.add_argument("dump", type=Path, metavar="DUMP", help="the incomplete dump")
    parser.add_argument("--out", type=Path, required=True, metavar="PATH", help="the new dump: an .h5 file or a folder")
    add_output_flags(parser)
    args = parser.parse_args(argv)
    done = recover(args.dump, args.out)
    lost = [f"{len(done.lost)} arrays are damaged and left out, such as {done.lost[0]}"] if done.lost else []
    lead = f"recovered {_tensors(done.entries)} of {args.dump} to {args.out}"
    facts = {"dump": str(args.dump), "out": str(args.out)}
    title = str(done.about.get("model"))
    made = ToolReport("teco dump recover", title, lead, COLUMNS, _rows(done.entries), frozenset(), facts, lost)
    return _show(made, args, 0, limit=40)


def _show(made: ToolReport, args: argparse.Namespace, code: int, limit: int | None = None) -> int:
    publish(made, args, limit=limit)
    return code
