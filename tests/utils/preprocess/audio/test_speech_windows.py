"""Windows of speech: pauses, level, overlap as in Resemblyzer, and silence."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import Array, ConfigError, DataError
from utils.preprocess.audio.features import LogMel, features
from utils.preprocess.audio.speech import Windows, gated

HEARD = LogMel(bands=40, pad="constant", log="none")


def tone(seconds: float, loud: float = 0.1) -> Array:
    moments = np.arange(round(16000 * seconds)) / 16000
    return (loud * np.sin(2 * np.pi * 440 * moments)).astype(np.float32)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 20 * 16000))
def test_starts_of_windows_equal_resemblyzers(samples: int) -> None:
    """Resemblyzer's rule (VoiceEncoder.compute_partial_slices, 1.3 windows a second, coverage 0.75) as a loop."""
    starts, place, frames = [], 0, samples // 160 + 1
    while place < max(1, frames - 160 + 77 + 1):
        starts.append(place)
        place += 77
    if (samples - starts[-1] * 160) / 25600 < 0.75 and len(starts) > 1:
        starts.pop()
    assert Windows(HEARD, 160, 77)._starts(samples) == starts


def test_windows_are_slices_of_all_features() -> None:
    speech = np.random.default_rng(0).normal(0, 0.01, 16000 * 4).astype(np.float32)
    found = Windows(HEARD, 160, 77, level=None, gate=False).of(speech)
    whole = features(speech, HEARD)
    assert found.windows.shape == (4, 160, 40)
    np.testing.assert_array_equal(found.windows[1], whole[77:237])
    assert found.seconds == 4.0


def test_the_level_is_normalised() -> None:
    quiet, loud = (Windows(HEARD, 160, 77).of(tone(3, gain)).windows for gain in (0.01, 0.5))
    np.testing.assert_allclose(quiet, loud, rtol=1e-3, atol=1e-9)


def test_short_speech_is_repeated() -> None:
    found = Windows(HEARD, 160, 77, gate=False).of(tone(0.6))
    assert found.windows.shape == (1, 160, 40)
    assert found.windows[0, -20:].sum() > 0.5 * found.windows[0, 10:30].sum()


def test_long_pauses_are_removed() -> None:
    pause, short = np.zeros(16000 * 2, np.float32), np.zeros(1600, np.float32)
    speech = np.concatenate([pause, tone(1), short, tone(1), pause])
    left = len(gated(speech, 16000)) / 16000
    assert 2.1 <= left <= 2.5
    assert len(gated(pause, 16000)) == 0
    assert len(gated(tone(0.01), 16000)) == 0


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros(32000, np.float32), "silence"),
        (np.concatenate([tone(0.2), np.zeros(32000, np.float32)]), "s of speech, but 0.5 s"),
        (np.zeros(10, np.float32), "0.000625 s long, but 0.5 s"),
    ],
)
def test_too_little_speech(samples: Array, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Windows(HEARD, 160, 77).of(samples)


def test_a_step_within_a_window() -> None:
    with pytest.raises(ConfigError, match=r"step .*1 to 160"):
        Windows(HEARD, 160, 161)
