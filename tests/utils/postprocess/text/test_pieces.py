"""Text of a recogniser's pieces."""

from __future__ import annotations

import pytest

from utils.postprocess.text.pieces import joined


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([], ""),
        (["我", "爱", "你"], "我爱你"),
        (["hel@@", "lo", "world"], "hello world"),
        (["我", "爱", "ap@@", "ple", "pie", "三", "个"], "我爱apple pie三个"),
        (["it's", "1", "2", "o'clock"], "it's12o'clock"),
        (["un@@", "be@@", "lievable"], "unbelievable"),
        (["hello", "cut@@"], "hello cut"),
        (["▁he", "llo", "▁you"], "hello you"),
    ],
)
def test_spaces_are_between_words_only(pieces: list[str], text: str) -> None:
    assert joined(pieces) == text
