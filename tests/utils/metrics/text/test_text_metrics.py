"""Metrics of texts: edit distances of jiwer and of a distance table, and empty texts."""

from __future__ import annotations

import pickle

import jiwer
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError, DataError, InputError
from utils.metrics.text.edits import CharacterErrorRate, SequenceAccuracy, edit_distance
from utils.postprocess.text.ctc import Text

WORDS = st.text("ab é", max_size=12)
LONG = st.text("abc", max_size=150)


def by_table(one: str, other: str) -> int:
    """Return the edit distance by the table of all prefixes."""
    row = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        last, row[0] = row[0], i
        for j, b in enumerate(other, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (a != b))
    return row[-1]


@given(LONG, LONG)
@settings(max_examples=25, deadline=None)
def test_edit_distance_equals_the_table(one, other):
    assert edit_distance(one, other) == by_table(one, other) == edit_distance(other, one)


@given(st.lists(st.tuples(WORDS, WORDS.filter(str.strip)), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_rates_agree_with_jiwer(pairs):
    read, right = [" ".join(one.split()) for one, _ in pairs], [" ".join(one.split()) for _, one in pairs]
    metric = CharacterErrorRate("none")
    metric.update(read, right)
    assert metric.compute() == pytest.approx(jiwer.cer(right, read))
    assert metric.secondary()["wer"] == pytest.approx(jiwer.wer(right, read))


def test_the_rate_is_over_all_characters():
    metric = CharacterErrorRate()
    metric.update(["abcdefghij", "x"], ["abcdefghij", "y"])
    assert metric.compute() == 1 / 11
    assert not metric.higher_is_better
    other = SequenceAccuracy()
    other.update(["abcdefghij", "x"], ["abcdefghij", "y"])
    assert other.compute() == 0.5
    assert other.secondary()["cer"] == 1 / 11


def test_empty_texts():
    metric = SequenceAccuracy()
    metric.update(["", "a", ""], ["", "", "abc"])
    assert metric.compute() == 1 / 3
    assert metric.secondary()["cer"] == 4 / 3
    for read, wanted in ((["", ""], 0.0), (["abc", ""], 3.0)):
        nothing = CharacterErrorRate()
        nothing.update(read, ["", ""])
        assert nothing.compute() == wanted
        assert np.isnan(nothing.value(nothing._all(), np.zeros(2)))


def test_case_spaces_and_normalisation():
    metric = SequenceAccuracy()
    metric.update(["AB c", "a b", "e\u0301"], ["ab C", "ab", "é"])
    figures = metric.secondary()
    assert metric.compute() == 1 / 3
    assert figures["accuracy_folded"] == 2 / 3
    assert figures["accuracy_without_spaces"] == 2 / 3
    wide = ["\uff21\uff11"]
    for form, right in (("NFC", 0), ("NFKC", 1), ("none", 0)):
        one = SequenceAccuracy(form)
        one.update(wide, ["A1"])
        assert one.compute() == right


def test_an_unread_line_is_wrong_even_for_an_empty_target():
    metric = SequenceAccuracy()
    metric.update([Text("", float("nan")), Text("", 0.0)], ["", ""])
    assert metric.compute() == 0.5


def test_exact_merge_and_pickling():
    read, right = ["ab", "b", "cc", ""], ["ab", "a", "c", "x"]
    whole, parts = CharacterErrorRate("NFKC"), [CharacterErrorRate("NFKC") for _ in range(2)]
    whole.update(read, right)
    parts[0].update(read[2:], right[2:])
    parts[1].update(read[:2], right[:2])
    parts[0].merge(pickle.loads(pickle.dumps(parts[1])))  # noqa: S301 -- as between processes
    assert parts[0].compute() == whole.compute()
    with pytest.raises(ConfigError, match="cannot merge"):
        whole.merge(CharacterErrorRate("NFC"))


def test_invalid_input():
    with pytest.raises(InputError, match="a prediction is a int"):
        SequenceAccuracy().update([3], ["3"])
    with pytest.raises(DataError, match="target 3 is not"):
        SequenceAccuracy().update(["3"], [3])
    with pytest.raises(ConfigError, match="'NFD' must be one of"):
        SequenceAccuracy("NFD")
