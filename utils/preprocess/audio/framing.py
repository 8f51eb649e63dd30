"""Which samples a frame of sound holds, at a recording's ends too, whether all of it is there or it still comes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine import Array

EDGES = ("reflect", "repeat", "zero", "none")
"""What a frame holds before the first sample and behind the last: the sound backwards, without the sample at the edge
(numpy's ``reflect``) or with it (``symmetric``); silence; or nothing, there are only frames that fit."""


class Grid(NamedTuple):
    """How a recording is cut into frames.

    Attributes:
        size: samples of a frame. hop: samples from one to the next. first: where the first begins; below 0: before the
            recording.
        reach: samples that a recording of ``n`` must have for ``1 + (n - reach) // hop`` frames.
        edges: one of :data:`EDGES`.
    """

    size: int
    hop: int
    first: int
    reach: int
    edges: str

    def count(self, samples: int) -> int:
        """Return how many frames a recording of so many samples has."""
        return max(0, 1 + (samples - self.reach) // self.hop) if samples else 0

    def ready(self, samples: int) -> int:
        """Return how many frames can be cut of the begin of a recording, of which so many samples are known."""
        if -self.first >= samples:  # the begin, reflected, may reach further than what is known
            return 0
        return min(self.count(samples), max(0, 1 + (samples - self.size - self.first) // self.hop))

    def cut(self, samples: Array, begin: int, frames: range, total: int | None = None) -> Array:
        """Return some frames, [len(frames), size].

        Args:
            samples: [S], the recording from sample ``begin`` on.
            frames: which, in steps of 1.
            total: samples of the whole recording; ``None``: more may come, and no frame reaches beyond those here.
        """
        start = self.first + frames.start * self.hop
        stop = self.first + (frames.stop - 1) * self.hop + self.size
        if not len(frames):
            return np.empty((0, self.size), samples.dtype)
        if start >= begin and stop <= begin + len(samples):
            view = np.lib.stride_tricks.sliding_window_view(samples[start - begin : stop - begin], self.size)
            return view[:: self.hop]
        places = self.first + np.arange(frames.start, frames.stop)[:, None] * self.hop + np.arange(self.size)
        if self.edges == "zero":
            within = (places >= begin) & (places < begin + len(samples))
            filled: Array = np.where(within, samples[np.clip(places - begin, 0, len(samples) - 1)], 0)
            return filled
        found: Array = samples[self._mirrored(places, begin + len(samples) if total is None else total) - begin]
        return found

    def _mirrored(self, places: Array, total: int) -> Array:
        last = 2 * total - (1 if self.edges == "repeat" else 2)
        turned: Array = places % (last + 1 if self.edges == "repeat" else max(last, 1))
        folded: Array = np.minimum(turned, last - turned)
        return folded
