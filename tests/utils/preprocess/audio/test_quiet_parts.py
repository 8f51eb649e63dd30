"""Long recordings in parts."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from utils.preprocess.audio.reading import quiet_parts


@given(st.integers(0, 5000), st.integers(1, 900), st.integers(0, 9))
def test_joined_parts_are_the_recording(count: int, most: int, seed: int) -> None:
    samples = np.random.default_rng(seed).normal(size=count).astype(np.float32)
    found = list(quiet_parts(samples, most))
    np.testing.assert_array_equal(np.concatenate(found), samples)
    assert max(map(len, found)) <= most
    assert all(len(part) >= 0.7 * most for part in found[:-1] if most > 20)


def test_windows_are_cut_in_pauses() -> None:
    samples = np.ones(16000, np.float32)
    samples[8500:8900] = 0
    first, second = quiet_parts(samples, 10000)
    assert 8500 <= len(first) < 8900
    assert len(second) == 16000 - len(first)
