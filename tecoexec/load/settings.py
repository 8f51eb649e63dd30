"""Flags of a load test, checked."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

from engine import ConfigError
from tecoinfer_modelzoo.flags import STDOUT

SCENARIOS = ("SingleStream", "MultiStream", "Offline", "Server")
"""One query after another of one sample, or of several; one query of all samples; queries at random times."""

MULTI_STREAM = 8
"""Samples per query of scenario MultiStream, by MLPerf's rules."""

SEED = 20261129
"""Seed of the samples' order and of the arrival times; MLPerf's rounds publish their own."""

_MOST_QPS = 1e6
_LONGEST = 24 * 3600.0  # seconds

FLAGS = ("target_qps", "latency_bound", "min_duration", "min_queries", "samples", "logs", "accuracy", "valid")
"""Flags that need ``--scenario``."""

SHARED = ("max_batch", "queue_delay")
"""Flags that a plan has, too."""


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """A load test.

    Attributes:
        scenario: one of :data:`SCENARIOS`. accuracy: every sample once, for the metric, instead of a measurement.
        target_qps: queries per second: of Server the rate of the arrivals, of the others LoadGen's expectation.
        latency_bound: seconds within which 99 % of the queries of Server must be answered.
        min_duration: seconds. min_queries: queries; the test lasts until both are reached.
        max_batch: most samples of a call. queue_delay: seconds a sample waits for others while the engine is idle.
        samples: number of distinct samples. logs: folder of LoadGen's logs.
        expected_qps: samples per second for which LoadGen generates queries if ``target_qps`` is not given.
        seed: of the samples' order and of the arrival times.
    """

    scenario: str
    accuracy: bool
    target_qps: float | None
    latency_bound: float | None
    min_duration: float
    min_queries: int
    max_batch: int | None
    queue_delay: float
    samples: int
    logs: Path
    expected_qps: float | None = None
    seed: int = SEED

    @property
    def samples_per_query(self) -> int | None:
        """Samples of a query; ``None``: those that LoadGen decides (Offline)."""
        return {"SingleStream": 1, "Server": 1, "MultiStream": MULTI_STREAM}.get(self.scenario)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of a load test to the command line."""
    add = parser.add_argument_group("load test by MLPerf's LoadGen (extra loadgen)").add_argument
    add("--scenario", choices=SCENARIOS, help="run a load test of this kind")
    add("--target_qps", type=float, metavar="N", help="queries per second: the rate of Server; else what is expected")
    add("--latency_bound", type=float, metavar="MS", help="Server: milliseconds for 99 percent of the queries")
    add("--min_duration", type=float, metavar="S", help="seconds at least (default: 10; MLPerf's rules: 600)")
    add("--min_queries", type=int, metavar="N", help="queries at least (default: 100)")
    add("--samples", type=int, metavar="N", help="distinct samples (default: 256, or all of --valid)")
    add("--valid", type=Path, metavar="SCRIPT", help="samples of this example_valid.py instead of random ones")
    add("--accuracy", action="store_true", help="answer every sample of --valid once, and print the task's metric")
    add("--logs", type=Path, metavar="DIR", help="folder of LoadGen's logs (default: beside --json)")
    shared = parser.add_argument_group("batching of a load test or a plan").add_argument
    shared("--max_batch", type=int, metavar="N", help="most samples of a call (a load test: that of --input_shapes)")
    shared("--queue_delay", type=float, metavar="MS", help="wait this long for a full batch (a load test: 0)")


def load_settings(args: argparse.Namespace) -> LoadSettings:
    """Return the settings of the parsed arguments; raise ConfigError for an invalid or missing one."""
    _check_numbers(args)
    if args.scenario == "Server":
        for flag, example in (("target_qps", "200"), ("latency_bound", "20")):
            if getattr(args, flag) is None and not (args.accuracy and flag == "latency_bound"):
                raise ConfigError(f"--scenario Server needs --{flag}; give it, such as --{flag} {example}")
    elif args.latency_bound is not None:
        raise ConfigError(f"--latency_bound is for --scenario Server; leave it out with {args.scenario}")
    if args.accuracy and args.valid is None:
        raise ConfigError("--accuracy needs labelled samples; name the model's script: --valid .../example_valid.py")
    bound = args.latency_bound
    return LoadSettings(
        scenario=args.scenario,
        accuracy=args.accuracy,
        target_qps=args.target_qps,
        latency_bound=None if bound is None else bound * 1e-3,
        min_duration=10.0 if args.min_duration is None else args.min_duration,
        min_queries=100 if args.min_queries is None else args.min_queries,
        max_batch=args.max_batch,
        queue_delay=(args.queue_delay or 0.0) * 1e-3,
        samples=256 if args.samples is None else args.samples,
        logs=args.logs or _beside(args.json),
    )


def _check_numbers(args: argparse.Namespace) -> None:
    _check("target_qps", args.target_qps, 0.0, _MOST_QPS, "queries per second")
    _check("latency_bound", args.latency_bound, 0.0, _LONGEST * 1e3, "milliseconds")
    _check("min_duration", args.min_duration, 0.0, _LONGEST, "seconds", zero=True)
    check_batching(args)
    for flag, most in (("min_queries", 10**8), ("samples", 10**6)):
        value = getattr(args, flag)
        if value is not None and not 1 <= value <= most:
            raise ConfigError(f"--{flag} {value} must be from 1 to {most}")


def check_batching(args: argparse.Namespace) -> None:
    """Raise ConfigError if ``--max_batch`` or ``--queue_delay`` is out of range."""
    _check("queue_delay", args.queue_delay, 0.0, _LONGEST * 1e3, "milliseconds", zero=True)
    if args.max_batch is not None and not 1 <= args.max_batch <= 2**20:
        raise ConfigError(f"--max_batch {args.max_batch} must be from 1 to {2**20} samples")


def _check(flag: str, value: float | None, least: float, most: float, unit: str, *, zero: bool = False) -> None:
    if value is None or (math.isfinite(value) and (value > least or (zero and value == least)) and value <= most):
        return
    raise ConfigError(
        f"--{flag} {value:g} must be {'at least' if zero else 'above'} {least:g} {unit}, at most {most:g}"
    )


def _beside(json: Path | None) -> Path:
    """Return the folder of the logs for the file of the results."""
    if json is None or json == STDOUT:
        return Path("tecoexec_loadgen")
    return json.with_name(f"{json.stem}_loadgen")
