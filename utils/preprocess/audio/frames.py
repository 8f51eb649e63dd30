"""Transformations of features before a model: stacking, deltas and normalisation."""

from __future__ import annotations

import numpy as np

from engine import Array, ConfigError


def stacked(features: Array, together: int = 7, step: int = 6) -> Array:
    """Return features [T, D] at a lower rate, as [ceil(T / step), together * D] in the same dtype.

    Several frames are side by side ("low frame rate": Pundak and Sainath 2016): row ``i`` holds ``together`` frames
    from ``i * step - (together - 1) // 2`` on; outside, the first or the last frame is repeated, as in FunASR's
    Paraformer (7 frames every 6). Raises ConfigError if a number is below 1.
    """
    if together < 1 or step < 1:
        raise ConfigError(f"{together} frames every {step}: both must be at least 1")
    count, width = features.shape
    rows = -(-count // step)
    places = np.arange(rows)[:, None] * step + np.arange(together) - (together - 1) // 2
    return features[np.clip(places, 0, max(count - 1, 0))].reshape(rows, together * width)


def with_deltas(features: Array, order: int = 2, reach: int = 2) -> Array:
    """Return features, their slopes over time, the slopes of these and so on (``order``), like Kaldi's ``add-deltas``.

    From [T, D], returns [T, (order + 1) * D] in the same dtype. A slope is that of the line through ``2 * reach + 1``
    frames (least squares); outside, the first or the last frame is repeated. Raises ConfigError if the order is below
    0, or the reach below 1.
    """
    if order < 0 or reach < 1:
        raise ConfigError(f"deltas of order {order} over {reach} frames: at least 0 and 1")
    count = len(features)
    slope = np.arange(-reach, reach + 1) / (2.0 * (np.arange(1, reach + 1) ** 2).sum())
    kernel, columns = np.ones(1), [features]
    for _ in range(order):
        kernel = np.convolve(kernel, slope)
        side = len(kernel) // 2
        places = np.clip(np.arange(count)[:, None] + np.arange(-side, side + 1), 0, max(count - 1, 0))
        columns.append(np.einsum("tkd,k->td", features[places].astype(np.float64), kernel).astype(features.dtype))
    return np.concatenate(columns, axis=1)


def shifted(features: Array, shift: Array, scale: Array) -> Array:
    """Return ``(features + shift) * scale`` per band of [T, D], as in a model's file of means (CMVN).

    ``shift`` is the negative means, ``scale`` one over the standard deviations. Raises ConfigError if they are not for
    D bands.
    """
    if shift.shape != features.shape[1:] or scale.shape != features.shape[1:]:
        raise ConfigError(
            f"features of {features.shape[1]} bands, and shift and scale of {shift.shape} and {scale.shape}; give one "
            "value per band"
        )
    return ((features + shift) * scale).astype(features.dtype)


def standardised(features: Array, guard: float = 1e-5) -> Array:
    """Return features [T, D] with mean 0 and standard deviation 1 over time, per band, like NeMo's ``per_feature``.

    ``guard`` is added to each standard deviation (of T - 1), so that silence stays 0.
    """
    if len(features) < 2:
        return np.zeros_like(features)
    values = features.astype(np.float64)
    deviation = values.std(axis=0, ddof=1) + guard
    return np.asarray((values - values.mean(axis=0)) / deviation, features.dtype)
