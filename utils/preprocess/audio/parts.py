"""Long recordings in parts, cut at quiet places so that words stay whole."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from engine import Array

QUIET = 0.25
"""Share of a part, at its end, that is searched for the quietest place."""

BLOCKS = 100
"""Blocks of that share whose energies are compared."""


def quiet_parts(samples: Array, most: int) -> Iterator[Array]:
    """Yield a recording in parts of at most ``most`` samples.

    A part ends in the middle of the quietest hundredth of its last quarter; the last part is the remainder, and an
    empty recording is one part.
    """
    while len(samples) > most:
        begin = max(1, round(most * (1 - QUIET)))
        block = max(1, (most - begin) // BLOCKS)
        tail = samples[begin:most]
        blocks = tail[: len(tail) // block * block].reshape(-1, block).astype(np.float64)
        cut = begin + (int((blocks**2).sum(axis=1).argmin()) * block + block // 2 if len(blocks) else 0)
        yield samples[:cut]
        samples = samples[cut:]
    yield samples
