"""Windows of one length, of recordings of any length."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from utils.preprocess.audio.windows import FRAMES, fitted, windows


def test_short_and_long_recordings_are_centred() -> None:
    three = np.array([1, 2, 3], np.float32)
    assert fitted(three, 6).tolist() == [0, 1, 2, 3, 0, 0]
    assert fitted(three, 6, "repeat").tolist() == [1, 2, 3, 1, 2, 3]
    assert fitted(three, 6, "after").tolist() == [1, 2, 3, 0, 0, 0]
    assert fitted(three, 6, FRAMES).tolist() == [1, 2, 3]
    assert windows(three, 6, 2, FRAMES).shape == (1, 3)
    assert fitted(np.arange(6, dtype=np.float32), 3).tolist() == [1, 2, 3]
    assert fitted(np.zeros(0, np.float32), 2, "repeat").tolist() == [0, 0]


@pytest.mark.parametrize(("count", "starts"), [(4, [0]), (5, [0, 1]), (8, [0, 2, 4]), (9, [0, 2, 4, 5])])
def test_windows_of_a_long_recording(count: int, starts: list[int]) -> None:
    found = windows(np.arange(count, dtype=np.float32), 4, 2)
    assert found[:, 0].tolist() == starts
    assert found.shape == (len(starts), 4)


@given(st.integers(1, 60), st.integers(1, 20), st.integers(1, 20))
def test_every_sample_is_in_a_window(count: int, length: int, hop: int) -> None:
    samples = np.arange(1, count + 1, dtype=np.float32)
    found = windows(samples, length, hop)
    assert found.shape[1] == length
    if hop <= length:
        assert set(samples.tolist()) <= set(found.reshape(-1).tolist())
    assert found[-1, -1] == count or count < length
