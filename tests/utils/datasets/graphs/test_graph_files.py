"""Files of graphs: round trips, invalid arrays, and undirected edges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError, DataError
from utils.datasets.graphs.files import Graph, GraphFile, Look, checked, read_graphs, save_graphs, with_reverse_edges
from utils.datasets.graphs.sets import FEATURES, TARGETS, Wanted, load_graphs


def graph(nodes: int, edges: list[tuple[int, int]], name: str = "g", **more: Any) -> Graph:
    ends = np.array(edges, np.int64).reshape(-1, 2).T
    return Graph(np.arange(nodes * 2, dtype=np.float32).reshape(nodes, 2), ends, name=name, **more)


def file_of(path: Path, **changed: Any) -> Path:
    arrays = {
        "nodes": np.zeros((5, 2), np.float32),
        "node_counts": np.array([2, 3]),
        "edges": np.array([[0, 1, 2], [1, 2, 0]]),
        "edge_counts": np.array([1, 2]),
    }
    arrays |= changed
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


@st.composite
def some_graphs(draw: st.DrawFn) -> list[Graph]:
    weighted, drawn = draw(st.booleans()), draw(st.booleans())
    found = []
    for place in range(draw(st.integers(1, 5))):
        nodes = draw(st.integers(1, 6))
        ends = draw(st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)), max_size=8))
        weights = np.ones((len(ends), 2), np.float32) * place if weighted else None
        look = Look(np.ones((nodes, 2), np.float32), ["a"] * nodes, np.ones(len(ends), np.int8)) if drawn else None
        found.append(graph(nodes, ends, f"graph {place}", weights=weights, look=look))
    return found


@given(some_graphs())
@settings(max_examples=25, deadline=None)
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, graphs: list[Graph]) -> None:
    file = tmp_path_factory.mktemp("graphs") / "g.npz"
    targets = np.arange(len(graphs) * 2, dtype=np.float64).reshape(-1, 2)
    save_graphs(file, GraphFile(graphs, targets, ("one", "two"), "{}"))
    found = read_graphs(file)
    assert (found.target_names, found.features) == (("one", "two"), "{}")
    np.testing.assert_array_equal(found.targets, targets)
    for mine, read in zip(graphs, found.graphs, strict=True):
        assert read.name == mine.name
        np.testing.assert_array_equal(read.nodes, mine.nodes)
        np.testing.assert_array_equal(read.edges, mine.edges)
        assert (read.weights is None, read.look is None) == (mine.weights is None, mine.look is None)
        assert checked(read) is read


@given(some_graphs())
@settings(max_examples=25, deadline=None)
def test_undirected_edges_without_duplicates(graphs: list[Graph]) -> None:
    for one in graphs:
        found = with_reverse_edges(one)
        pairs = list(map(tuple, found.edges.T.tolist()))
        wanted = {pair for ends in one.edges.T.tolist() for pair in (tuple(ends), tuple(ends[::-1]))}
        assert set(pairs) == wanted
        assert len(pairs) == len(wanted)
        assert found.weights is None or len(found.weights) == len(pairs)
        assert found.look is None or len(found.look.orders) == len(pairs)
        assert with_reverse_edges(found).edges.tolist() == found.edges.tolist()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (graph(0, []), r"nodes of shape \(0, 2\)"),
        (graph(2, [(0, 2)]), "edge at node 2.* 0 to 1"),
        (graph(2, [(-1, 0)]), "an edge at node -1"),
        (graph(2, [(0, 1)])._replace(edges=np.zeros(3, np.int64)), "edges of shape"),
        (graph(2, [(0, 1)], weights=np.zeros((2, 1), np.float32)), "weights of shape .* for 1 edges"),
        (graph(2, [])._replace(nodes=np.array([[0.0], [np.nan]])), "NaN or infinity .*node 1"),
    ],
)
def test_invalid_graphs(wrong: Graph, message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        checked(wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"nodes": None}, "no array 'nodes'"),
        ({"node_counts": np.array([2, 2])}, "nodes has 5 .*node_counts add up to 4"),
        ({"node_counts": np.array([5])}, "1 node_counts and 2 edge_counts"),
        ({"node_counts": np.zeros(0, np.int64), "edge_counts": np.zeros(0, np.int64)}, "no graphs"),
        ({"node_counts": np.array([2.0, 3.0])}, "node_counts .*G integers"),
        ({"edges": np.zeros((3, 3), np.int64)}, "2 x E integers"),
        ({"edges": np.zeros((2, 3))}, "2 x E integers"),
        ({"nodes": np.array(["a"] * 5)}, "N x F numbers"),
        ({"edge_weights": np.zeros((2, 1))}, "edge_weights has 2 .*edge_counts add up to 3"),
        ({"targets": np.zeros(3)}, r"targets .*expected \(2,\)"),
        ({"names": np.array(["a"])}, r"names have shape \(1,\)"),
    ],
)
def test_files_with_mismatched_arrays(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    file = file_of(tmp_path / "g.npz", **changed)
    with pytest.raises(DataError, match=message) as caught:
        read_graphs(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert "\n" not in str(caught.value)


def test_graphs_without_targets_are_rejected(tmp_path: Path) -> None:
    file = file_of(tmp_path / "g.npz", targets=np.array([1.5, np.nan]), features=np.array("{}"))
    found = load_graphs(file, Wanted())
    assert (len(found), found.names, [str(lost.path) for lost in found.rejected]) == (1, ["g.npz[0]"], ["g.npz[1]"])
    assert (found.notes[FEATURES], found.notes[TARGETS]) == ("{}", ())
    assert len(load_graphs(file, Wanted(targets=False))) == 2
    file = file_of(tmp_path / "h.npz", targets=np.array([np.nan, np.nan]))
    with pytest.raises(DataError, match="no target of any graph"):
        load_graphs(file, Wanted())


def test_graphs_with_and_without_weights_are_not_saved(tmp_path: Path) -> None:
    graphs = [graph(2, [(0, 1)]), graph(2, [(0, 1)], weights=np.ones((1, 1), np.float32))]
    with pytest.raises(ConfigError, match="weights or looks"):
        save_graphs(tmp_path / "g.npz", GraphFile(graphs))


def test_split_of_data_without_parts(tmp_path: Path) -> None:
    file = tmp_path / "one.smi"
    file.write_text("CC\n")
    with pytest.raises(ConfigError, match=r"^--split train: .*one\.smi"):
        load_graphs(file, Wanted(split="train", targets=False))
    assert len(load_graphs(file, Wanted(split="all", targets=False))) == 1


def test_nan_edge_weights() -> None:
    weights = np.array([[1.0], [np.nan]], np.float32)
    graph = Graph(np.ones((2, 1), np.float32), np.array([[0, 1], [1, 0]]), weights)
    with pytest.raises(DataError, match="weights of edge 1"):
        checked(graph)
