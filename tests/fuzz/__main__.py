"""Fuzz the zoo's commands: python -m tests.fuzz KIND ... --minutes N; `--list` lists the kinds.

The same seed makes the same cases. Findings are stored in fuzz_found/, each with an again.sh that repeats the case.
Exit codes: 0 no findings; 1 findings; 2 invalid arguments; 130 interrupted.
"""

# ruff: noqa: T201 - a command line

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
import random
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.fuzz.case import Case, Kind, Outcome
from tests.fuzz.judge import Finding, judge
from tests.fuzz.kinds import KINDS, kind
from tests.fuzz.runner import adopt_orphans, again, run

SCHEMA_VERSION = 1
LIMIT = 30.0
"""Timeout of a command in seconds."""


@dataclass
class Tally:
    """Results of the cases of one kind.

    Attributes:
        ended: number of cases by result: ``done`` (exit code 0), ``refused`` (another code), ``excused`` (a signal that
            also ends the runtime alone), or the word of a finding.
        found: by cause, the count and the numbers of the first cases. slowest: seconds of the slowest case, and its
            number.
    """

    cases: int = 0
    seconds: float = 0.0
    ended: Counter[str] = field(default_factory=Counter)
    found: dict[str, dict[str, Any]] = field(default_factory=dict)
    slowest: tuple[float, int] = (0.0, -1)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the requested attacks and return the exit code."""
    args = _arguments(argv)
    if args.list:
        for name, text in KINDS.items():
            print(f"{name:14} {text}")
        return 0
    names = list(KINDS) if "all" in args.kinds or not args.kinds else args.kinds
    for name in names:
        if name not in KINDS:
            print(f"{name}: no such kind; use all, or of: {', '.join(KINDS)}", file=sys.stderr)
            return 2
    adopt_orphans()
    tallies = {name: Tally() for name in names}
    try:
        for name in names:
            attack(name, args, tallies[name])
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    finally:
        _summary(tallies, args)
    return int(any(tally.found for tally in tallies.values()))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("kinds", nargs="*", metavar="KIND", help="kinds to fuzz (default: all)")
    add("--list", action="store_true", help="list the kinds")
    add("--minutes", type=float, metavar="N", help="duration for each kind (default: no limit, see --cases)")
    add("--cases", type=int, metavar="N", help="maximum number of cases of each kind (default: 50, or --minutes)")
    add("--first", type=int, default=0, metavar="I", help="number of the first case (default: 0)")
    add("--seed", default="0", help="seed of the cases; today: the date (default: 0)")
    add("--limit", type=float, default=LIMIT, metavar="SECONDS", help=f"when a command hangs (default: {LIMIT:g})")
    add(
        "--keep",
        type=Path,
        default=Path("fuzz_found"),
        metavar="DIR",
        help="folder of the findings (default: fuzz_found)",
    )
    add("--json", type=Path, metavar="FILE", help="also write the counts as JSON")
    add("--verbose", action="store_true", help="print each case as it ends")
    args = parser.parse_args(argv)
    if args.seed == "today":
        args.seed = str(datetime.now().astimezone().date())
    return args


def attack(name: str, args: argparse.Namespace, tally: Tally) -> None:
    """Run the cases of a kind, one after the other, each in a fork of this process."""
    module = kind(name)
    for needed in module.WARM:
        importlib.import_module(needed)
    start = time.monotonic()
    most = args.cases if args.cases is not None else (50 if args.minutes is None else sys.maxsize)
    work = Path(tempfile.mkdtemp(prefix="fuzz-"))  # a TemporaryDirectory would be removed by the first fork that ends
    try:
        env = _environment(work)
        for number in _numbers(args.first, most, start + (args.minutes or 1e9) * 60):
            finding, case, outcome = one(name, module, args, number, work, env)
            _count(tally, number, finding, case, outcome)
            tally.seconds = time.monotonic() - start
            _show(name, tally, number, finding, case, outcome, args.verbose)
    finally:
        _remove(work)


def _numbers(first: int, most: int, end: float) -> Iterator[int]:
    number = first
    while number - first < most and time.monotonic() < end:
        yield number
        number += 1


def one(
    name: str, module: Kind, args: argparse.Namespace, number: int, work: Path, env: Mapping[str, str]
) -> tuple[Finding | None, Case, Outcome]:
    """Make a case, run it, judge it, and save it on a finding."""
    folder = work / "case"
    folder.mkdir()
    try:
        rng = random.Random(f"{name}/{args.seed}/{number}")
        case = module.make(rng, folder, number)
        outcome = run(case, folder, env, args.limit)
        finding = judge(case, outcome, args.limit)
        if finding is not None:
            _keep(args.keep, name, number, finding, case, folder)
        return finding, case, outcome
    finally:
        _remove(folder)


def _environment(work: Path) -> dict[str, str]:
    """Return the environment of every case, isolated from the user's files."""
    for name in ("cache", "home", "smi", "tmp"):
        (work / name).mkdir()
    places = {"TECO_CACHE_DIR": "cache", "HOME": "home", "TECO_SMI_DIR": "smi", "TMPDIR": "tmp"}
    fetched = os.environ.get("TECO_FETCH_DIR") or str(Path.home() / ".cache" / "tecoinfer" / "fetch")
    return {name: str(work / place) for name, place in places.items()} | {
        "TECO_FETCH_DIR": fetched,
        "PYTHONFAULTHANDLER": "1",
        "HF_HUB_OFFLINE": "1",
    }


