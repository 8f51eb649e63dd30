"""Say which operators of PyTorch a training needs, forward and backward, and how the simulated card serves each.

WHAT is a script, or a module as `python -m` takes it (arguments stand behind --), or `package.module:name` or
`file.py:name` of a function that returns (model, batch) or (model, batch, loss), where the batch is a tensor, a tuple
or a dict, and the loss a function of the model's output. It is run on the CPU as it stands, in a process of its own,
before anything is moved to the card: the script for --steps steps of its optimizers, the model for one forward and
backward. What it prints goes to standard error; files that it writes in these steps, it writes.
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
kernel: the card's price model knows what it does; CPU fallback: the CPU's kernel computes it, its price is approximate;
composite: torch decomposes it into others; missing: the device does not support it; unknown: not in the table
exit code: 0 the device has everything, 1 something is missing, 2 the training could not be run
"""

COLUMNS = (
    Column("op", "operator"),
    Column("forward", "forward", True),
    Column("backward", "backward", True),
    Column("update", "update", True),
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
    """Print the operators and how they are served; exit code 1 where one is missing."""
    return _run(argv, Parser("teco ops", __doc__, EPILOG), "--training", nargs="?", required=True)


def train_ops(argv: Sequence[str]) -> int:
    """Do the same as :func:`main`, with WHAT as an argument instead of a flag: ``teco train ops``."""
    return _run(argv, Parser("teco train ops", __doc__, EPILOG), "training")


def _run(argv: Sequence[str], parser: Parser, name: str, **options: Any) -> int:
    own, arguments = split_flags(argv)
    parser.add_argument(name, metavar="WHAT", help="script, or module:name", **options)
    parser.add_argument("--steps", type=positive, default=2, help="of the script's optimizers (default: 2)")
    parser.add_argument("--seconds", type=positive, default=300, help="stop the script after these (default: 300)")
    parser.add_argument(
        "--stored", action="store_true", help="compile nothing: judge by the table in the zoo, without simulated times"
    )
    add_output_flags(parser)
    args = parser.parse_args(own)
    if not args.training:
        raise ConfigError("--training needs a script or MODULE:NAME (see teco train ops --help)")
    watched = watch(args.training, arguments, args.steps, args.seconds)
    table, asked, notes = _asked(watched, args.stored)
    made = report(args.training, watched, judge(watched, table, asked), table, notes)
    for file in publish(made, args):
        print(f"written: {file}")
    return 1 if made.bad else 0


def _asked(watched: Watched, stored: bool) -> tuple[DeviceTable, Asked | None, list[str]]:
    """Return the device's table, the device's own answers, and where there are none, why."""
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
    """Return what the command shows.

    Args:
        what: the training. watched: what ran. found: every operator. table: that was used. notes: said before others.
    """
    total = sum(one.seconds or 0.0 for one in found)
    bad = frozenset(i for i, one in enumerate(found) if one.level == MISSING)
    facts = {"target": "sdaa", "operators": str(len(found)), "torch": watched.torch, "steps": str(watched.steps)}
    said = [*notes, *_notes(watched, found, total)]
    data = {"ended": watched.ended, "table": table.torch, "simulated_seconds": total or None}
    rows = [row(one, total) for one in found]
    return ToolReport("teco ops --training", what, summary(found), COLUMNS, rows, bad, facts, said, data=data)


def row(one: Served, total: float) -> dict[str, Any]:
    """Return an operator as the table shows it; ``total``: simulated seconds of all."""
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
        notes.append(f"the time was up after {watched.steps} steps (--seconds); later operators are not known")
    if not any(one.calls.get("backward") for one in found):
        notes.append("no backward was seen")
    if (host := on_host(watched)) > 0:
        whose = "a DataLoader's, an optimizer's count of steps, building a model"
        notes.append(f"{host} calls stay on the host and are left out: {whose}")
    untold = [one.name for one in found if one.seconds is None]
    if total:
        notes.append(_time(watched, total, sum(one.assumed for one in found)))
        notes += [f"without a time, as the device could not try them: {', '.join(untold)}"] if untold else []
    return notes


def _time(watched: Watched, total: float, assumed: float) -> str:
    what, each = (
        ("all that ran", total) if watched.steps < 2 else ("a step after the first", total / (watched.steps - 1))
    )
    rates = f", {100 * assumed / total:.0f} % of it by assumed rates" if assumed else ""
    return f"{what} takes {1e3 * each:.3g} ms of one SPA (simulated; kernels one after another, no copies{rates})"
