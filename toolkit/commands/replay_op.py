"""Rerun one operator of a training dump from its stored inputs, and compare its outputs with the stored ones.

FILE is a dump of torch_sdaa.utils.dumper, or a part of one made with h5copy. OP is a call as listed by
'teco train compare', such as aten.addmm.default/3; without a number it is the operator's first call. Without OP, the
calls are listed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.measures import THRESHOLD, differences
from engine.training import OpCall, TrainingDump, as_numbers, open_training_dump
from tecoinfer_modelzoo.formatting import plural
from toolkit.arguments import Parser
from toolkit.output import Column, ToolReport, add_output_flags, publish
from toolkit.training.dump.isolated import Repeater
from toolkit.training.dump.judge import LIMIT
from toolkit.training.dump.optimizers import ALONE

EPILOG = "exit code: 0 the outputs agree, 1 they differ, 2 the operator cannot be rerun"

COLUMNS = (
    Column("output", "output", True),
    Column("dtype", "dtype"),
    Column("shape", "shape"),
    Column("cosine", "cosine", True, spare=2),
    Column("diff1", "diff1", True, spare=3),
    Column("diff2", "diff2", True),
    Column("diff3_max", "diff3 max", True, spare=1),
    Column("mismatched", "NaN/Inf in one only", True),
    Column("same", "bit for bit"),
)
_CALLS = (
    Column("call", "call"),
    Column("module", "module"),
    Column("phase", "phase", spare=2),
    Column("step", "step", True, spare=3),
    Column("source", "source", spare=1),
)


def main(argv: Sequence[str]) -> int:
    """Rerun a call; return 1 if its outputs differ from the dump."""
    parser = Parser("teco train replay", __doc__, EPILOG)
    parser.add_argument("file", metavar="FILE", type=Path, help="the dump")
    parser.add_argument("op", metavar="OP", nargs="?", help="call to rerun (default: list all calls)")
    device = "device to run on: cpu, sdaa, sdaa:1 (default: cpu)"
    parser.add_argument("--device", default="cpu", metavar="DEVICE", help=device)
    add_output_flags(parser)
    args = parser.parse_args(argv)
    with open_training_dump(args.file) as dump:
        made = _listed(dump) if args.op is None else _repeated(dump, dump.call(args.op), args.device)
    publish(made, args)
    return 1 if made.bad else 0


def _listed(dump: TrainingDump) -> ToolReport:
    rows = [{"call": call.where, **{c.key: getattr(call, c.key) for c in _CALLS[1:]}} for call in dump.calls]
    notes = [] if dump.finished else ["the dump is incomplete; only the calls it contains are listed"]
    lead = plural(len(rows), "call")
    return ToolReport("teco train replay", dump.path.name, lead, _CALLS, rows, notes=notes)


def _refused(call: OpCall, again: str, device: str) -> ToolReport:
    """Return the report of a call that failed in the run."""
    lead = f"{call.where} fails on {device}, as in the run" if again else f"{call.where} runs on {device}"
    row = {"run": call.failed, "again": again or "it returns results"}
    columns = (Column("run", "in the run"), Column("again", f"on {device}"))
    lead += "" if again else f"; in the run it failed: {call.failed}"
    return ToolReport(
        "teco train replay", call.where, lead, columns, [row], frozenset(() if again else (0,)), _facts(call)
    )


def _facts(call: OpCall) -> dict[str, str]:
    facts = {"call": call.where, "module": call.module, "source": call.source, "ran on": call.device}
    return {name: text for name, text in facts.items() if text}


def _repeated(dump: TrainingDump, call: OpCall, device: str) -> ToolReport:
    held = dump.read(call)
    if call.failed:
        return _refused(call, Repeater(device).refusal(held), device)
    again = Repeater(device).outputs(held)
    rows: list[dict[str, Any]] = []
    for k, (one, array, value) in enumerate(zip(call.outputs, held.outputs, again, strict=True)):
        numbers = as_numbers(array, one.dtype)
        coarse = one.dtype if one.dtype in LIMIT else "float32"
        parts = [x.view(x.real.dtype) if x.dtype.kind == "c" and x.ndim else x for x in (numbers, value)]
        found = differences([parts[0]], parts[1], THRESHOLD["float32" if coarse == "float32" else "float16"])[0]
        row = {"output": k, "dtype": one.dtype, "shape": list(one.shape), "limit": ALONE * LIMIT[coarse]}
        row |= {name: getattr(found, name) for name in type(found).__slots__}
        rows.append(row | {"same": "yes" if numbers.tobytes() == value.tobytes() else "no"})
    bad = frozenset(k for k, row in enumerate(rows) if not row["diff2"] <= row["limit"])
    lead = f"{call.where} on {device} {'differs from' if bad else 'agrees with'} the run"
    if not bad and rows and all(row["same"] == "yes" for row in rows):
        lead += ", bit for bit"
    return ToolReport("teco train replay", call.where, lead, COLUMNS, rows, bad, _facts(call))
