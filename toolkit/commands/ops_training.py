"""List the PyTorch operators of a training, forward and backward, and their support on the simulated card.

WHAT is a script, a module as for `python -m` (arguments follow --), or `package.module:name` or `file.py:name` of a
function that returns (model, batch) or (model, batch, loss), where the batch is a tensor, a tuple or a dict, and the
loss is a function of the model's output. It runs unchanged on the CPU in a separate process: a script for --steps
optimizer steps, a model for one forward and backward. Its output goes to standard error; the files it writes remain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine import ConfigError, TargetError
from toolkit.arguments import Parser
from toolkit.model_arguments import positive, split_flags
from toolkit.output import Column, ToolReport, add_output_flags, publish
from toolkit.training.operators.judge import Served, judge, on_host, summary
from toolkit.training.operators.table import MISSING, DeviceTable, stored_table
from toolkit.training.operators.watch import Asked, Watched, ask_device, watch

EPILOG = """\
kernel: the cost model has the kernel; CPU fallback: computed by the CPU's kernel, with an approximate cost;
composite: decomposed by torch into other operators; missing: unsupported by the device; unknown: not in the table
exit code: 0 all operators are supported, 1 an operator is missing, 2 the training could not be run
"""

COLUMNS = (
    Column("op", "operator"),
    *(Column(name, name, True) for name in ("forward", "backward", "update")),
    Column("device", "device"),
    Column("share", "% (simulated)", True, spare=1),
    Column("dtypes", "dtypes", spare=3),
    Column("first", "first call", spare=2),
    Column("remarks", "remarks"),
    Column("shapes", "shapes", brief=False),
    Column("seconds", "seconds (simulated)", True, brief=False),
    Column("parts", "launches", brief=False),
    Column("source", "known from", brief=False),
)


def main(argv: Sequence[str]) -> int:
    """Print the operators and their support; return 1 if one is missing."""
    return _run(argv, Parser("teco ops", __doc__, EPILOG), "--training", nargs="?", required=True)


def train_ops(argv: Sequence[str]) -> int:
    """Do the same as :func:`main`, with WHAT as an argument instead of a flag: ``teco train ops``."""
    return _run(argv, Parser("teco train ops", __doc__, EPILOG), "training")


def _run(argv: Sequence[str], parser: Parser, name: str, **options: Any) -> int:
    own, arguments = split_flags(argv)
    add = parser.add_argument
    add(name, metavar="WHAT", help="a script, a module or module:name", **options)
    add("--steps", type=positive, default=2, metavar="N", help="optimizer steps to run (default: 2)")
    add("--timeout", dest="seconds", type=positive, default=300, metavar="SECONDS", help="time limit (default: 300)")
    parser.hide("--timeout", "--seconds")
    add("--stored", action="store_true", help="use the stored support table, without compiling and simulated times")
    add_output_flags(parser)
    args = parser.parse_args(own)
    if not args.training:
        raise ConfigError("--training needs a script or MODULE:NAME (see teco train ops --help)")
    watched = watch(args.training, arguments, args.steps, args.seconds)
    table, asked, notes = _asked(watched, args.stored)
    made = report(args.training, watched, judge(watched, table, asked), table, notes)
    publish(made, args)
    return 1 if made.bad else 0


def _asked(watched: Watched, stored: bool) -> tuple[DeviceTable, Asked | None, list[str]]:
    """Return the support table, the results of the device if it was asked, and notes."""
    why = "--stored"
    if not stored:
        try:
            asked = ask_device(watched.operators)
            return asked.table, asked, []
        except TargetError as error:
            why = str(error)
    table = stored_table()
    notes = [f"judged by the stored table alone, without simulated times: {why}"]
    if table.torch != watched.torch:
        notes.append(f"the stored table is of torch {table.torch}; this is {watched.torch}")
    return table, None, notes


def report(
    what: str, watched: Watched, found: Sequence[Served], table: DeviceTable, notes: Sequence[str] = ()
) -> ToolReport:
    """Return the report of the command on ``what``, the name of the training.

    ``watched``: record of the run; ``table``: the support table used; ``notes``: first notes of the report.
    """
    total = sum(one.seconds or 0.0 for one in found)
    bad = frozenset(i for i, one in enumerate(found) if one.level == MISSING)
    facts = {"target": "sdaa", "operators": str(len(found)), "torch": watched.torch, "steps": str(watched.steps)}
    lines = [*notes, *_notes(watched, found, total)]
    data = {"ended": watched.ended, "table": table.torch, "simulated_seconds": total or None}
    rows = [row(one, total) for one in found]
    return ToolReport("teco ops --training", what, summary(found), COLUMNS, rows, bad, facts, lines, data=data)


def row(one: Served, total: float) -> dict[str, Any]:
    """Return an operator as a row of the table; ``total``: simulated seconds of all operators."""
    known = one.seconds is not None and total > 0
    return {
        "op": one.name,
        **{phase: one.calls.get(phase) for phase in ("forward", "backward", "update")},
        "device": one.level,
        "share": round(100 * (one.seconds or 0.0) / total, 2) if known else None,
        "dtypes": " ".join(one.dtypes),
        "first": one.first,
        "remarks": "; ".join(one.remarks),
        "shapes": "; ".join(one.shapes),
        "seconds": one.seconds,
        "parts": " ".join(one.parts),
        "source": one.source,
    }


def _notes(watched: Watched, found: Sequence[Served], total: float) -> list[str]:
    notes = []
    if watched.ended == "time":
        notes.append(f"stopped by --timeout after {watched.steps} steps; later operators are unknown")
    if not any(one.calls.get("backward") for one in found):
        notes.append("no backward pass was run")
    if (host := on_host(watched)) > 0:
        notes.append(f"{host} calls stay on the host (data loading, step counters, model construction) and are omitted")
    untimed = [one.name for one in found if one.seconds is None]
    if total:
        notes.append(_time(watched, total, sum(one.assumed for one in found)))
        notes += [f"no simulated time, since the device could not run them: {', '.join(untimed)}"] if untimed else []
    return notes


def _time(watched: Watched, total: float, assumed: float) -> str:
    what, each = (
        ("all that ran", total) if watched.steps < 2 else ("a step after the first", total / (watched.steps - 1))
    )
    rates = f", {100 * assumed / total:.0f} % of it by assumed rates" if assumed else ""
    return f"{what} takes {1e3 * each:.3g} ms of one SPA (simulated; kernels one after another, no copies{rates})"
