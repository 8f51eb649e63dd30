"""The simple tokenizer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from engine import ModelError
from utils.preprocess.text.words import encode, numbered, words


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The film was GOOD, wasn't it?", ["the", "film", "was", "good", "wasn't", "it"]),
        ("don’t 'quote' x_1", ["don't", "quote", "x_1"]),
        ("Cafe\u0301 — naïve", ["café", "naïve"]),
        ("  ...!", []),
        ("短い文 テスト", ["短い文", "テスト"]),
    ],
)
def test_words(text: str, wanted: list[str]) -> None:
    assert words(text) == wanted


@given(st.text(), st.integers(0, 5))
def test_any_text_becomes_numbers(text: str, longest: int) -> None:
    known, unknown = numbered(["<pad>", "<unk>", "a", "b"])
    found = encode(text, known, unknown, longest)
    assert found.dtype == np.int64
    assert 1 <= len(found) <= (longest or max(1, len(text)))
    assert set(found.tolist()) <= {0, 1, 2, 3}


def test_numbers() -> None:
    known, unknown = numbered(["a", "[UNK]", "b", "a"])
    assert encode("b x A b", known, unknown).tolist() == [2, 1, 0, 2]
    assert encode("b x A b", known, unknown, 2).tolist() == [2, 1]
    with pytest.raises(ModelError, match=r"m.onnx: .*<unk> or \[UNK\]"):
        numbered(["a"], "m.onnx")
