"""Reading order of lines."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st

from utils.postprocess.text.reading_order import reading_order


def box(left: float, top: float, width: float = 80, height: float = 20) -> np.ndarray:
    return np.array([[left, top], [left + width, top], [left + width, top + height], [left, top + height]])


def test_rows_are_read_from_left_to_right() -> None:
    assert reading_order([]) == []
    assert reading_order([box(200, 3), box(0, 100), box(0, 0), box(200, 96)]) == [2, 0, 1, 3]


def test_columns_below_a_heading() -> None:
    left = [box(0, 60 + 40 * row) for row in range(3)]
    right = [box(150, 52 + 40 * row) for row in range(4)]
    heading, end = box(20, 0, 200), box(0, 300, 230)
    lines = [end, *right, heading, *left]
    assert [lines[place] is one for place, one in zip(reading_order(lines), [heading, *left, *right, end], strict=True)]
    assert reading_order(lines) == [5, 6, 7, 8, 1, 2, 3, 4, 0]


def test_a_single_row_is_not_columns() -> None:
    assert reading_order([box(0, 0), box(200, 4), box(0, 50, 300), box(0, 100), box(200, 96)]) == [0, 1, 2, 3, 4]


boxes = st.lists(st.tuples(*[st.integers(0, 300)] * 2, st.integers(0, 90), st.integers(0, 40)), max_size=20)


@settings(max_examples=60, deadline=None)
@given(boxes)
def test_order_is_a_deterministic_permutation(found: list[tuple[int, int, int, int]]) -> None:
    lines = [box(*one) for one in found]
    order = reading_order(lines)
    assert sorted(order) == list(range(len(lines)))
    assert order == reading_order(lines)
    moved = reading_order([line + np.array([1000, 500]) for line in lines])
    assert moved == order
