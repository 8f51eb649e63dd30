"""Saved engines: opening ResNet50 from its ``.tecoengine`` compared with building it from ONNX, on target ``sdaa``.

Both are host wall time. A start is a fresh process: its time is from before ``import engine`` until the engine is open.
A reopening is another engine in a process that has already done all imports and the check of the pass.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from parts.bench import ROOT, Turns, arguments, finish, median, take_turns

from engine import PASS_PATH, EngineSpec
from engine.sdaa import SdaaEngine, saved_path

TARGET_RATIO = 1 / 3
WORK = ROOT / "benchmarks/results/saved_engine"
EXPORT = ROOT / "example/classification/resnet/export_onnx.py"
PASS = PASS_PATH / "resnet/resnet_pass.py"
SHAPE = (4, 3, 224, 224)
BATCH = 16

START = """
import sys, time
start = time.perf_counter()
from pathlib import Path
from engine import PASS_PATH, EngineSpec, open_engine
options = {"batch_size": 16, "input_size": ((4, 3, 224, 224),), "pass_path": PASS_PATH / "resnet/resnet_pass.py"}
engine = open_engine("sdaa", EngineSpec(Path(sys.argv[1]), **options))
print(time.perf_counter() - start, engine.loaded)
engine.release()
"""
"""Code of a new process, with the path of an ONNX file; a saved engine next to the file is loaded instead."""


def resnet50() -> tuple[Path, Path]:
    """Return the same ONNX file in two folders, the second with its saved engine; created on first use."""
    plain, kept = WORK / "plain/resnet50_dyn.onnx", WORK / "kept/resnet50_dyn.onnx"
    for path in (plain, kept):
        path.parent.mkdir(parents=True, exist_ok=True)
    if not plain.is_file():
        export = [sys.executable, str(EXPORT), "--weights", "random", "--out", str(plain.parent)]
        subprocess.run(export, check=True, capture_output=True)
    kept.write_bytes(plain.read_bytes())  # two exports would draw different weights
    SdaaEngine(spec(kept), save_to=saved_path(kept)).release()
    return plain, kept


def spec(path: Path) -> EngineSpec:
    """Return the files to open, with and without a saved engine."""
    return EngineSpec(path, BATCH, (SHAPE,), pass_path=PASS)


def start_seconds(path: Path, loaded: bool) -> float:
    """Open the model in a new process; return the seconds measured by it."""
    done = subprocess.run(
        [sys.executable, "-c", START, str(path)], capture_output=True, text=True, check=True, cwd=ROOT
    )
    seconds, found = done.stdout.split()
    assert found == str(loaded), "the saved engine was not the one expected; did the code change meanwhile?"
    return float(seconds)


def reopen_seconds(path: Path, loaded: bool) -> float:
    """Open the model in this process."""
    start = time.perf_counter()
    engine = SdaaEngine(spec(path))
    seconds = time.perf_counter() - start
    assert engine.loaded == loaded
    engine.release()
    return seconds


def check_equal(plain: Path, kept: Path) -> None:
    """Check that the outputs of both are equal bit for bit."""
    x = np.random.default_rng(0).standard_normal((BATCH, *SHAPE[1:])).astype(np.float16)
    with SdaaEngine(spec(plain)) as built, SdaaEngine(spec(kept)) as loaded:
        assert (built.loaded, loaded.loaded) == (False, True)
        assert np.array_equal(np.asarray(built(x)), np.asarray(loaded(x)))
        assert built.cost == loaded.cost


def report(name: str, turns: Turns) -> dict[str, object]:
    """Print and return the figures of one comparison."""
    loading, building = median(turns.ours), median(turns.peer)
    verdict = "met" if turns.ratio <= TARGET_RATIO else "MISSED"
    print(f"{name}: loading {loading * 1e3:7.0f} ms, building {building * 1e3:7.0f} ms (medians of {len(turns.ours)})")
    print(f"{name}: {1 / turns.ratio:.1f} times faster (target: at least {1 / TARGET_RATIO:.0f}; {verdict})")
    seconds = {"loading_seconds": loading, "building_seconds": building, "times_faster": 1 / turns.ratio}
    return {**seconds, "loading_runs": turns.ours, "building_runs": turns.peer}


def main() -> int:
    """Run the benchmark."""
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="starts, and reopenings, per side")
    args = parser.parse_args()
    rounds = 1 if args.quick else args.rounds
    plain, kept = resnet50()
    check_equal(plain, kept)  # also brings files, bytecode and imports into the caches
    result: dict[str, object] = {
        "target_times_faster": 1 / TARGET_RATIO,
        "model": "resnet50, random weights",
        "batch": BATCH,
    }
    measures: dict[str, Callable[[Path, bool], float]] = {"start": start_seconds, "reopening": reopen_seconds}
    for name, measure in measures.items():
        turns = take_turns(partial(measure, kept, True), partial(measure, plain, False), rounds)
        result[name] = report(name, turns)
    result["onnx_bytes"], result["saved_bytes"] = plain.stat().st_size, saved_path(kept).stat().st_size
    finish("saved_engine", result, args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
