"""The speed part of a check: times of a run compared with the stored ones of the same case.

Simulated times do not depend on the host and are compared directly. Host times are first divided by the time of a fixed
calibration kernel on the same cores, to compensate for a different or busy machine.
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

from engine.host import processor_name
from model_config.results import Speed, StepResult, Verdict
from model_config.written import STRANGE, read_json

if TYPE_CHECKING:
    from collections.abc import Iterator

BUCKETS = (2.0, 1.5, 1.2, 1.05)
"""Bounds on the ratio to the stored figure; the largest bound that is reached names the bucket."""

SIMULATED_LIMIT = 1.05
"""Ratio at which a simulated time fails; it is computed, so a difference is a change of the model or the zoo."""

HOST_LIMIT = 2.0
"""Ratio at which a host time fails, if all of :data:`TRIES` runs reach it."""

TRIES = 3

_HOST = "host time per sample over the calibration kernel's"

MIN_SECONDS = 1.0
"""Minimum wall time in seconds for judging a host time; shorter runs are dominated by thread start-up."""


def figures(valid: StepResult, kernel: float) -> dict[str, Any]:
    """Return a run's figures: ``simulated_s`` and ``host_s`` per sample, ``kernel_s``, and ``run_s`` of the whole run.

    Args:
        valid: a valid step that passed.
        kernel: time of :func:`kernel_seconds` measured with it.
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
    except STRANGE:  # a JSON file of another format
        return {}
    return found


def judge_speed(
    now: Mapping[str, float],
    stored: Mapping[str, Any],
    again: Callable[[], Mapping[str, float]],
    *,
    host: bool = True,
) -> list[Speed]:
    """Compare figures with those stored for the same case; without stored figures the verdict is ``NONE``.

    Args:
        now: result of :func:`figures`.
        stored: figures of the scorecard, with the ``processor`` they were measured on.
        again: repeats the run and returns the figures; called if the host time is too slow.
        host: also judge host times; false on a machine with unreliable times.
    """
    judged = []
    if "simulated_s" in now:
        judged.append(_simulated(now["simulated_s"], stored.get("simulated_s")))
    if "host_s" in now:
        judged.append(_host(now, stored, again) if host else _not_judged(now, "--no_host_speed"))
    return judged


def bucket_of(ratio: float) -> str:
    """Return the bucket of a ratio to the stored time."""
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


def _not_judged(now: Mapping[str, float], why: str, baseline: float | None = None) -> Speed:
    return Speed(Verdict.NONE, f"{_HOST}: {why}", _HOST, _relative(now), "ratio", baseline)


def _host(now: Mapping[str, float], stored: Mapping[str, Any], again: Callable[[], Mapping[str, float]]) -> Speed:
    what, unit = _HOST, "ratio"
    value = _relative(now)
    if not stored.get("host_s") or not stored.get("kernel_s"):
        return _not_judged(now, "nothing stored to compare with")
    # Vector instructions differ between processors, and the calibration kernel uses none.
    if stored.get("processor") != processor_name():
        where = stored.get("processor") or "an unknown processor"
        return _not_judged(now, f"stored on {where}, measured on {processor_name()}", _relative(stored))
    if now["run_s"] < MIN_SECONDS:
        return _not_judged(now, f"a run of {now['run_s']:.2g} s is too short to be judged", _relative(stored))
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
    """Return bytes that compress like text, the same in every process."""
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
    """Bind this thread to some cores."""
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
