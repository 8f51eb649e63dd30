"""CTC decoding of hand-made paths."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from engine import ConfigError
from utils.postprocess.text.beam import beam
from utils.postprocess.text.ctc import greedy, probabilities

RNG = np.random.default_rng(0)


def path(*classes: int, of: int = 4, sure: float = 0.7) -> np.ndarray:
    """Return T x C probabilities whose most likely path is these classes."""
    rest = (1 - sure) / (of - 1)
    return np.stack([np.where(np.arange(of) == chosen, sure, rest) for chosen in classes]).astype(np.float32)


def test_repetitions_and_blanks():
    outputs = np.stack([path(1, 1, 0, 1, 2, 2, 0), path(0, 0, 0, 0, 0, 0, 0), path(3, 3, 3, 3, 3, 3, 3)])
    read = greedy(outputs, "abc")
    assert [one.text for one in read] == ["aab", "", "c"]
    assert read[0].score == pytest.approx(0.7)
    assert read[1].score == 0


def test_score_is_the_mean_over_characters():
    outputs = np.concatenate([path(1, sure=0.9), path(1, sure=0.5), path(0, sure=0.4), path(2, sure=0.6)])[None]
    assert greedy(outputs, "abc")[0].score == pytest.approx((0.9 + 0.6) / 2)


@pytest.mark.parametrize("blank", [0, -1, 3, 1])
def test_any_blank_and_time_major(blank):
    logits = RNG.normal(size=(5, 9, 4)).astype(np.float32)
    order = [place for place in range(4) if place != blank % 4]
    usual = logits[..., [blank % 4, *order]]
    wanted = greedy(usual, "abc")
    assert greedy(logits, "abc", blank) == wanted
    assert greedy(logits.swapaxes(0, 1), "abc", blank, time_major=True) == wanted


def test_logits_logarithms_and_probabilities_are_equivalent():
    logits = RNG.normal(size=(6, 12, 4)).astype(np.float32) * 3
    sure = probabilities(logits)
    assert np.allclose(sure.sum(axis=-1), 1)
    for outputs in (sure, np.log(sure), logits, sure.astype(np.float16)):
        for one, wanted in zip(greedy(outputs, "abc"), greedy(sure, "abc", logits=False), strict=True):
            assert one.text == wanted.text
            assert one.score == pytest.approx(wanted.score, abs=1e-3)


def test_invalid_arguments():
    with pytest.raises(ConfigError, match=r"4 classes .* 2 characters"):
        greedy(np.zeros((1, 3, 4)), "ab")
    with pytest.raises(ConfigError, match=r"shape \[3, 4\]"):
        greedy(np.zeros((3, 4)), "abc")
    with pytest.raises(ConfigError, match=r"blank .*4 of 4"):
        greedy(np.zeros((1, 3, 4)), "abc", 4)


def test_infinite_outputs_give_no_text():
    steps = np.zeros((2, 2, 3), np.float16)
    steps[0, 0, 1], steps[1, :] = np.inf, [-np.inf] * 3
    for one in (*greedy(steps, "ab"), *beam(steps, "ab")):
        assert one.text == ""
        assert np.isnan(one.score)


# ------------------------------------------------------------------------------------------------------------- margins

STEPS = hnp.arrays(
    np.float64, st.tuples(st.integers(1, 3), st.integers(1, 6), st.just(4)), elements=st.floats(-4, 4, width=16)
)


def _single(steps: np.ndarray) -> float:
    """Return the smallest gap to a class at one step with which the text differs, by trying all."""
    path, found = steps.argmax(axis=-1), [np.inf]
    text = _collapsed(path)
    for step in range(len(steps)):
        for other in range(steps.shape[1]):
            moved = path.copy()
            moved[step] = other
            if _collapsed(moved) != text:
                found.append(float(steps[step].astype(np.float64).max()) - float(steps[step, other]))
    return min(found)


def _collapsed(path: np.ndarray) -> list[int]:
    return [c for i, c in enumerate(path.tolist()) if c and (not i or path[i - 1] != c)]


@given(STEPS, st.integers(0, 2**32 - 1))
def test_noise_below_half_the_margin_keeps_the_text(steps: np.ndarray, seed: int) -> None:
    before = greedy(steps, "abc")
    falling = -np.sort(-steps, axis=-1)
    gaps = falling[..., 0] - falling[..., 1]
    pairs = np.maximum(gaps[:, 1:], gaps[:, :-1]).min(axis=1, initial=np.inf)
    assert [one.margin for one in before] == [min(_single(one), pair) for one, pair in zip(steps, pairs, strict=True)]
    noise = np.random.default_rng(seed).choice([-1.0, 1.0], steps.shape)
    room = np.array([one.margin for one in before])[:, None, None] * 0.499
    assert [one.text for one in greedy(steps + noise * room, "abc")] == [one.text for one in before]


def test_margins_of_unusual_outputs():
    assert [one.margin for one in greedy(np.zeros((2, 0, 4)), "abc")] == [np.inf] * 2  # without steps
    assert [one.margin for one in greedy(np.zeros((1, 3, 1)), "")] == [np.inf]  # only the blank
    (unknown,) = greedy(np.full((1, 2, 4), np.nan), "abc")
    assert np.isnan(unknown.margin)
    (searched,) = beam(path(1, 0, 2)[None], "abc")
    assert np.isnan(searched.margin)
