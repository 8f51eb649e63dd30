"""The device against PyTorch's own databases: ``python -m tests.torch_sdaa.conformance [ops] [modules] [optimizers]``.

Prints how many entries of each database are right on the simulated card (values bit for bit those of the CPU), and
why others are not. Exit codes: 0 all that is asked for is right; 1 something is below; 2 unusable arguments;
130 interrupted.
"""

# ruff: noqa: T201 - a command line

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import random
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

FAMILIES = ("ops", "modules", "optimizers")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    args = _arguments(argv)
    record: dict[str, Any] = {}
    try:
        for family in args.families or FAMILIES:
            record[family] = _family(family, args)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    if args.names and not any(part["entries"] for part in record.values()):
        print(f"--names {' '.join(args.names)}: no entry has such a name; --list prints all", file=sys.stderr)
        return 2
    if args.json:
        args.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return int(any(part["below"] for part in record.values()))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.torch_sdaa.conformance",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("families", nargs="*", metavar="FAMILY", help=f"of: {', '.join(FAMILIES)} (default: all)")
    add("--names", nargs="+", metavar="NAME", help="only these entries")
    add("--shard", default="1/1", metavar="I/N", help="the I-th of N parts (1/4: entries 1, 5, 9, ...)")
    add("--samples", type=int, metavar="N", help="at most so many samples of an entry (default: all)")
    add("--sample", type=int, metavar="N", help="only so many entries, chosen by --seed")
    add("--seed", type=int, default=0, help="another seed chooses others (default: 0)")
    add("--threads", type=int, default=1, help="of PyTorch's kernels (default: 1)")
    add("--json", type=Path, metavar="F", help="also write the counts as JSON")
    add("--list", action="store_true", help="print the names of the entries and do nothing")
    add("--verbose", action="store_true", help="print each entry as it ends")
    args = parser.parse_args(argv)
    for family in args.families:
        if family not in FAMILIES:
            parser.error(f"{family}: no such family; use of: {', '.join(FAMILIES)}")
    try:
        part, parts = (int(number) for number in args.shard.split("/"))
        args.part = slice(part - 1, None, parts)
        if not 1 <= part <= parts:
            raise ValueError(args.shard)
    except ValueError:
        parser.error(f"--shard {args.shard}: must be I/N with 1 <= I <= N, such as 1/4")
    return args


def chosen(names: Sequence[str], count: int, seed: int) -> list[str]:
    """Return a number of names spread over the list: one at random from each of ``count`` equal ranges."""
    draw = random.Random(seed)
    edges = [len(names) * i // count for i in range(count + 1)]
    return [names[draw.randrange(a, b)] for a, b in itertools.pairwise(edges) if a < b]


def _family(family: str, args: argparse.Namespace) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the databases warn of what they themselves call
        import torch

        module = importlib.import_module(f"tests.torch_sdaa.conformance.{family}")
        from tests.torch_sdaa.conformance.tally import summary

        torch.set_num_threads(args.threads)
        names = module.names()
        whole = len(names)
        if args.names:
            names = [name for name in names if name in args.names]
        names = names[args.part]
        if args.sample:
            names = chosen(names, args.sample, args.seed)
        start, entries = time.monotonic(), []
        for name in names if not args.list else ():
            entries.append(module.run(name, args.samples))
            if args.verbose:
                print(f"{entries[-1].state:8} {name}", flush=True)
    if args.list:
        print("\n".join(names))
    record = {"whole": whole, **summary(entries), "seconds": round(time.monotonic() - start, 1)}
    record["below"] = record["wrong"] + record["stale"] > 0 or record["skipped"] > module.ALLOWED
    if not args.list:
        _show(family, record)
    return record


def _show(family: str, record: dict[str, Any]) -> None:
    counts = ", ".join(f"{what} {count}" for what, count in record["comparisons"].items())
    whole = record["entries"] - record["absent"]
    others = ", ".join(f"{record[state]} {state}" for state in ("absent", "skipped", "stale", "wrong"))
    print(f"{family}: {record['right']} of {whole} right ({others}; the database has {record['whole']} entries)")
    print(f"  {counts}; {record['refusing']} entries are refused by the CPU and must be by the device")
    print(f"  {record['seconds']} s of wall time")
    for name, reason in record["reasons"].items():
        print(f"  {name}: {reason}")


if __name__ == "__main__":
    sys.exit(main())
