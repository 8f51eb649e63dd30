"""``example_valid.py --target tvm`` in every example folder with a committed model, beside ``--target onnx``.

For each folder: the metric of both, and the CPU seconds (user and system, of all threads) of three runs: on ONNX
Runtime, on TVM with an empty cache, so that plans are compiled, and once more with the plans of that cache. They are of
the whole process, with its imports; other programs of the machine disturb them less than the wall time. A folder whose
model TVM refuses has the line of the refusal. Every finished folder is kept in a file at once, and is not run again by
the next call, unless it failed. The exit code is 1 if a metric differs by more than 0.1 %, or a run fails otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from parts.bench import ROOT

from utils.pipeline.report.report import write_json

PAGE = ROOT / "docs/reference/tvm_models.md"
BEGIN, END = "<!-- the folders: begin -->", "<!-- the folders: end -->"
SCHEMA_VERSION = 1
METRIC = re.compile(r"^eval_metric (\S+)$", re.MULTILINE)
REFUSED = "TVM cannot"  # in the line of a model that its importer or compiler lacks an operator of
CLOSE = 1e-3
RUNS = ("onnx", "tvm", "tvm")
HEAD = """| folder | metric, onnx | metric, tvm | onnx, CPU s | tvm, empty cache, CPU s | tvm, cached, CPU s | |
|---|---:|---:|---:|---:|---:|---|"""

Row = Mapping[str, Any]
"""``runs``: metric and CPU seconds of each finished run; ``problem``: the last line of one that failed, or ""."""


def folders() -> list[str]:
    """Return the example folders that have a script and a committed model, relative to ``example``."""
    found = sorted({path.parent for path in ROOT.glob("example/*/*/*.onnx")})
    return [f.relative_to(ROOT / "example").as_posix() for f in found if (f / "example_valid.py").is_file()]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the folders that are not finished, print a table in Markdown, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="FOLDER", help="such as ocr/digit_crnn")
    parser.add_argument("--again", action="store_true", help="also run folders that are in the file of results")
    parser.add_argument("--limit", type=float, default=900.0, metavar="SECONDS", help="of each run")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.relative_to(ROOT)}")
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks/results/tvm_folders.json", metavar="FILE",
                        help="where results are kept")  # fmt: skip
    args = parser.parse_args(argv)
    if not find_spec("tvm"):
        print('tvm is not installed; pip install -c constraints.txt -e ".[tvm]"', file=sys.stderr)
        return 2
    known = folders()
    if unknown := sorted(set(args.only) - set(known)):
        print(f"--only {unknown[0]}: no example folder with a committed model; one of {', '.join(known)}",
              file=sys.stderr)  # fmt: skip
        return 2
    names, rows = args.only or known, _kept(args.json)
    waiting = [name for name in names if args.again or name not in rows or not is_good(rows[name])]
    for number, name in enumerate(waiting, 1):
        rows[name] = _row(name, args.limit, f"[{number}/{len(waiting)}] {name}")
        args.json.parent.mkdir(parents=True, exist_ok=True)
        write_json({"schema_version": SCHEMA_VERSION, "tvm": version("apache-tvm"), "folders": rows}, args.json)
    print(table({name: rows[name] for name in known if name in rows and (args.write or name in names)}))
    if args.write:
        _write({name: rows[name] for name in known if name in rows})
    return int(not all(is_good(rows[name]) for name in names))


def _kept(path: Path) -> dict[str, Row]:
    """Return the rows of a file, those of this version of TVM."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    same = (found.get("schema_version"), found.get("tvm")) == (SCHEMA_VERSION, version("apache-tvm"))
    return dict(found["folders"]) if same else {}


def _write(rows: Mapping[str, Row]) -> None:
    before = PAGE.read_text(encoding="utf-8")
    head, rest = before.split(BEGIN)
    PAGE.write_text(f"{head}{BEGIN}\n{table(rows)}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def _row(name: str, limit: float, title: str) -> Row:
    """Run a folder on each target; report each run on standard error when it starts and ends."""
    runs: list[tuple[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="tvm-folders-") as cache:
        for target in RUNS:
            print(f"{title} --target {target}", end=" ", file=sys.stderr, flush=True)
            start = time.monotonic()
            metric, seconds, problem = _run(name, target, Path(cache), limit)
            shown = problem or f"eval_metric {metric}, {seconds:.1f} CPU s"
            print(f"{shown} ({time.monotonic() - start:.0f} s)", file=sys.stderr, flush=True)
            if problem:
                return {"runs": runs, "problem": problem}
            runs.append((metric, seconds))
    return {"runs": runs, "problem": ""}


def is_good(row: Row) -> bool:
    """Return whether the metrics are close, or the model is refused."""
    if row["problem"]:
        return REFUSED in row["problem"]
    (onnx, *others) = (float(metric) for metric, _ in row["runs"])
    return all(abs(other - onnx) <= CLOSE * abs(onnx) for other in others)


def table(rows: Mapping[str, Row]) -> str:
    """Return the table as Markdown."""
    return "\n".join([HEAD, *(_line(name, row) for name, row in rows.items())])


def _line(name: str, row: Row) -> str:
    metrics = [metric for metric, _ in row["runs"]] + [""] * 2
    times = ([f"{seconds:.1f}" for _, seconds in row["runs"]] + [""] * 3)[:3]
    remark = row["problem"] or ("" if is_good(row) else "differs")
    return f"| {name} | {metrics[0]} | {metrics[1]} | {' | '.join(times)} | {remark} |"


def _run(name: str, target: str, cache: Path, limit: float) -> tuple[str, float, str]:
    """Return the metric, the CPU seconds, and the last line on standard error of a run that failed, or ""."""
    command = [sys.executable, "example_valid.py", "--target", target]
    before = _cpu()
    try:
        done = subprocess.run(
            command,
            cwd=ROOT / "example" / name,
            env={**os.environ, "TECO_CACHE_DIR": str(cache)},
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", 0.0, f"--target {target} did not end within {limit:g} s"
    found = METRIC.search(done.stdout)
    if done.returncode or found is None:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return "", 0.0, lines[-1]
    return found[1], _cpu() - before, ""


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
