"""The arrival times of LoadGen's scenario Server, computed again from its seed.

LoadGen counts a query's latency from the time for which it was scheduled, which it does not report. Its schedule is
``std::exponential_distribution`` over ``std::mt19937`` (``loadgen/loadgen.cc``, ScheduleDistribution, MLCommons
Inference 6.0) with the arithmetic of libstdc++: a uniform number of two 32-bit words, the lower one first, and
``-log(1 - u) / rate``.
"""

from __future__ import annotations

import numpy as np

from engine import Array

VERSION = "6"
"""Major version of LoadGen whose schedule this is."""


def server_schedule(seed: int, rate: float, count: int) -> Array:
    """Return the scheduled times of ``count`` queries in seconds since the first of them.

    Args:
        seed: ``schedule_rng_seed``, 0 to 2**32 - 1. rate: queries per second.
    """
    words = np.random.RandomState(seed)._bit_generator.random_raw(2 * max(count, 1)).astype(np.float64)
    gaps = -np.log1p(-(words[0::2] + words[1::2] * 2.0**32) * 2.0**-64) / rate
    return np.concatenate([[0.0], np.cumsum(gaps)[: max(count, 1) - 1]])[:count]


def scheduled_times(received: Array, seed: int, rate: float) -> Array:
    """Return when the queries were due, in seconds on the clock of ``received``, in the same order.

    The start of the test is not reported either; no query is issued before it is due, so it is the latest one at which
    none would be.

    Args:
        received: when each query was received, in seconds, in the order of issue.
    """
    if not len(received):
        return received
    due = server_schedule(seed, rate, len(received))
    shifted: Array = due + np.min(received - due)
    return shifted
