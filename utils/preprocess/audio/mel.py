"""Triangular filters on the mel scale, as in the common libraries."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from engine import Array, ConfigError

SCALES = ("slaney", "htk")
"""Mel scales: Slaney's Auditory Toolbox (linear up to 1 kHz, then logarithmic) and HTK (logarithmic)."""


def to_mel(hertz: Array, scale: str) -> Array:
    """Convert frequencies in Hz to mel."""
    hertz = np.asarray(hertz, np.float64)
    if scale == "htk":
        return 2595.0 * np.log10(1.0 + hertz / 700.0)
    above = 15.0 + np.log(np.maximum(hertz, 1000.0) / 1000.0) * (27.0 / np.log(6.4))
    return np.where(hertz < 1000.0, hertz * 3.0 / 200.0, above)


def to_hertz(mel: Array, scale: str) -> Array:
    """Convert mel to frequencies in Hz."""
    mel = np.asarray(mel, np.float64)
    if scale == "htk":
        return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)
    above = 1000.0 * np.exp((np.maximum(mel, 15.0) - 15.0) * (np.log(6.4) / 27.0))
    return np.where(mel < 15.0, mel * 200.0 / 3.0, above)


@lru_cache
def mel_bank(rate: int, fft: int, bands: int, low: float, high: float, scale: str, norm: bool) -> Array:
    """Return the filters of librosa's ``filters.mel``: triangles over frequency between points equidistant in mel.

    Args:
        rate: in Hz. fft: points of the transform. bands: number of filters. low, high: limits of the filters in Hz.
        scale: one of :data:`SCALES`.
        norm: every filter has area 1 over frequency (Slaney), not height 1.

    Returns float64 [bands, fft // 2 + 1], read-only. Raises ConfigError if a filter contains no frequency of the
    transform.
    """
    first, last = to_mel(np.array([low, high]), scale).tolist()
    points = to_hertz(np.linspace(first, last, bands + 2), scale)
    bins = np.fft.rfftfreq(fft, 1.0 / rate)
    rising = (bins - points[:-2, None]) / np.diff(points)[:-1, None]
    falling = (points[2:, None] - bins) / np.diff(points)[1:, None]
    bank: Array = np.maximum(0.0, np.minimum(rising, falling))
    if norm:
        bank *= (2.0 / (points[2:] - points[:-2]))[:, None]
    return _checked(bank, fft)


@lru_cache
def kaldi_bank(rate: int, fft: int, bands: int, low: float, high: float, empty: bool = False) -> Array:
    """Return Kaldi's filters: triangles over mel, 1127 ln(1 + f / 700), of height 1, below half the rate.

    Arguments are as for :func:`mel_bank`; ``empty``: filters may contain no frequency, as in torchaudio. Returns
    float64 [bands, fft // 2], read-only. Raises ConfigError if a filter contains no frequency of the transform.
    """
    first, last = 1127.0 * np.log1p(np.array([low, high]) / 700.0)
    points = np.linspace(first, last, bands + 2)
    bins = 1127.0 * np.log1p(np.arange(fft // 2) * (rate / fft) / 700.0)
    step = (last - first) / (bands + 1)
    bank: Array = np.maximum(0.0, np.minimum(bins - points[:-2, None], points[2:, None] - bins) / step)
    return _checked(bank, fft, empty)


def _checked(bank: Array, fft: int, empty: bool = False) -> Array:
    bare = np.flatnonzero(~bank.any(axis=1))
    if len(bare) and not empty:
        raise ConfigError(
            f"{len(bank)} mel filters over a transform of {fft} points: filter {bare[0]} contains no frequency of it; "
            "use fewer filters, or more points"
        )
    bank.setflags(write=False)
    return bank
