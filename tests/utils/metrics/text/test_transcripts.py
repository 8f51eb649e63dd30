"""Word and character error rates of speech compared with jiwer."""

from __future__ import annotations

import jiwer
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError, DataError, InputError
from utils.metrics.text.transcripts import SpokenCharacterErrorRate, WordErrorRate, errors, normalised

WORDS = st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), max_size=12)


@settings(max_examples=150, deadline=None)
@given(WORDS.filter(bool), WORDS)
def test_kinds_of_errors_equal_jiwer(right, message):
    wanted = jiwer.process_words(" ".join(right), " ".join(message))
    assert errors(right, message) == (wanted.substitutions, wanted.deletions, wanted.insertions)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(WORDS.filter(bool), WORDS), min_size=1, max_size=5))
def test_rates_equal_jiwer(pairs):
    right, message = ([" ".join(one) for one in column] for column in zip(*pairs, strict=True))
    words, characters = WordErrorRate("none"), SpokenCharacterErrorRate("none")
    for metric in (words, characters):
        metric.update(message, right)
    assert words.compute() == pytest.approx(jiwer.wer(right, message))
    assert characters.compute() == pytest.approx(jiwer.cer(right, message))
    assert words.secondary()["cer"] == characters.compute()


def test_normalisations():
    assert normalised("  Don’t PANIC, it's «fine» — rock 'n' roll! ") == "don't panic it's fine rock n roll"
    assert normalised("Straße", "NFC") == "Straße"
    rate = WordErrorRate()
    rate.update(["hello world"], ["Hello, world!"])
    assert (rate.compute(), rate.secondary()["sentence_accuracy"]) == (0.0, 1.0)
    strict = WordErrorRate("none")
    strict.update(["hello world"], ["Hello, world!"])
    assert strict.compute() == 1.0


def test_weights_repeat_recordings():
    rate = WordErrorRate()
    records = rate.update(["a b", "x"], ["a b", "c d"]).values
    assert rate.value(records, np.array([1.0, 0.0])) == 0.0
    assert rate.value(records, np.array([1.0, 2.0])) == pytest.approx(4 / 6)
    assert np.isnan(rate.value(records, np.zeros(2)))


def test_invalid_input():
    with pytest.raises(ConfigError, match="'loud' must be one of plain"):
        WordErrorRate("loud")
    with pytest.raises(DataError, match="target 7 is not"):
        WordErrorRate().update(["a"], [7])
    with pytest.raises(InputError, match="a prediction is a int"):
        WordErrorRate().update([1], ["a"])


@pytest.mark.parametrize("kind", [WordErrorRate, SpokenCharacterErrorRate])
def test_no_rate_for_empty_targets(kind) -> None:
    """Text may be recognised, but the rate has no denominator."""
    metric = kind()
    metric.update(["", "a b"], ["", ""])
    assert np.isnan(metric.compute())
    assert "target texts of all recordings are empty" in metric.unknown()
    metric.update(["a"], ["a"])
    assert metric.compute() > 0
    assert not metric.unknown()
