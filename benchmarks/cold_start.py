"""Cold start: ``example_single_batch.py --target onnx`` compared with a bare script of the same function."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial

from parts.bench import DIGITS, ROOT, Turns, arguments, finish, median, take_turns

TARGET_RATIO = 1.1
IMAGE = str(DIGITS / "data/val/7/0081.png")
OURS = [str(DIGITS / "example_single_batch.py"), "--target", "onnx", "--data_path", IMAGE]
BARE = [str(ROOT / "benchmarks/parts/bare_single.py"), str(DIGITS / "digits_dyn.onnx"), IMAGE]
SHOWN_IMPORTS = 25


@dataclass(frozen=True, slots=True)
class Import:
    """One line of ``python -X importtime``; times in milliseconds."""

    module: str
    own: float
    total: float


def run_seconds(command: list[str]) -> float:
    """Return the wall seconds of one process, from its start to its end."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, capture_output=True, env=_environment())
    return time.perf_counter() - start


def _environment() -> dict[str, str]:
    # Both sides start from cached bytecode, as on any machine from the second run on.
    return {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}


def imports(command: list[str]) -> list[Import]:
    """Return what a script imports, with its own and its cumulative time."""
    run = [sys.executable, "-X", "importtime", *command]
    printed = subprocess.run(run, check=True, capture_output=True, text=True, env=_environment()).stderr
    rows = [line.removeprefix("import time:").split("|") for line in printed.splitlines() if "|" in line]
    return [Import(name.strip(), int(own) / 1e3, int(total) / 1e3) for own, total, name in rows[1:]]


def print_imports() -> list[Import]:
    """Print the imports of our script that the bare one lacks, the slowest first."""
    bare = {entry.module for entry in imports(BARE)}
    extra = sorted((e for e in imports(OURS) if e.module not in bare), key=lambda entry: -entry.own)
    print(f"imported by ours only: {len(extra)} modules, {sum(e.own for e in extra):.1f} ms; the dearest:")
    print(f"{'own ms':>8} {'all ms':>8}  module")
    for entry in extra[:SHOWN_IMPORTS]:
        print(f"{entry.own:8.2f} {entry.total:8.2f}  {entry.module}")
    return extra


def report(turns: Turns) -> dict[str, object]:
    """Print and return the figures."""
    ours, bare = median(turns.ours), median(turns.peer)
    verdict = "met" if turns.ratio <= TARGET_RATIO else "MISSED"
    print(f"example_single_batch.py --target onnx: {ours * 1e3:7.1f} ms (median of {len(turns.ours)} processes)")
    print(f"bare onnxruntime + numpy + PIL script: {bare * 1e3:7.1f} ms (the limit)")
    print(f"ratio: {turns.ratio:.3f} (target: at most {TARGET_RATIO}; {verdict})")
    seconds = {"ours_seconds": ours, "bare_seconds": bare, "ours_runs": turns.ours, "bare_runs": turns.peer}
    return {**seconds, "ratio": turns.ratio, "target_ratio": TARGET_RATIO}


def main() -> int:
    """Run the benchmark."""
    parser = arguments(__doc__)
    parser.add_argument("--runs", type=int, default=20, help="processes per side")
    parser.add_argument("--imports", action="store_true", help="also list the imports of our script only")
    args = parser.parse_args()
    ours, bare = partial(run_seconds, OURS), partial(run_seconds, BARE)
    take_turns(ours, bare, 1 if args.quick else 3)  # files and bytecode into the caches
    result = report(take_turns(ours, bare, 2 if args.quick else args.runs))
    if args.imports:
        result["imports"] = [{"module": e.module, "own_ms": e.own, "total_ms": e.total} for e in print_imports()]
    finish("cold_start", result, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
