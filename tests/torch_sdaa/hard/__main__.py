"""Runs the checks in random orders, each order in a fresh process: ``python -m tests.torch_sdaa.hard --orders 20``."""

# ruff: noqa: T201 - a command line

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.torch_sdaa.hard import CHECKS
from tests.torch_sdaa.hard.check import ROOT, environment
from tests.torch_sdaa.hard.run import Outcome, run

SCHEMA_VERSION = 1
SECONDS = 1800
"""Time limit of one order."""


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line and run it; return 1 if anything failed, 2 for invalid input."""
    parser = argparse.ArgumentParser(prog="python -m tests.torch_sdaa.hard", description=__doc__)
    parser.add_argument("--orders", type=int, default=1, help="how many orders (default 1)")
    parser.add_argument("--seed", type=seed_of, default=0, help="of the first order, or today; others take the next")
    parser.add_argument("--only", default="", metavar="PART", help="checks whose name has this part")
    parser.add_argument("--leave-out", default="", metavar="PART,PART", help="no checks whose name has one of these")
    parser.add_argument("--json", type=Path, metavar="F", help="write the outcomes of every order to this file")
    parser.add_argument("--list", action="store_true", help="print the checks' names, and run none")
    parser.add_argument("--here", type=Path, metavar="F", help=argparse.SUPPRESS)  # one order, in this process
    args = parser.parse_args(argv)
    left_out = [part for part in args.leave_out.split(",") if part]
    names = [name for name in CHECKS if args.only in name and not any(part in name for part in left_out)]
    if args.orders < 1 or not names:
        parser.error("--orders must be at least 1" if args.orders < 1 else f"no check has {args.only!r} in its name")
    if args.list:
        print(*names, sep="\n")
        return 0
    if args.here:
        return one_order(names, args.seed, args.here)
    orders = [fresh(args, args.seed + i) for i in range(args.orders)]
    failed = [order for order in orders if order["failures"] or order["exit_code"] or any(order["memory"])]
    print(f"{len(names)} checks in {len(orders)} orders: {len(failed)} orders with failures")
    if args.json:
        args.json.write_text(
            json.dumps({"schema_version": SCHEMA_VERSION, "seed": args.seed, "orders": orders}, indent=1)
        )
    return int(bool(failed))


def seed_of(text: str) -> int:
    """Return a seed; ``today`` is the date's, times 100."""
    return int(datetime.now().strftime("%y%m%d00")) if text == "today" else int(text)


def fresh(args: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Run one order in a fresh process; return its outcomes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "order.json"
        words = ["--seed", str(seed), "--only", args.only, "--leave-out", args.leave_out, "--here", str(file)]
        command = [sys.executable, "-m", "tests.torch_sdaa.hard", *words]
        env = {**environment(), "TECO_SMI_DIR": folder}
        start = time.monotonic()
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=env, timeout=SECONDS, capture_output=True, text=True, check=False
            )
            code, tail = done.returncode, done.stderr[-2000:]
        except subprocess.TimeoutExpired:
            code, tail = 124, f"not done after {SECONDS} s"
        record = json.loads(file.read_text()) if file.exists() else {}
    failures = record.get("failures", {})
    order = {
        "seed": seed,
        "exit_code": code,
        "ran": record.get("ran", 0),
        "failures": failures,
        "memory": record.get("memory", []),
        "seconds": round(time.monotonic() - start, 1),
    }
    if not record.get("finished"):
        order["failures"] = failures | {record.get("running", "start"): f"the process ended here: {tail}"}
    elif code not in (0, 1):
        order["at_exit"] = tail
    print(f"order {seed}: {order['ran']} checks, {len(order['failures'])} failed, memory {order['memory']}, ", end="")
    print(f"exit code {code}, {order['seconds']} s", flush=True)
    for name, why in order["failures"].items():
        print(f"  {name}: {why}", flush=True)
    return order


def one_order(names: list[str], seed: int, file: Path) -> int:
    """Run checks in the order of a seed, in this process; the file always has the current state."""
    random.Random(seed).shuffle(names)
    record: dict[str, Any] = {"ran": 0, "failures": {}, "finished": False}
    outcome: Outcome | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            record["running"] = name
            file.write_text(json.dumps(record))
            outcome = run(CHECKS[name])
            record["ran"] += 1
            if outcome.why:
                record["failures"][name] = outcome.why
    record["memory"] = outcome.memory if outcome else []
    record["finished"] = True
    file.write_text(json.dumps(record))
    return int(bool(record["failures"]))


if __name__ == "__main__":
    sys.exit(main())
