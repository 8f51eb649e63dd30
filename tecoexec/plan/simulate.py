"""Discrete-event simulation of requests, a queue, batches and identical servers."""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engine import Array

Service = Callable[[int, float], float]
"""Number of samples of a batch, and the time of its start in seconds -> seconds a server needs for it."""

SEED = 20261129
"""Seed of arrivals and service times."""

GROUPS = 20
"""Groups of consecutive requests of a confidence interval (:func:`confidence`)."""

_STUDENT = 2.093  # 97.5 % point of Student's t distribution with 19 degrees of freedom


@dataclass(frozen=True, slots=True)
class Policy:
    """A batching policy: a free server takes the oldest requests, at most ``max_batch``.

    With a ``delay`` (seconds) it waits until the oldest one has waited that long, or the batch is full.
    """

    max_batch: int
    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Simulation:
    """Result of a simulation.

    Attributes:
        latency: float64 seconds of every request that counts, in order of arrival.
        batches: number of batches. samples: requests in them, with those that do not count.
        utilisation: share of time in which the servers compute, 0 to 1, from the first arrival to the last end.
    """

    latency: Array
    batches: int
    samples: int
    utilisation: float

    @property
    def mean_batch(self) -> float:
        """Mean number of requests of a batch."""
        return self.samples / self.batches

    def percentile(self, p: float) -> float:
        """Return the latency in seconds that ``p`` percent of the requests do not exceed."""
        return quantile(self.latency, p)

    def interval(self, p: float) -> tuple[float, float]:
        """Return the 95 % confidence interval of :meth:`percentile` in seconds."""
        return confidence(self.latency, lambda some: quantile(some, p))


def quantile(values: Array, p: float) -> float:
    """Return the ``p``-th percentile as LoadGen defines it: index ``floor(count * p / 100)`` of the sorted values."""
    place = min(len(values) - 1, int(len(values) * p / 100))
    return float(np.partition(values, place)[place])


def confidence(values: Array, statistic: Callable[[Array], float], groups: int = GROUPS) -> tuple[float, float]:
    """Return the 95 % confidence interval of a statistic of a correlated sequence, by batch means.

    The sequence is cut into 20 groups, long enough that their values are nearly independent (A. M. Law, Simulation
    Modeling and Analysis, 5th edition, 2015, section 9.5.3); their mean plus and minus Student's t times its standard
    error. Fewer than two values per group: infinite bounds.
    """
    if len(values) < 2 * groups:
        return -math.inf, math.inf
    found = np.array([statistic(some) for some in np.array_split(values, groups)])
    half = _STUDENT * float(found.std(ddof=1)) / math.sqrt(groups)
    return float(found.mean()) - half, float(found.mean()) + half


def poisson(rate: float, count: int, seed: int = SEED) -> Array:
    """Return ``count`` arrival times of a Poisson process in seconds, float64; ``rate``: arrivals per second."""
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count))


def simulate(
    arrivals: Array | Sequence[float], service: Service, servers: int, policy: Policy, warm_up: int = 0
) -> Simulation:
    """Simulate requests in one queue, first come first served, on identical servers.

    A batch is on one server from its start to its end; the copies of the next one do not overlap with it.

    Args:
        arrivals: times in seconds, not decreasing, at least one.
        service: called once per batch, in order of their starts.
        servers: at least 1.
        warm_up: number of first requests that do not count, so that the result is that of a long run.
    """
    times = np.asarray(arrivals, np.float64).tolist()
    free = [times[0]] * servers  # a heap of the times at which servers become free
    ends: list[float] = []
    first, count, batches, busy = 0, len(times), 0, 0.0
    while first < count:
        full = first + policy.max_batch - 1
        ready = times[first] + policy.delay
        if full < count:
            ready = min(ready, times[full])
        start = max(free[0], ready)
        last = bisect_right(times, start, first, min(full + 1, count))
        seconds = service(last - first, start)
        heapq.heapreplace(free, start + seconds)
        ends += [start + seconds] * (last - first)
        busy += seconds
        batches += 1
        first = last
    latency = np.asarray(ends) - np.asarray(times)
    span = max(ends) - times[0]
    return Simulation(latency[min(warm_up, count - 1) :], batches, count, busy / (servers * span) if span else 0.0)
