"""Resampling of sound with soxr, the SoX resampler."""

from __future__ import annotations

import numpy as np

from engine import Array, ConfigError
from tecoinfer_modelzoo.extra import extra

QUALITY = "HQ"
"""soxr's name of the filter: flat up to 91 % of the smaller band, at least 120 dB of attenuation above it."""


def resampled(samples: Array, rate: int, wanted: int) -> Array:
    """Return mono sound, float32 [S], at another rate in Hz: float32 [S * wanted / rate, rounded by soxr].

    For equal rates it is the same array. Raises ConfigError if soxr is not installed and the rates differ.
    """
    if rate == wanted:
        return samples
    if not len(samples):
        return np.zeros(0, np.float32)
    with extra(f"sound of {rate} Hz for a model of {wanted} Hz", "audio"):
        import soxr
    return np.asarray(soxr.resample(np.ascontiguousarray(samples, np.float32), rate, wanted, QUALITY))


class Resampler:
    """Resamples a stream piece by piece; joined, the pieces equal the result of :func:`resampled`."""

    def __init__(self, rate: int, wanted: int) -> None:
        if min(rate, wanted) < 1:
            raise ConfigError(f"rates of {rate} and {wanted} Hz must be at least 1")
        self._stream = None
        if rate != wanted:
            with extra(f"sound of {rate} Hz for a model of {wanted} Hz", "audio"):
                import soxr
            self._stream = soxr.ResampleStream(rate, wanted, 1, dtype="float32", quality=QUALITY)

    def feed(self, samples: Array, last: bool = False) -> Array:
        """Return the output that can be computed with these samples; ``last``: these are the last ones."""
        if self._stream is None:
            return samples
        return np.asarray(self._stream.resample_chunk(np.ascontiguousarray(samples, np.float32), last=last))
