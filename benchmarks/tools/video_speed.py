"""Frames per second of the digit detector on a clip, on several targets: decoding, preparing, computing, answers.

Composes a clip, runs ``example_multi_batch.py`` on it for each target in turn, ``--rounds`` times, and prints a table
of the medians. The times are those of this computer, also on ``sdaa``: they do not predict those of a card.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

MODEL = ROOT / "example" / "detection" / "digit_detector"
TARGETS = ("onnx", "sdaa", "cpu", "tvm")


def run(*words: object) -> None:
    """Run a script of the model. Raises SystemExit with its last line if it fails."""
    given = [sys.executable, *map(str, words)]
    done = subprocess.run(given, cwd=MODEL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{given[1]}: {(done.stderr.strip() or done.stdout.strip()).splitlines()[-1]}")


def measured(clip: Path, target: str, batch: int, folder: Path, *, saves: bool) -> float:
    """Return the frames per second of one run."""
    out = folder / "out.json"
    saving = ["--save", folder / "drawn"] if saves else []
    run(
        "example_multi_batch.py", "--data_path", clip, "--target", target, "--batch_size", batch, "--json", out, *saving
    )
    return float(json.loads(out.read_text())["figures"]["frames/s"])


def main() -> int:
    """Measure, print the table, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="+", default=list(TARGETS), metavar="NAME")
    parser.add_argument("--frames", type=int, default=600, help="length of the clip (default: 600)")
    parser.add_argument("--rounds", type=int, default=3, help="runs on each target (default: 3)")
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result as JSON")
    asked = parser.parse_args()
    figures: dict[str, dict[str, list[float]]] = {one: {"answers": [], "video": []} for one in asked.targets}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        clip = Path(folder, "clip.mp4")
        run("make_clip.py", clip, "--frames", asked.frames)
        for _ in range(asked.rounds):
            for target in asked.targets:
                for what, saves in (("answers", False), ("video", True)):
                    speed = measured(clip, target, asked.batch_size, Path(folder), saves=saves)
                    figures[target][what].append(speed)
    print(f"{asked.frames} frames of 320x320 pixels, batch {asked.batch_size}, medians of {asked.rounds} runs")
    print("\n| target | frames/s | frames/s with a video of the answers |\n|---|---:|---:|")
    for target, found in figures.items():
        print(f"| `{target}` | {statistics.median(found['answers']):.0f} | {statistics.median(found['video']):.0f} |")
    print(f"\n{os.cpu_count()} cores, load before the runs {load:.1f}")
    if asked.json is not None:
        result: dict[str, Any] = {"schema_version": 1, "frames": asked.frames, "batch_size": asked.batch_size}
        result |= {"frames_per_second": figures, "load_before": load, "cores": os.cpu_count()}
        asked.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
