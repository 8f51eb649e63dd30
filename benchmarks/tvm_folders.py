"""``example_valid.py --target tvm`` in every example folder with a committed model, beside ``--target onnx``.

For each folder: the metric of both, and the CPU seconds (user and system, of all threads) of three runs: on ONNX
Runtime, on TVM with an empty cache, so that plans are compiled, and once more with the plans of that cache. They are of
the whole process, with its imports; other programs of the machine disturb them less than the wall time. A folder whose
model TVM refuses has the line of the refusal. The exit code is 1 if a metric differs by more than 0.1 %,
or a run fails otherwise.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from parts.bench import ROOT

METRIC = re.compile(r"^eval_metric (\S+)$", re.MULTILINE)
REFUSED = "TVM cannot"  # in the line of a model that its importer or compiler lacks an operator of
CLOSE = 1e-3


def folders() -> list[str]:
    """Return the example folders that have a script and a committed model, relative to ``example``."""
    found = sorted({path.parent for path in ROOT.glob("example/*/*/*.onnx")})
    return [f.relative_to(ROOT / "example").as_posix() for f in found if (f / "example_valid.py").is_file()]


def main(argv: Sequence[str] | None = None) -> int:
    """Run all folders, print a table in Markdown as they end, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="FOLDER", help="such as ocr/digit_crnn")
    parser.add_argument("--limit", type=float, default=900.0, metavar="SECONDS", help="of each run")
    args = parser.parse_args(argv)
    print("| folder | onnx | tvm | onnx, CPU s | tvm, empty cache, CPU s | tvm, cached, CPU s | |")
    print("|---|---:|---:|---:|---:|---:|---|")
    good = True
    for name in args.only or folders():
        with tempfile.TemporaryDirectory(prefix="tvm-folders-") as cache:
            line, fine = _line(name, Path(cache), args.limit)
        print(line, flush=True)
        good = good and fine
    return int(not good)


def _line(name: str, cache: Path, limit: float) -> tuple[str, bool]:
    runs: list[tuple[str, float]] = []
    for target in ("onnx", "tvm", "tvm"):
        metric, seconds, problem = _run(name, target, cache, limit)
        if problem:
            return f"| {name} | {runs[0][0] if runs else ''} | | | | | {problem} |", REFUSED in problem
        runs.append((metric, seconds))
    (onnx, *_), (tvm, _), (again, _) = runs
    close = all(abs(float(each) - float(onnx)) <= CLOSE * abs(float(onnx)) for each in (tvm, again))
    times = " | ".join(f"{seconds:.1f}" for _, seconds in runs)
    return f"| {name} | {onnx} | {tvm} | {times} | {'' if close else 'differs'} |", close


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
