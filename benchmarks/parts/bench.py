"""Shared functions of the benchmarks: alternating measurements, medians and ratios, and storing of results.

Import it before ``engine`` and ``utils``: it puts the repository on the path.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from utils.pipeline.report.report import environment, write_json  # noqa: E402

SCHEMA_VERSION = 1
"""Version of the benchmarks' JSON layout; raised when a field changes its meaning or is removed."""

DIGITS = ROOT / "example/classification/digits"

_LOAD = os.getloadavg()[0] if hasattr(os, "getloadavg") else None  # at the start: who else was busy


@dataclass(frozen=True, slots=True)
class Turns:
    """Alternating measurements of two contestants: ``ours[i]`` and ``peer[i]`` are of the same round.

    The caller defines the unit; smaller is better.
    """

    ours: list[float]
    peer: list[float]

    @property
    def ratio(self) -> float:
        """Ours over the peer's: the median over the rounds, in which slow phases of the machine affect both."""
        return statistics.median(a / b for a, b in zip(self.ours, self.peer, strict=True))

    @property
    def difference(self) -> float:
        """Ours less the peer's: the median over the rounds."""
        return statistics.median(a - b for a, b in zip(self.ours, self.peer, strict=True))


def take_turns(ours: Callable[[], float], peer: Callable[[], float], rounds: int) -> Turns:
    """Measure two contestants ``rounds`` times; the order changes every round, so that drift favours neither."""
    turns = Turns([], [])
    for index in range(rounds):
        pair = [(ours, turns.ours), (peer, turns.peer)]
        for measure, results in pair if index % 2 == 0 else reversed(pair):
            results.append(measure())
    return turns


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
"""Clocks of a benchmark's ``--clock``: if other programs run, only the processor time of the process has a meaning."""


def median(values: list[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the flags every benchmark has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the result as JSON")
    parser.add_argument("--quick", action="store_true", help="a few repetitions only, to test that it runs")
    return parser


def finish(name: str, result: Mapping[str, Any], args: argparse.Namespace) -> None:
    """Write the result with its schema version, time and environment to ``--json``."""
    if args.json is None:
        return
    found = environment()
    found["environment"] |= {"onnxruntime": version("onnxruntime"), "pillow": version("pillow")}
    found["environment"]["load_1min"] = _LOAD
    when = datetime.now(timezone.utc).isoformat(timespec="seconds")
    head = {"schema_version": SCHEMA_VERSION, "benchmark": name, "quick": args.quick, "measured": when}
    write_json({**head, **result, **found}, args.json)