def _remove(folder: Path) -> None:
    """Remove a case's folder, with any permissions."""

    def allow(function: Any, path: str, _: object) -> None:
        for place in (os.path.dirname(path), path):
            if not os.path.islink(place):
                os.chmod(place, 0o700)
        function(path)

    shutil.rmtree(folder, onerror=allow)


def _keep(keep: Path, name: str, number: int, finding: Finding, case: Case, folder: Path) -> None:
    """Copy a finding; at most two cases per cause."""
    cause = re.sub(r"[^A-Za-z0-9]+", "-", finding.key)[:70].strip("-")
    if len(list(keep.glob(f"{name}-{cause}-*"))) >= 2:
        return
    target = keep / f"{name}-{cause}-{number}"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for stream in ("stdout", "stderr"):
        shutil.copyfile(folder.with_name(f"{folder.name}.{stream}"), target / stream)
    (target / "again.sh").write_text(again(case).replace(str(folder), '"$PWD"'), "utf-8", "surrogateescape")
    (target / "what.txt").write_text(f"{finding.word}: {finding.detail}\n{case.what}\n", "utf-8", "surrogateescape")
    _copy_tree(folder, target / "case")


def _copy_tree(source: Path, target: Path) -> None:
    """Copy files and links as links; skip pipes, devices and too long paths."""
    for folder, _, names in os.walk(source):
        there = target / Path(folder).relative_to(source)
        with contextlib.suppress(OSError):
            there.mkdir(parents=True, exist_ok=True)
        for name in names:
            path = Path(folder) / name
            with contextlib.suppress(OSError):
                if path.is_symlink() or (path.is_file() and path.stat().st_size < 64 << 20):
                    shutil.copy2(path, there / name, follow_symlinks=False)


def _count(tally: Tally, number: int, finding: Finding | None, case: Case, outcome: Outcome) -> None:
    tally.cases += 1
    tally.slowest = max(tally.slowest, (round(outcome.seconds, 2), number))
    if finding is None:
        code = outcome.code
        tally.ended["excused" if code is None or code < 0 else "refused" if code else "done"] += 1
        return
    tally.ended[finding.word] += 1
    entry = tally.found.setdefault(finding.key, {"times": 0, "first": [], "detail": finding.detail, "what": case.what})
    entry["times"] += 1
    entry["first"] = [*entry["first"], number][:5]


def _show(
    name: str,
    tally: Tally,
    number: int,
    finding: Finding | None,
    case: Case,
    outcome: Outcome,
    verbose: bool,
) -> None:
    if finding is not None and tally.found[finding.key]["times"] == 1:
        print(f"{name} {number}: {finding.word}: {finding.detail}\n    {case.what[:300]}", flush=True)
    elif verbose:
        last = (outcome.err.strip() or outcome.out.strip()).rpartition("\n")[2][:150]
        print(f"{name} {number}: {outcome.code} in {outcome.seconds:.2f} s: {case.what[:100]} | {last}", flush=True)
    if sys.stderr.isatty():
        print(f"\r{name}: {tally.cases} cases, {len(tally.found)} causes found ", end="", file=sys.stderr, flush=True)


def _summary(tallies: Mapping[str, Tally], args: argparse.Namespace) -> None:
    if sys.stderr.isatty():
        print(file=sys.stderr)
    for name, tally in tallies.items():
        ended = ", ".join(f"{count} {word}" for word, count in sorted(tally.ended.items()))
        slowest = f"the slowest {tally.slowest[0]:.1f} s (case {tally.slowest[1]})"
        print(f"{name}, seed {args.seed}: {tally.cases} cases in {tally.seconds:.0f} s: {ended}; {slowest}")
        for key, entry in tally.found.items():
            print(f"  {entry['times']} x {key}; cases {entry['first']}")
    if args.json is not None:
        kinds = {name: {**vars(tally), "ended": dict(tally.ended)} for name, tally in tallies.items()}
        content = {"schema_version": SCHEMA_VERSION, "seed": args.seed, "kinds": kinds}
        args.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
