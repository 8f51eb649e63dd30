"""The zoo's own latencies of a load test, and their comparison with LoadGen's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from engine import Array
from tecoexec.load.logs import PERCENTILES
from tecoexec.load.schedule import VERSION, scheduled_times
from tecoexec.load.settings import LoadSettings
from tecoexec.load.sut import Served

RECONCILED = 0.02
"""Largest relative difference of a percentile to LoadGen's that is not reported."""


CLOCKS_APART = 50e-6
"""Seconds within which a difference is not reported: both sides read their clocks some microseconds apart."""


class Queries(NamedTuple):
    """Own times of all queries, in order of issue; float64 seconds on one clock.

    For Offline, whose only query is all samples, each sample is an entry.

    Attributes:
        due: from when the latency counts: the scheduled time of Server, else when the query was received.
        received: when it was received. completed: when its last answer was ready. answered: when LoadGen had it.
    """

    due: Array
    received: Array
    completed: Array
    answered: Array

    @property
    def latency(self) -> Array:
        """Seconds of each query."""
        return self.completed - self.due


def queries_of(served: Sequence[Served], settings: LoadSettings, version: str) -> Queries:
    """Return the queries of a test.

    Args:
        served: the batches in any order. version: of LoadGen; another major version than 6 may have another schedule,
            and its queries are then due when they were received.
    """
    per_sample = settings.scenario == "Offline"
    found: dict[int, list[float]] = {}
    for batch in served:
        for sample in batch.samples:
            key = sample.identifier if per_sample else sample.query
            times = found.setdefault(key, [sample.received, 0.0, 0.0])
            times[1], times[2] = max(times[1], batch.completed), max(times[2], batch.answered)
    table = np.array([found[key] for key in sorted(found)], np.float64).reshape(-1, 3)
    received, completed, answered = table.T
    due = received
    if settings.scenario == "Server" and settings.target_qps and version.split(".")[0] == VERSION:
        due = scheduled_times(received, settings.seed, settings.target_qps)
    return Queries(due, received, completed, answered)


def spread(seconds: Array) -> dict[str, float]:
    """Return minimum, maximum, mean and LoadGen's percentiles in seconds.

    A percentile is LoadGen's: the element at index ``floor(count * percentile)`` of the sorted values
    (``loadgen/results.cc``).
    """
    ordered = np.sort(seconds)
    places = {p: min(len(ordered) - 1, int(len(ordered) * p / 100)) for p in PERCENTILES}
    figures = {"min": ordered[0], "max": ordered[-1], "mean": ordered.mean()}
    figures |= {f"percentile_{p:g}": ordered[place] for p, place in places.items()}
    return {name: float(value) for name, value in figures.items()}


def differences(own: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Return own percentiles over LoadGen's, minus 1, by name."""
    names = [name for name in own if name.startswith("percentile_") and other.get(name)]
    return {name: own[name] / other[name] - 1 for name in names}
