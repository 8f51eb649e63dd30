"""Forced alignment, compared with an exhaustive search over paths."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError
from utils.postprocess.text.alignment import aligned


def collapsed(path: tuple[int, ...]) -> list[int]:
    return [one for place, one in enumerate(path) if one and (place == 0 or path[place - 1] != one)]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 2), min_size=1, max_size=3))
def test_the_path_is_the_most_likely_one(seed, classes):
    steps = np.log(np.random.default_rng(seed).dirichlet(np.ones(3), 6))
    best = max(
        (path for path in product(range(3), repeat=6) if collapsed(path) == classes),
        key=lambda path: steps[range(6), path].sum(),
    )
    path = np.zeros(6, np.int64)
    for one, (first, last) in zip(classes, aligned(steps, classes), strict=True):
        path[first:last] = one
    assert path.tolist() == list(best)


def test_a_text_that_is_too_long():
    steps = np.log(np.full((3, 3), 1 / 3))
    assert aligned(steps, []).shape == (0, 2)
    assert aligned(steps, [1, 1]).tolist() == [[0, 1], [2, 3]]
    with pytest.raises(ConfigError, match=r"3 steps .* 4 characters"):
        aligned(steps, [1, 1, 2, 1])
