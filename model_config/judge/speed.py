"""The speed part of a check: what a run took, beside what is stored for the same case.

Simulated times do not depend on the host, so they are compared as they are. Host times are first divided by what a
fixed piece of work, run beside them on the same cores, takes: another machine, or a busy one, changes both.
"""

from __future__ import annotations

import os
import statistics
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from model_config.results import Speed, StepResult, Verdict
from model_config.written import STRANGE, read_json

if TYPE_CHECKING:
    from collections.abc import Iterator

BUCKETS = (2.0, 1.5, 1.2, 1.05)
"""How many times slower than the stored figure; the largest bound that is reached names the bucket."""

SIMULATED_LIMIT = 1.05
"""A simulated time is computed, not measured: what is this much slower is a change of the model or the zoo."""

HOST_LIMIT = 2.0
"""A host time fails only where every one of :data:`TRIES` runs is this many times slower than stored."""

TRIES = 3

MIN_SECONDS = 1.0
"""Wall seconds below which a host time says more of the start of threads than of the model: it is not judged."""


def figures(valid: StepResult, kernel: float) -> dict[str, Any]:
    """Return a run's speed figures: ``simulated_s`` and ``host_s`` per sample, ``kernel_s``, and ``run_s`` of it all.

    Args:
        valid: a valid step that passed.
        kernel: seconds of :func:`kernel_seconds` beside it.
    """
    if valid.result is None:
        return {}
    try:
        result = read_json(valid.result)
        found = {"host_s": 1 / float(result["avg_sps"]), "kernel_s": kernel, "run_s": float(result["e2e_time"])}
        device = result.get("device") or {}
        if device.get("simulated_sps"):
            found |= {
                "simulated_s": 1 / float(device["simulated_sps"]),
                "simulated_latency_s": float(device["simulated_latency"]),
            }
    except STRANGE:  # a script with a JSON of its own
        return {}
    return found


def judge_speed(
    now: Mapping[str, float], stored: Mapping[str, float], again: Callable[[], Mapping[str, float]]
) -> list[Speed]:
    """Compare figures with those stored for the same case; nothing stored is no verdict.

    Args:
        now, stored: as :func:`figures` gives them.
        again: runs once more and returns the figures; called where the host seems to be slower than it may be.
    """
    judged = []
    if "simulated_s" in now:
        judged.append(_simulated(now["simulated_s"], stored.get("simulated_s")))
    if "host_s" in now:
        judged.append(_host(now, stored, again))
    return judged


def bucket_of(ratio: float) -> str:
    """Return the bucket of a time that is ``ratio`` times the stored one."""
    bound = next((bound for bound in BUCKETS if ratio >= bound), None)
    if bound is not None:
        return f"{bound:g}"
    return "faster" if ratio <= 1 / BUCKETS[-1] else "same"


def _simulated(value: float, baseline: float | None) -> Speed:
    what, unit = "simulated time per sample", "s"
    if not baseline:
        return Speed(Verdict.NONE, f"{what}: nothing stored to compare with", what, value, unit)
    ratio = value / baseline
    verdict = Verdict.FAIL if ratio >= SIMULATED_LIMIT else Verdict.PASS
    reason = f"{what}: {value:.3g} s, {ratio:.3f} times the stored {baseline:.3g} s"
    if verdict is Verdict.FAIL:
        reason += "; find what slows it down, or store the new figure with --update"
    return Speed(verdict, reason, what, value, unit, baseline, ratio, bucket_of(ratio))


def _relative(found: Mapping[str, float]) -> float:
    return found["host_s"] / found["kernel_s"]


def _host(now: Mapping[str, float], stored: Mapping[str, float], again: Callable[[], Mapping[str, float]]) -> Speed:
    what, unit = "host time per sample over the calibration kernel's", "ratio"
    value = _relative(now)
    if not stored.get("host_s") or not stored.get("kernel_s"):
        return Speed(Verdict.NONE, f"{what}: nothing stored to compare with", what, value, unit)
    if now["run_s"] < MIN_SECONDS:
        short = f"{what}: a run of {now['run_s']:.2g} s is too short to be judged"
        return Speed(Verdict.NONE, short, what, value, unit, _relative(stored))
    baseline, tries = _relative(stored), 1
    while value / baseline >= HOST_LIMIT and tries < TRIES:
        other = again()
        value = min(value, _relative(other)) if "host_s" in other else value
        tries += 1
    ratio = value / baseline
    verdict = Verdict.FAIL if ratio >= HOST_LIMIT else Verdict.PASS
    reason = f"{what}: {ratio:.2f} times the stored one"
    if verdict is Verdict.FAIL:
        reason += f" in the best of {tries} runs; find what slows it down, or store the new figure with --update"
    return Speed(verdict, reason, what, value, unit, baseline, ratio, bucket_of(ratio))


@cache
def _work() -> bytes:
    """Return bytes that compress like text: the same in every process."""
    return b"".join(b"%d %d\n" % (i * i, i * 7919 % 104729) for i in range(10_000))


def kernel_seconds(cores: tuple[int, ...] = ()) -> float:
    """Return the seconds of the calibration kernel: zlib over a fixed text, one thread, median of seven.

    Args:
        cores: the cores to run on; empty for any.
    """
    data = _work()
    with _bound(cores):
        times = []
        for _ in range(7):
            start = time.perf_counter()
            zlib.compress(data, 6)
            times.append(time.perf_counter() - start)
    return statistics.median(times)


@contextmanager
def _bound(cores: tuple[int, ...]) -> Iterator[None]:
    """Keep this thread on some cores."""
    if not cores or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


__all__ = ["BUCKETS", "bucket_of", "figures", "judge_speed", "kernel_seconds"]
