"""Nearest vectors, in any blocks and with any other queries, equal those of the whole product."""

import numpy as np
from hypothesis import given, settings, strategies as st

from utils.postprocess.text.nearest import nearest


@given(st.integers(1, 20), st.integers(1, 50), st.integers(1, 60), st.integers(1, 60), st.integers(0, 9))
@settings(max_examples=60, deadline=None)
def test_results_are_independent_of_blocks(queries: int, vectors: int, count: int, block: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(-2, 3, (n, 4)).astype(np.float32) for n in (queries, vectors))  # many ties, exact products
    found = nearest(a, b, count, block=block)
    order = np.argsort(-(a @ b.T), axis=1, kind="stable")[:, :count]
    np.testing.assert_array_equal(found.places, order)
    np.testing.assert_array_equal(found.scores, np.take_along_axis(a @ b.T, order, axis=1))


def test_queries_are_independent() -> None:
    rng = np.random.default_rng(0)
    queries, vectors = (rng.standard_normal((n, 32)).astype(np.float32) for n in (37, 300))
    whole = nearest(queries, vectors, 10, block=64)
    for place in (0, 15, 16, 36):
        alone = nearest(queries[place : place + 1], vectors, 10, block=64)
        np.testing.assert_array_equal(alone.places[0], whole.places[place])
        np.testing.assert_array_equal(alone.scores[0], whole.scores[place])


def test_nan_comes_last() -> None:
    vectors = np.array([[1, 0], [np.nan, 0], [-1, 0]], np.float32)
    found = nearest(np.array([[1, 0], [np.nan, 1]], np.float32), vectors, 3, block=2)
    assert found.places[0].tolist() == [0, 2, 1]
    assert np.isnan(found.scores[1]).all()
    assert nearest(np.ones((1, 2), np.float32), vectors, 2).places.tolist() == [[0, 2]]
