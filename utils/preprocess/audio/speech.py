"""Input of a speaker encoder: a recording's speech at one level, cut into overlapping windows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError
from utils.preprocess.audio.features import Settings, features

GATE_MS, SMOOTHED, WIDENED = 30, 8, 6
"""Milliseconds of a block that is classified as speech or not; blocks in the moving average; blocks added to speech."""

LOUD = 0.06
"""Minimum level of a block of speech, relative to the loudest block (-24 dB)."""

FAINTEST = 1e-3
"""Minimum level of a recording's loudest block (-60 dB of full scale); below it, the recording is silence."""


class Speech(NamedTuple):
    """Speech of a recording: P x frames x bands float32, and its duration in seconds."""

    windows: Array
    seconds: float


@dataclass(frozen=True)
class Windows:
    """Settings of an encoder's windows.

    Attributes:
        settings: of the features. frames: of a window. step: frames from one window to the next.
        level: root mean square of the speech in dB of full scale; ``None``: unchanged.
        gate: remove pauses, by their energy.
        least: minimum of speech in seconds.
    """

    settings: Settings
    frames: int
    step: int
    level: float | None = -30.0
    gate: bool = True
    least: float = 0.5

    def __post_init__(self) -> None:
        if not 1 <= self.step <= self.frames:
            raise ConfigError(
                f"windows of {self.frames} frames each {self.step} frames; step must be 1 to {self.frames}"
            )

    def of(self, samples: Array) -> Speech:
        """Return the windows of a recording, float32 [S], mono, at the settings' rate.

        Speech shorter than a window is repeated to fill one. If less than three quarters of the last window are speech,
        it is dropped, unless it is the only one; a smaller gap is filled from the start of the speech. Raises DataError
        in case of silence or too little speech; the caller adds the recording's name in front of the message.
        """
        if len(samples) < self.least * self.settings.rate:
            long = len(samples) / self.settings.rate
            raise DataError(f"{long:.3g} s long, but {self.least:g} s of speech are needed; give a longer recording")
        speech = gated(samples, self.settings.rate) if self.gate else samples
        seconds = len(speech) / self.settings.rate
        level = float(np.sqrt(np.mean(np.square(speech, dtype=np.float64)))) if len(speech) else 0.0
        if not level:
            raise DataError("silence: nothing is louder than -60 dB of full scale; replace it")
        if seconds < self.least:
            raise DataError(f"{seconds:.2f} s of speech, but {self.least:g} s are needed; give a longer recording")
        if self.level is not None:
            speech = speech * np.float32(10 ** (self.level / 20) / level)
        starts = self._starts(len(speech))
        needed = (starts[-1] + self.frames) * self.settings.hop
        found = features(np.resize(speech, max(needed, len(speech))), self.settings)
        return Speech(np.stack([found[start : start + self.frames] for start in starts]), seconds)

    def _starts(self, samples: int) -> list[int]:
        """Return the first frames of the windows of this number of samples."""
        hop = self.settings.hop
        frames = samples // hop + 1
        starts = list(range(0, max(1, frames - self.frames + self.step + 1), self.step))
        covered = (samples - starts[-1] * hop) / (self.frames * hop)
        return starts[:-1] if covered < 0.75 and len(starts) > 1 else starts


def gated(samples: Array, rate: int) -> Array:
    """Return the parts of a recording (float32 [S], mono) that are speech by their energy, float32; empty for silence.

    A block of :data:`GATE_MS` ms is loud if its level exceeds :data:`LOUD` of the loudest block's. The moving average
    over :data:`SMOOTHED` blocks, rounded, marks speech, which is extended by half of :data:`WIDENED` blocks to either
    side, so that pauses within words stay.
    """
    size = rate * GATE_MS // 1000
    count = len(samples) // size
    if not count:
        return samples[:0]
    blocks = samples[: count * size].reshape(count, size)
    levels = np.sqrt(np.mean(np.square(blocks, dtype=np.float64), axis=1))
    if levels.max() < FAINTEST:
        return samples[:0]
    loud = (levels > LOUD * levels.max()).astype(np.float64)
    before = (SMOOTHED - 1) // 2
    mean = np.convolve(np.pad(loud, (before, SMOOTHED - 1 - before)), np.full(SMOOTHED, 1 / SMOOTHED), "valid")
    wide = np.convolve(np.pad(np.round(mean), WIDENED // 2), np.ones(WIDENED + 1), "valid") > 0
    return blocks[wide].ravel()
