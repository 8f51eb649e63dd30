"""Neighbours of nodes: weights of edges, and samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import Array
from utils.preprocess.graphs.neighbours import ADJACENCIES, ATTENTION, Neighbours, edges_of, places_of


def graph(seed: int, count: int = 12) -> Array:
    random = np.random.default_rng(seed)
    pairs = np.unique(random.integers(0, count, (2, 30)), axis=1)
    return pairs[:, pairs[0] != pairs[1]]


@pytest.mark.parametrize("kind", ADJACENCIES)
def test_the_matrix_equals_its_definition(kind: str) -> None:
    edges = graph(0)
    plain = np.zeros((12, 12))
    plain[edges[1], edges[0]] = 1
    loops = plain + np.eye(12)
    root = np.diag(1 / np.sqrt(loops.sum(axis=1)))
    wanted = {
        "symmetric": root @ loops @ root,
        "mean": plain / np.maximum(plain.sum(axis=1, keepdims=True), 1),
        "attention": loops,
    }[kind]
    found = Neighbours(edges, 12, kind).matrix(15)
    np.testing.assert_allclose(found[:12, :12], wanted, atol=1e-6)
    assert not found[12:].any()
    assert not found[:, 12:].any()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 50), st.sampled_from(ADJACENCIES), st.integers(1, 4), st.integers(1, 4))
def test_samples_are_neighbours_and_deterministic(seed: int, kind: str, near: int, far: int) -> None:
    found = Neighbours(graph(seed), 12, kind)
    matrix = found.matrix(12)
    for node in range(12):
        tree = found.sampled(node, (near, far), seed)
        again = found.sampled(node, (near, far), seed)
        assert all((one == two).all() for one, two in zip(tree, again, strict=True))
        assert len(tree.numbers) == places_of((near, far))
        taken = tree.numbers >= 0
        assert taken[1 : 1 + near].sum() == min(near, found.degrees[node])
        assert all(matrix[tree.numbers[tree.parents[i]], tree.numbers[i]] for i in np.flatnonzero(taken)[1:])
        edges, weights = found.of_tree(tree)
        assert edges.shape == (2, edges_of((near, far), kind))
        assert not weights[: len(taken) - 1][~taken[1:]].any()
        if kind != ATTENTION:  # they represent all neighbours
            sums = np.bincount(edges[1], weights, len(taken))
            if kind == "mean":
                assert sums[0] == pytest.approx(min(1, found.degrees[node]))
