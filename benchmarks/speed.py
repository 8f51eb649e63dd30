"""All speed targets of the project in one run: every figure beside its peer, its limit and its target.

The scripts that measure run one after another; their output is shown, and a table of the figures at the end. Results
are kept as JSON in ``--work``: ``--kept`` uses those of earlier runs instead of measuring again, so that an interrupted
run continues. Takes about an hour on 2 cores, which nothing else may use.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from parts.bench import ROOT, arguments, finish

WORK = ROOT / "benchmarks/results/speed"


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure with its target: ``at_least`` or, if that is false, at most."""

    what: str
    value: float
    target: float
    at_least: bool

    @property
    def met(self) -> bool:
        """Whether the figure is good enough."""
        return self.value >= self.target if self.at_least else self.value <= self.target


@dataclass(frozen=True, slots=True)
class Part:
    """A script with its flags, and what its JSON says of the targets."""

    words: Sequence[str]
    figures: Callable[[Any], Iterator[Figure]]
    quick: bool = True
    """Whether it has a short form, for ``--quick``."""


def _throughput(found: Any) -> Iterator[Figure]:
    for model in found["models"]:
        for target in model["targets"]:
            yield Figure(f"{model['model']}: {target['what']}", target["value"], target["at_least"], True)


def _end_to_end(found: Any) -> Iterator[Figure]:
    for row in found["rows"]:
        if row["model"] == "digits":
            yield Figure(f"digits on {row['target']}: evaluate / plain loop", row["speedup"], 1.0, True)


def _preprocess(found: Any) -> Iterator[Figure]:
    limits = {"exact": 0.85, "reduced": 0.7}
    for row in found["rows"]:
        decode, _, how = row["contestant"].partition(", ")
        if row["case"] == "JPEG 500x375" and how == "C extension" and decode in limits:
            yield Figure(f"{row['case']}: {decode}, ms of CPU time", 1e3 * row["seconds"], limits[decode], False)


def _cold_start(found: Any) -> Iterator[Figure]:
    yield Figure("cold start / bare script", found["ratio"], 1.1, False)


def _overhead(found: Any) -> Iterator[Figure]:
    yield Figure("a call / bare session.run, microseconds more", found["overhead_us"], found["target_us"], False)


def _int8(found: Any) -> Iterator[Figure]:
    for key, name, least in (("resnet50", "resnet50", 4.5), ("minilm", "MiniLM", 2.4)):
        runs = [
            run
            for recipe in found["models"].get(key, {}).values()
            for run in recipe.get("runtimes", {}).values()
            if run.get("cosine", 1.0) >= found["bound"]
        ]
        if runs:
            yield Figure(f"{name}: int8 / float32 on ONNX Runtime", max(r["times_baseline"] for r in runs), least, True)


def _opening(found: Any) -> Iterator[Figure]:
    for row in found["rows"]:
        if row["target"] == "sdaa":
            yield Figure(f"{row['model']} {row['dtype']}: opening on sdaa / ONNX Runtime", row["ratio"], 2.0, False)


def _spa_split(found: Any) -> Iterator[Figure]:
    yield Figure("worst of 4 SPA / one, host time", 1 + found["worst_cost"], 1 + found["target"], False)
    for row in found["float16"]:
        yield Figure(f"{row['model']}: sdaa float16 / onnx float32", row["ratio"], 1.15, False)


def _compare_cost(found: Any) -> Iterator[Figure]:
    for model in found["models"]:
        for kind, what in (("accumulated", "without isolated errors"), ("compare", "with isolated errors")):
            value = model["ratios"][f"calls_only {kind}"]
            yield Figure(f"{model['model']}: teco compare / bare calls, {what}", value, 3.0, False)


def _check_time(found: Any) -> Iterator[Figure]:
    for run, limit in zip(found["runs"], (240.0, 10.0), strict=True):
        yield Figure(f"teco check of {run['cases']} cases, {run['what']}, seconds", run["seconds"], limit, False)


PARTS = {
    "cold_start": Part(["cold_start.py", "--runs", "30"], _cold_start),
    "engine_overhead": Part(["engine_overhead.py"], _overhead),
    "preprocess": Part(["preprocess.py"], _preprocess),
    "end_to_end": Part(["end_to_end.py"], _end_to_end),
    "opening": Part(["opening.py"], _opening),
    "spa_split": Part(["spa_split.py"], _spa_split),
    "int8": Part(["int8.py"], _int8),
    "compare_cost": Part(["tools/compare_cost.py", "--no_peers"], _compare_cost),
    "throughput": Part(["throughput.py"], _throughput),
    "check_time": Part(["tools/check_time.py"], _check_time, quick=False),
}


def measured(name: str, args: Any) -> Any | None:
    """Return the JSON of a part, run now or, with ``--kept``, before; ``None`` if its script failed."""
    path = args.work / f"{name}.json"
    if not (args.kept and path.is_file()):
        path.unlink(missing_ok=True)
        words = [*PARTS[name].words, "--json", str(path)]
        if args.quick:
            words.append("--quick")
        print(f"\n== {' '.join(words)}", flush=True)
        code = subprocess.run([sys.executable, *words], cwd=ROOT / "benchmarks", check=False).returncode
        if not path.is_file():
            print(f"{name}: exit code {code}, no result", file=sys.stderr)
            return None
    return json.loads(path.read_text(encoding="utf-8"))


def main() -> int:
    """Run the parts, and print their figures."""
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="which parts")
    parser.add_argument("--kept", action="store_true", help="use the results in --work instead of measuring again")
    parser.add_argument("--work", type=Path, default=WORK, help="folder of the results")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    figures: list[tuple[str, Figure]] = []
    missing = []
    for name in args.only:
        if args.quick and not PARTS[name].quick:
            continue
        found = measured(name, args)
        if found is None:
            missing.append(name)
        else:
            figures += [(found.get("measured", ""), figure) for figure in PARTS[name].figures(found)]
    print(f"\n{'figure':72} {'value':>8} {'target':>12}")
    for _, figure in figures:
        target = f"{'>=' if figure.at_least else '<='} {figure.target:g}"
        print(f"{figure.what:72} {figure.value:8.3f} {target:>12}  {'met' if figure.met else 'MISSED'}")
    rows = [asdict(figure) | {"met": figure.met, "measured": when} for when, figure in figures]
    finish("speed", {"figures": rows, "missing": missing}, args)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
