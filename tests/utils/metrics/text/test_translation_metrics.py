"""BLEU and chrF: equal to sacrebleu's, weighted as if sentences were repeated, and what cannot be compared."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError, DataError, InputError
from utils.metrics.text.translation import Bleu, ChrF

sacrebleu = pytest.importorskip("sacrebleu.metrics")
logging.getLogger("sacrebleu").setLevel(logging.ERROR)

WORDS = ("the", "cat", "a", "is", "on", "mat", ".", "Mat", ",", "don't", "3.5", "10%", "l'été", "你好", "né")
WORD = st.one_of(st.sampled_from(WORDS), st.text(max_size=3))
TEXT = st.lists(WORD, max_size=9).map(" ".join)


@st.composite
def corpora(draw: st.DrawFn) -> list[tuple[str, list[str]]]:
    """Return translations with one to three references each, the same number for all."""
    count = draw(st.integers(1, 3))
    row = st.tuples(TEXT, st.lists(TEXT, min_size=count, max_size=count))
    rows: list[tuple[str, list[str]]] = draw(st.lists(row, min_size=1, max_size=4))
    return rows


def both(rows: list[tuple[str, list[str]]], metric: Any, reference: Any) -> None:
    metric.update([text for text, _ in rows], [right for _, right in rows])
    streams = [list(one) for one in zip(*(right for _, right in rows), strict=True)]
    wanted = reference.corpus_score([text for text, _ in rows], streams).score
    assert metric.compute() == pytest.approx(wanted, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(corpora(), st.sampled_from(("13a", "intl", "char", "zh", "none")), st.booleans())
def test_bleu_equals_sacrebleu(rows: Any, tokenize: str, lowercase: bool) -> None:
    both(rows, Bleu(tokenize, lowercase), sacrebleu.BLEU(tokenize=tokenize, lowercase=lowercase))


@settings(max_examples=100, deadline=None)
@given(corpora(), st.booleans())
def test_chrf_equals_sacrebleu(rows: Any, lowercase: bool) -> None:
    both(rows, ChrF(lowercase=lowercase), sacrebleu.CHRF(lowercase=lowercase))


def test_a_weight_is_a_number_of_repetitions() -> None:
    texts, right = ["a b c d e", "a b x d"], [["a b c d e f"], ["a b c d"]]
    for kind in (Bleu, ChrF):
        one, other = kind(), kind()
        records = one.records(texts, right)
        other.update([texts[0], *texts, texts[0]], [right[0], *right, right[0]])
        assert one.value(records, np.array([3.0, 1.0])) == pytest.approx(other.compute())
        assert math.isnan(one.value(records, np.zeros(2)))


def test_secondary_figures_and_nan() -> None:
    class Lost:
        text, score = "the cat sat on the mat", math.nan

    metric = Bleu()
    metric.update(["the cat sat on the mat", Lost()], [["the cat sat on the mat"]] * 2)
    found = metric.secondary()
    assert metric.compute() == pytest.approx(100 * math.exp(-1))
    assert found["brevity_penalty"] == pytest.approx(math.exp(-1))
    assert (found["exact"], found["words"]) == (0.5, 12)
    assert "bleu" not in found


def test_what_cannot_be_compared_is_named() -> None:
    with pytest.raises(ConfigError, match="'13b'"):
        Bleu("13b")
    with pytest.raises(DataError, match="'a text'"):
        Bleu().update(["a"], ["a text"])
    with pytest.raises(DataError, match=r"\(\)"):
        Bleu().update(["a"], [()])
    with pytest.raises(InputError, match="a int"):
        ChrF().update([3], [["a"]])
