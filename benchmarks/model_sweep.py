"""Architectures compared with torch: exported by both of its exporters, and run on every target and dtype.

Each architecture is small and has random weights; agreement of values is judged, not accuracy or speed. A combination
is an exporter, a target, a dtype and a number of SPA. It must agree with torch on the same samples, or be refused for
the reason that its row expects; anything else is a finding. Rows that have finished for the same sources are not run
again. The exit code is 1 if there is a finding, and 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from parts.bench import ROOT
from sweep.judge import AGREES, FINDING, REFUSED
from sweep.results import Results
from sweep.runner import run_all
from sweep.table import written
from tqdm import tqdm

from engine import usable_cores
from tecoinfer_modelzoo.text import did_you_mean

NEEDED = {"torch": "torch", "torchvision": "torch", "onnxsim": "torch", "openvino": "test", "transformers": "test"}
"""Package -> the extra that brings it. timm's rows are left out where it is not installed."""


def main(argv: Sequence[str] | None = None) -> int:
    """Read the command line and sweep; return the exit code."""
    args = _arguments().parse_args(argv)
    missing = [name for name in NEEDED if not find_spec(name)]
    if missing:
        extras = ",".join(sorted({NEEDED[name] for name in missing}))
        print(f'{", ".join(missing)} not installed; pip install ".[{extras}]"', file=sys.stderr)
        return 2
    if args.table is not None and args.from_results:
        return _write_table(args.table, args.json)
    from sweep.families import all_rows

    rows = {name: family for name, (family, _) in all_rows().items()}
    try:
        chosen = _chosen(rows, args.only, args.family)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if args.list:
        for name in chosen:
            print(f"{rows[name]:16} {name}")
        return 0
    results = Results(args.json, args.again)
    _sweep([name for name in chosen if name not in results.rows], rows, results, args.jobs)
    _show(chosen, results)
    results.rows = {name: results.rows[name] for name in rows if name in results.rows}  # in the order of the table
    if args.table is not None and _write_table(args.table, args.json):
        return 2
    return int(any(one["row"] in chosen for one in results.findings()))


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="run these architectures only")
    parser.add_argument("--family", nargs="+", default=[], metavar="FAMILY", help="run these families only")
    parser.add_argument("--list", action="store_true", help="list the architectures, and run nothing")
    parser.add_argument("--again", action="store_true", help="also run rows that have finished for these sources")
    parser.add_argument("--jobs", type=int, default=usable_cores(), help="number of parallel processes")
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks/results/model_sweep.json", metavar="FILE",
                        help="where results are kept")  # fmt: skip
    parser.add_argument("--table", type=Path, metavar="PAGE", help="write the table into this page afterwards")
    parser.add_argument("--from-results", action="store_true", help="with --table: run nothing, whatever has changed")
    return parser


def _chosen(rows: dict[str, str], only: Sequence[str], families: Sequence[str]) -> list[str]:
    """Return names of rows in order.

    Raises:
        ValueError: unknown row or family.
    """
    for asked, known in ((only, list(rows)), (families, list(dict.fromkeys(rows.values())))):
        for name in asked:
            if name not in known:
                raise ValueError(f"unknown name {name!r};{did_you_mean(name, known) or ' see --list'}")
    if not only and not families:
        return list(rows)
    return [name for name, family in rows.items() if name in only or family in families]


def _sweep(names: Sequence[str], families: dict[str, str], results: Results, jobs: int) -> None:
    """Run rows, and print each result when it has finished."""
    with tempfile.TemporaryDirectory(prefix="model-sweep-") as folder, tqdm(
        total=len(names), unit="row", disable=None, leave=False
    ) as bar:  # fmt: skip

        def done(name: str, outcomes: list[dict[str, Any]]) -> None:
            results.add(name, families[name], outcomes)
            bar.update()
            bar.write(_summary(name, outcomes))
            sys.stdout.flush()

        run_all(names, done, jobs, Path(folder))


def _summary(name: str, outcomes: Sequence[dict[str, Any]]) -> str:
    """Return a line on a row, and one more for each finding."""
    statuses = [one["verdict"]["status"] for one in outcomes]
    counted = ", ".join(f"{statuses.count(kind)} {kind}" for kind in (AGREES, REFUSED, FINDING) if kind in statuses)
    lines = [f"{name:32} {sum(one['seconds'] for one in outcomes):5.1f} s  {counted}"]
    found = [one for one in outcomes if one["verdict"]["status"] == FINDING]
    return "\n".join([*lines, *(f"    {one['combination']}: {one['verdict']['reason']}" for one in found)])


def _show(names: Sequence[str], results: Results) -> None:
    """Print the results of all requested rows."""
    every = [one["verdict"]["status"] for name in names for one in results.rows[name]["outcomes"]]
    counted = ", ".join(f"{every.count(kind)} {kind}" for kind in (AGREES, REFUSED, FINDING))
    print(f"{len(names)} architectures, {len(every)} combinations: {counted}")
    print(results.path)


def _write_table(page: Path, path: Path) -> int:
    try:
        written(page, json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        print(f"the table cannot be written: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
