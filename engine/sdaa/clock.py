"""Virtual time: when a SPA copies and computes. Never mixed with the host's own time in one figure."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from engine.sdaa.cost import IO_BUFFERS


class ShardTimes(NamedTuple):
    """When one shard was copied in, computed and copied out: pairs of simulated seconds (start, end)."""

    copy_in: tuple[float, float]
    compute: tuple[float, float]
    copy_out: tuple[float, float]

    @property
    def end(self) -> float:
        """When its results were on the host."""
        return self.copy_out[1]


class CallTimes(NamedTuple):
    """Simulated times of one call to the whole card, in seconds.

    Each phase is that of the SPA that spends most time in it, summed over its shards of the call.
    ``submitted`` is when the host handed it over, ``started`` when the first copy began.
    """

    submitted: float
    started: float
    completed: float
    copy_in: float
    compute: float
    copy_out: float

    @property
    def latency(self) -> float:
        """From the submission to the last result, waiting behind queued calls included."""
        return self.completed - self.submitted


class SpaClock:
    """One SPA's two copy engines and compute array: each does one thing at a time, all three at once.

    A copy in needs a free input buffer, and computing a free output buffer: with two of each, call ``i`` is not copied
    in before call ``i - 2`` has been computed, nor computed before the results of call ``i - 2`` have been copied out.
    """

    def __init__(self) -> None:
        self._copy_in = self._compute = self._copy_out = 0.0
        self._computed: deque[float] = deque([0.0] * IO_BUFFERS, maxlen=IO_BUFFERS)
        self._copied: deque[float] = deque([0.0] * IO_BUFFERS, maxlen=IO_BUFFERS)

    def schedule(self, submitted: float, copy_in: float, compute: float, copy_out: float) -> ShardTimes:
        """Put one shard behind what is already scheduled.

        Args:
            submitted: when the host hands it over. copy_in, compute, copy_out: how long each takes.
        """
        start = max(submitted, self._copy_in, self._computed[0])
        self._copy_in = start + copy_in
        begin = max(self._copy_in, self._compute, self._copied[0])
        self._compute = begin + compute
        self._computed.append(self._compute)
        out = max(self._compute, self._copy_out)
        self._copy_out = out + copy_out
        self._copied.append(self._copy_out)
        return ShardTimes((start, self._copy_in), (begin, self._compute), (out, self._copy_out))
