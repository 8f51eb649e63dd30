"""Exact match and F1 of answers: compared with a plain implementation of SQuAD's rules, and known cases."""

from __future__ import annotations

import re
import string
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, strategies as st

from engine import ConfigError, DataError, InputError
from utils.metrics.text.answers import METRICS, AnswerF1, ExactMatch, exact, f1, normalised

WORDS = st.lists(st.sampled_from(["the", "a", "An", "cat", "Cat.", "dog", "U.S.", "--", "37", "é"]), max_size=5)


def plain(text: str) -> list[str]:
    """Normalise step by step as in the paper: lower case, no punctuation, no articles, split."""
    found = text.lower()
    for mark in string.punctuation:
        found = found.replace(mark, "")
    return [word for word in re.split(r"\s+", found) if word not in ("a", "an", "the", "")]


@given(WORDS, WORDS)
def test_f1_counts_repeated_words(one: list[str], other: list[str]) -> None:
    found, right = " ".join(one), " ".join(other)
    words, wanted = plain(found), plain(right)
    assert normalised(found).split() == words
    assert exact(found, right) == (words == wanted)
    left, shared = list(wanted), 0
    for word in words:
        if word in left:
            left.remove(word)
            shared += 1
    if not words or not wanted:
        assert f1(found, right) == (words == wanted)
    elif not shared:
        assert f1(found, right) == 0
    else:
        precision, recall = shared / len(words), shared / len(wanted)
        assert f1(found, right) == pytest.approx(2 * precision * recall / (precision + recall))


@pytest.mark.parametrize(
    ("found", "right", "language", "wanted"),
    [
        ("in the year 1998", "1998", "en", 0.5),
        ("Denver Broncos", "The Denver Broncos!", "en", 1.0),
        ("", "", "en", 1.0),
        ("the", "", "en", 1.0),
        ("a cat", "", "en", 0.0),
        ("北京大学", "北京", "zh", 2 * 2 / 6),
        ("《北京》。", "北京", "zh", 1.0),
        ("1998年", "1998 年", "zh", 1.0),
        ("the GPU卡", "GPU卡", "zh", 2 * 2 / 5),
    ],
)
def test_f1_of_reference_answers(found: str, right: str, language: str, wanted: float) -> None:
    assert f1(found, right, language) == pytest.approx(wanted)


class Said(NamedTuple):
    text: str
    score: float


def test_several_correct_answers_and_unanswerable_questions() -> None:
    metric = AnswerF1()
    predictions: list[Any] = [Said("red cat", 0.9), Said("", 0.8), Said("dog", 0.7), Said("dog", float("nan")), ""]
    metric.update(predictions, [("the cat", "a red cat"), (), (), ("dog",), ("bird",)])
    assert metric.compute() == pytest.approx(2 / 5)
    found = metric.secondary()
    assert found["exact_match"] == pytest.approx(2 / 5)
    assert (found["has_answer"], found["no_answer"]) == (3, 2)
    assert found["has_answer_f1"] == pytest.approx(1 / 3)
    assert found["no_answer_exact"] == pytest.approx(1 / 2)
    other = ExactMatch()
    other.update(["x"], [("x",)])
    assert other.compute() == 1
    assert "no_answer_exact" not in other.secondary()


def test_margins_are_those_of_the_predictions() -> None:
    class Answer(NamedTuple):
        text: str
        margin: float

    found = AnswerF1().update([Answer("cat", 1.5), Answer("", 0.25), "dog"], [("cat",), (), ("dog",)])
    assert np.array_equal(found.margins, [1.5, 0.25, np.nan], equal_nan=True)


def test_weights_and_merge() -> None:
    chance = np.random.default_rng(0)
    words = ["cat", "dog", "red cat", ""]
    found = [words[place] for place in chance.integers(0, 4, 40)]
    right = [(words[place],) if words[place] else () for place in chance.integers(0, 4, 40)]
    for kind in METRICS.values():
        whole, one, two = kind(), kind(), kind()
        records = whole.update(found, right).values
        one.update(found[:13], right[:13])
        two.update(found[13:], right[13:])
        two.merge(one)
        assert two.compute() == whole.compute()
        twice = kind()
        twice.update(found + found, right + right)
        assert whole.value(records, np.full(40, 2.0)) == pytest.approx(twice.compute())


def test_invalid_input() -> None:
    with pytest.raises(ConfigError, match=r"'fr' .*en, zh"):
        AnswerF1("fr")
    with pytest.raises(DataError, match="not a list of texts"):
        AnswerF1().update(["x"], ["x"])
    with pytest.raises(InputError, match="a prediction is a int"):
        AnswerF1().update([3], [("x",)])
