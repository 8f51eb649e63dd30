"""Cuts of lines longer than an input, and their joined texts."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from utils.preprocess.image.long_lines import BLANK, joined, pieces


def line(words: list[int], gap: int, height: int = 40) -> Image.Image:
    """Return black bars of these widths with gaps between them, on white."""
    levels = np.full((height, sum(words) + gap * (len(words) + 1)), 255, np.uint8)
    at = gap
    for word in words:
        levels[8:32, at : at + word] = 0
        at += word + gap
    return Image.fromarray(levels)


def test_a_line_that_fits_is_not_cut():
    one = line([300], 10)
    assert pieces(one, 48, 320) == ([one], [])


@pytest.mark.parametrize("most", [320, 640])
def test_cuts_lie_in_gaps_and_parts_fit(most):
    one = line([70, 55, 90, 60, 75] * 6, 12)
    parts, blanks = pieces(one, 48, most)
    assert sum(part.width for part in parts) == one.width
    assert len(parts) == len(blanks) + 1
    assert max(part.width * 48 / 40 for part in parts) <= 1.2 * most
    assert all(blanks)
    for part in parts:
        levels = np.asarray(part)
        assert levels[:, 0].min() == levels[:, -1].min() == 255  # no cut goes through a word


def test_narrow_gaps_and_lines_without_gaps():
    assert not any(pieces(line([37] * 40, int(BLANK * 40) - 2), 48, 320)[1])
    parts, blanks = pieces(line([2000], 0), 48, 320)
    assert sum(part.width for part in parts) == 2000
    assert len(parts) > 6
    assert len(blanks) == len(parts) - 1


def test_texts_are_joined():
    assert joined(["ab", "cd", "ef"], [True, False]) == "ab cdef"
    assert joined(["中文", "天"], [True]) == "中文天"
    assert joined(["ab ", "cd", ""], [True, True]) == "ab cd"
    assert joined(["", "cd"], [True]) == "cd"
