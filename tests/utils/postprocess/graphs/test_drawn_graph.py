"""Drawings of graphs."""

from __future__ import annotations

import numpy as np
import pytest

from utils.datasets.graphs.files import Look
from utils.postprocess.graphs.drawn_graph import SIDE, draw_graph, laid_out

NOTHING = np.zeros((2, 0), np.int64)


@pytest.mark.parametrize("nodes", [1, 2, 7, 250])
def test_a_graph_without_positions(nodes: int) -> None:
    ring = np.array([[at, (at + 1) % nodes] for at in range(nodes)]).T if nodes > 2 else NOTHING
    look = laid_out(nodes, ring)
    assert np.isfinite(look.points).all()
    assert len(np.unique(look.points.round(3), axis=0)) == nodes
    np.testing.assert_array_equal(look.points, laid_out(nodes, ring).points)
    image = draw_graph(look, ring)
    assert max(image.size) <= SIDE + 1
    assert np.asarray(image).min() < 128


def test_lines_labels_and_loops() -> None:
    look = Look(np.array([[0, 0], [1, 0], [1, 0]], np.float32), ["N", "", "Cl-"], np.array([1, 2, 3, 4], np.int8))
    edges = np.array([[0, 1, 1, 0], [1, 0, 2, 0]])  # both ways, between equal places, and a loop
    pixels = np.asarray(draw_graph(look, edges)).reshape(-1, 3)
    assert (pixels == (48, 80, 216)).all(axis=1).any()  # nitrogen is blue
    triple = Look(look.points[:2], ["", ""], np.array([3], np.int8))
    once = Look(look.points[:2], ["", ""], np.array([1], np.int8))
    ends = np.array([[0], [1]])
    assert np.asarray(draw_graph(triple, ends)).mean() < np.asarray(draw_graph(once, ends)).mean()
