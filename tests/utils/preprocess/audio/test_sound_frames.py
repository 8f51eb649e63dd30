"""Stacked frames, deltas (compared with scipy), and normalisation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError
from utils.preprocess.audio.frames import shifted, stacked, standardised, with_deltas

FEATURES = np.random.default_rng(0).normal(0, 1, (23, 4)).astype(np.float32)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 23), st.integers(1, 8), st.integers(1, 8))
def test_frames_are_stacked_one_by_one(count: int, together: int, step: int) -> None:
    rows = FEATURES[:count]
    padded = [rows[0]] * ((together - 1) // 2) + list(rows)
    wanted = []
    for start in range(0, count, step):
        group = padded[start : start + together]
        wanted.append(np.concatenate(group + [rows[-1]] * (together - len(group))))
    found = stacked(rows, together, step)
    assert found.dtype == np.float32
    assert np.array_equal(found, np.stack(wanted))


def test_deltas_equal_slopes() -> None:
    signal = pytest.importorskip("scipy.signal")
    found = with_deltas(FEATURES)
    assert found.shape == (23, 12)
    assert np.array_equal(found[:, :4], FEATURES)
    first = signal.savgol_filter(FEATURES, 5, polyorder=1, deriv=1, axis=0, mode="nearest")
    assert np.allclose(found[:, 4:8], first, atol=1e-6)
    twice = signal.savgol_filter(first, 5, polyorder=1, deriv=1, axis=0, mode="nearest")
    assert np.allclose(found[4:-4, 8:], twice[4:-4], atol=1e-6)
    assert np.allclose(with_deltas(FEATURES[:1])[:, 4:], 0, atol=1e-6)
    ramp = np.arange(30, dtype=np.float32)[:, None] * 3
    assert np.allclose(with_deltas(ramp)[5:-5, 1:], [3, 0], atol=1e-5)


def test_levels() -> None:
    found = standardised(FEATURES)
    assert np.allclose(found.mean(axis=0), 0, atol=1e-6)
    assert np.allclose(found.std(axis=0, ddof=1), 1, atol=1e-4)
    assert not standardised(np.full((5, 4), 3.0, np.float32)).any()
    assert not standardised(FEATURES[:1]).any()
    mean, std = FEATURES.mean(axis=0), FEATURES.std(axis=0)
    assert np.allclose(shifted(FEATURES, -mean, 1 / std), (FEATURES - mean) / std, atol=1e-6)


def test_invalid_numbers_of_frames() -> None:
    with pytest.raises(ConfigError, match="0 frames every 1"):
        stacked(FEATURES, 0, 1)
    with pytest.raises(ConfigError, match="order -1"):
        with_deltas(FEATURES, -1)
    with pytest.raises(ConfigError, match="4 bands"):
        shifted(FEATURES, np.zeros(3), np.ones(3))
    assert stacked(FEATURES[:0]).shape == (0, 28)
