"""Samples of the frames of a recording, whole or streamed, with padding at its ends."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine import Array

EDGES = ("reflect", "repeat", "zero", "none")
"""Padding of frames before the first and after the last sample: the sound reflected, without the sample at the edge
(numpy's ``reflect``) or with it (``symmetric``); zeros; or none, with only the frames that fit."""


class Grid(NamedTuple):
    """Division of a recording into frames.

    Attributes:
        size: samples of a frame. hop: samples from one to the next. first: start of the first frame; below 0: before
            the recording.
        reach: number of samples such that a recording of ``n`` has ``1 + (n - reach) // hop`` frames.
        edges: one of :data:`EDGES`.
    """

    size: int
    hop: int
    first: int
    reach: int
    edges: str

    def count(self, samples: int) -> int:
        """Return the number of frames of a recording with this number of samples."""
        return max(0, 1 + (samples - self.reach) // self.hop) if samples else 0

    def ready(self, samples: int) -> int:
        """Return the number of frames that can be cut from the first samples of a longer recording."""
        if -self.first >= samples:  # the reflected start may extend beyond the known samples
            return 0
        return min(self.count(samples), max(0, 1 + (samples - self.size - self.first) // self.hop))

    def cut(self, samples: Array, begin: int, frames: range, total: int | None = None) -> Array:
        """Return frames by their indices (in steps of 1), [len(frames), size], of samples from sample ``begin`` on.

        ``total`` is that of the whole recording; ``None``: unknown, and no frame extends beyond ``samples``.
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
            return np.where(within, samples[np.clip(places - begin, 0, len(samples) - 1)], 0)
        return np.asarray(samples[self._mirrored(places, begin + len(samples) if total is None else total) - begin])

    def _mirrored(self, places: Array, total: int) -> Array:
        last = 2 * total - (1 if self.edges == "repeat" else 2)
        turned: Array = places % (last + 1 if self.edges == "repeat" else max(last, 1))
        return np.asarray(np.minimum(turned, last - turned))
