"""Top-scoring items, and random items."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from utils.postprocess.image.recommended import COLUMN, draw_recommended
from utils.postprocess.items import best, drawn


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=30), st.integers(1, 40), st.sets(st.integers(0, 29)))
def test_best_items_equal_a_full_sort(values: list[int], count: int, banned: set[int]) -> None:
    scores, left_out = np.array(values, np.float32), [place for place in banned if place < len(values)]
    found = best(scores, count, left_out)
    order = sorted((place for place in range(len(values)) if place not in left_out), key=lambda i: (-values[i], i))
    assert found.places.tolist() == order[:count]
    assert found.scores.tolist() == [values[i] for i in order[:count]]


def test_nan_comes_last() -> None:
    found = best(np.array([1, np.nan, 2], np.float32), 3)
    assert found.places.tolist() == [2, 0, 1]
    assert np.isnan(found.scores[2])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 20), st.integers(1, 200), st.sets(st.integers(0, 199), max_size=30), st.integers(0, 9))
def test_drawn_items_are_allowed_distinct_and_repeatable(count: int, total: int, banned: set[int], seed: int) -> None:
    left_out = [place for place in banned if place < total]
    found = drawn(count, total, left_out, (seed, 7))
    assert len(set(found.tolist())) == len(found) == min(count, total - len(left_out))
    assert not set(found.tolist()) & set(left_out)
    assert all(0 <= place < total for place in found.tolist())
    assert found.tolist() == drawn(count, total, left_out, (seed, 7)).tolist()


def test_random_items_are_uniform() -> None:
    counts = np.bincount(np.concatenate([drawn(5, 60, [0, 1], (0, n)) for n in range(1200)]), minlength=60)
    assert counts[:2].tolist() == [0, 0]
    assert abs(counts[2:] / (1200 * 5 / 58) - 1).max() < 0.4


@pytest.mark.parametrize("scores", [[], [1.0], [2.0, 1.0, 1.0], [3.0, 3.0]])
def test_drawings_of_recommendations_with_any_scores(scores: list[float]) -> None:
    titles = [f"A title that is far too long for any column of this image {n}" for n in range(len(scores))]
    image = np.asarray(draw_recommended("user 1", ["Čapek", "b"], titles, scores))
    assert image.ndim == 3
    bars = (image[:, 2 * COLUMN :] == (60, 120, 190)).all(axis=2)
    assert bars.any() == bool(scores)
