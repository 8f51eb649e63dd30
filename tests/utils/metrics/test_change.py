from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from utils.metrics import Change

FINITE = st.floats(-1e6, 1e6).filter(lambda value: value == 0 or abs(value) > 1e-6)


@pytest.mark.parametrize(
    ("value", "reference", "higher", "relative", "drop", "word", "text"),
    [
        (0.30, 0.10, False, 2.0, 2.0, "worse", "+200.00 % relative"),
        (0.10, 0.30, False, -2 / 3, -2 / 3, "better", "-66.67 % relative"),
        (0.9, 0.8, True, 0.125, -0.125, "better", "+12.50 % relative"),
        (-1.1, -1.0, True, -0.1, 0.1, "worse", "-10.00 % relative"),
        (-1.1, -1.0, False, -0.1, -0.1, "better", "-10.00 % relative"),
        (0.999988, 1.0, True, -1.2e-5, 1.2e-5, "worse", "-0.0012 % relative"),
        (0.5, 0.5, True, 0.0, 0.0, "equal", "+0.00 % relative"),
        (0.02, 0.0, False, None, math.inf, "worse", "0.02 against 0: no relative difference"),
        (0.02, 0.0, True, None, -math.inf, "better", "0.02 against 0: no relative difference"),
        (0.0, 0.0, False, None, 0.0, "equal", "0 against 0: no relative difference"),
        (math.nan, 0.9, True, None, math.inf, "incomparable", "nan against 0.9: no relative difference"),
        (0.9, math.nan, False, None, math.inf, "incomparable", "0.9 against nan: no relative difference"),
        (30.0, math.inf, True, None, math.inf, "worse", "30 against inf: no relative difference"),
    ],
)
def test_relative_change_and_words(
    value: float, reference: float, higher: bool, relative: float | None, drop: float, word: str, text: str
) -> None:
    change = Change.of(value, reference, higher)
    assert change.relative == (None if relative is None else pytest.approx(relative))
    assert change.drop == pytest.approx(drop)
    assert (change.word, change.text) == (word, text)
    assert "nan %" not in change.text


@given(FINITE, FINITE)
def test_the_other_direction(value: float, reference: float) -> None:
    up, down = Change.of(value, reference, True), Change.of(value, reference, False)
    assert up.drop == -down.drop
    assert {up.word, down.word} in ({"better", "worse"}, {"equal"})
    assert (up.drop > 0) == (up.word == "worse")
