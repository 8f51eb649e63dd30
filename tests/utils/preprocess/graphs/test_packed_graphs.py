"""Messages, dense matrices and block-diagonal batches give the same sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import Array, ConfigError, DataError
from utils.preprocess.graphs.messages import KINDS, Messages, dense, messages
from utils.preprocess.graphs.sparse import Limits, Part, block_diagonal, held, pack


@st.composite
def parts(draw: st.DrawFn) -> list[Part]:
    found, kind, loops = [], draw(st.sampled_from(KINDS)), draw(st.booleans())
    for _ in range(draw(st.integers(1, 6))):
        nodes = draw(st.integers(1, 5))
        ends = draw(st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)), max_size=9))
        edges = np.array(ends, np.int64).reshape(-1, 2).T
        x = np.array(draw(st.lists(st.integers(-3, 3), min_size=nodes * 2, max_size=nodes * 2)), np.float32)
        found.append(Part(x.reshape(nodes, 2), messages(nodes, edges, kind, loops=loops)))
    return found


def heard(x: Array, found: Messages) -> Array:
    sums = np.zeros_like(x)
    np.add.at(sums, found.target, x[found.source] * found.weight[:, None])
    return sums


@given(parts(), st.sampled_from([Limits(), Limits((8, 40), (20, 90), (3,)), Limits((6,), (15,), ())]))
@settings(max_examples=25, deadline=None)
def test_graphs_of_a_batch_are_independent(graphs: list[Part], limits: Limits) -> None:
    sizes = [(len(one.nodes), len(one.found.source)) for one in graphs]
    batches = pack(sizes, limits)
    assert [place for batch in batches for place in batch] == list(range(len(graphs)))
    for batch in batches:
        own = graphs[batch.start : batch.stop]
        packed = block_diagonal(own, limits)
        assert not limits.graphs or len(packed.sizes) == limits.graphs[-1]
        assert held(packed.member, packed.share) == len(own)
        sums = heard(packed.x, Messages(*packed.edges, packed.weights)) * packed.share[:, None]
        totals = np.zeros((len(packed.sizes), 2), np.float32)
        np.add.at(totals, packed.member, sums)
        for total, size, one in zip(totals, packed.sizes, own, strict=False):
            alone = heard(one.nodes, one.found)
            np.testing.assert_allclose(total, alone.sum(axis=0), atol=1e-5)
            np.testing.assert_allclose(dense(*one).adjacency @ one.nodes, alone, atol=1e-5)
            assert size == len(one.nodes)
        assert packed.sizes[len(own) :].tolist() == [1] * (len(packed.sizes) - len(own))


def test_the_kinds_of_messages() -> None:
    edges = np.array([[0, 1, 0, 2], [1, 0, 2, 0]])  # 1 - 0 - 2
    matrix = np.array([[1, 1, 1], [1, 1, 0], [1, 0, 1]]) / np.sqrt(np.outer([3, 2, 2], [3, 2, 2]))
    kept = messages(3, edges, "symmetric", loops=True)
    np.testing.assert_allclose(dense(np.zeros((3, 1)), kept).adjacency, matrix, rtol=1e-6)
    assert messages(3, edges, "mean", loops=False).weight.tolist() == [1, 0.5, 1, 0.5]
    assert messages(3, edges, "sum", loops=False, values=np.array([1, 2, 3, 4])).weight.tolist() == [1, 2, 3, 4]
    nothing = np.zeros((2, 0), np.int64)
    assert messages(2, nothing, "symmetric", loops=True).weight.tolist() == [1, 1]
    assert messages(2, nothing, "mean", loops=False).weight.size == 0
    with pytest.raises(ConfigError, match=r"'most' .*symmetric, mean, sum"):
        messages(1, nothing, "most", loops=True)


def test_a_graph_larger_than_any_batch() -> None:
    assert pack([], Limits()) == []
    assert pack([(3, 1), (3, 1), (3, 1)], Limits((6,))) == [range(2), range(2, 3)]
    for size, message in (((9, 1), "9 nodes, .* 8; .*--nodes"),
                       ((1, 99), "99 edges, .* 20; .*--edges")):  # fmt: skip
        with pytest.raises(DataError, match=message):
            pack([(1, 1), size], Limits((8,), (20,)))
