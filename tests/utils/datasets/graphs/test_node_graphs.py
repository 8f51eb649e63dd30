"""Graphs with node classes: three layouts, pickles that are read without running them, and invalid files."""

from __future__ import annotations

import gzip
import os
import pickle
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from engine import DataError
from utils.datasets.graphs.files import Labelled
from utils.datasets.graphs.node_graphs import GRAPH, NodeGraph, load_nodes, read_node_graph
from utils.datasets.graphs.pickled_arrays import Sparse, read_pickled

COUNT = 20


def saved(path: Path, **other: Any) -> Path:
    """Write a ring of nodes; ``None`` omits an array."""
    ends = np.arange(COUNT)
    arrays: dict[str, Any] = {
        "x": np.random.default_rng(0).random((COUNT, 3), np.float32),
        "edges": np.stack([ends, (ends + 1) % COUNT]),
        "y": ends % 3,
        "train_mask": ends < 5,
        "test_mask": ends >= 10,
    }
    kept = {name: array for name, array in (arrays | other).items() if array is not None}
    np.savez(path, **kept)
    return path


def planetoid(folder: Path, protocol: int = 2, **other: Any) -> Path:
    """Write a network in Planetoid's files: 6 nodes, 2 of them for training, and the test nodes 9 and 7."""
    random = np.random.default_rng(1)
    rows, classes = (
        (random.random((8, 4)) < 0.5).astype(np.float32),
        np.eye(3, dtype=np.int32)[[0, 1, 2, 0, 1, 2, 0, 1]],
    )
    graph = defaultdict(list, {node: [(node + 1) % 10, (node + 9) % 10] for node in range(10)})
    parts: dict[str, Any] = {
        "x": scipy.sparse.csr_matrix(rows[:2]),
        "allx": scipy.sparse.csr_matrix(rows[:6]),
        "tx": scipy.sparse.csr_matrix(rows[6:]),
        "y": classes[:2],
        "ally": classes[:6],
        "ty": classes[6:],
        "graph": graph,
    }
    folder.mkdir(exist_ok=True)
    for name, part in (parts | other).items():
        (folder / f"ind.tiny.{name}").write_bytes(pickle.dumps(part, protocol))
    (folder / "ind.tiny.test.index").write_text("9\n7\n", encoding="ascii")
    return folder


def of(path: Path) -> tuple[NodeGraph, Labelled]:
    graph = read_node_graph(path)
    return graph, graph.found


def test_nodes_of_a_part_and_by_number(tmp_path: Path) -> None:
    path = saved(tmp_path / "ring.npz", y=np.where(np.arange(COUNT) == 12, -1, np.arange(COUNT) % 3))
    found = load_nodes(path, "test")
    assert len(found) == 9
    assert [one.path.name for one in found.rejected] == ["node 12"]
    batch = found.batch([0, 2])
    assert [(node.number, target) for node, target in zip(batch.samples, batch.targets or (), strict=True)] == [
        (10, 1),
        (13, 1),
    ]
    some = load_nodes(path, "test", ["3", "18-25", "x", "99"])
    assert some.names == ["node 3", "node 18", "node 19"]
    assert [one.path.name for one in some.rejected] == ["node 18-25", "node x", "node 99"]
    with pytest.raises(DataError, match="0 to 19"):
        load_nodes(path, "test", ["99"])


def test_edges_in_one_or_both_directions(tmp_path: Path) -> None:
    graph, _ = of(saved(tmp_path / "g.npz", edges=np.array([[0, 0, 1, 2], [1, 1, 0, 2]])))
    assert graph.edges(both=False).T.tolist() == [[1, 0], [0, 1]]
    graph, _ = of(saved(tmp_path / "h.npz", edges=np.array([[0, 3], [1, 2]])))
    assert sorted(graph.edges(both=True).T.tolist()) == [[0, 1], [1, 0], [2, 3], [3, 2]]


def test_a_graph_is_pickled_by_its_path(tmp_path: Path) -> None:
    graph, _ = of(saved(tmp_path / "g.npz"))
    assert len(pickle.dumps(graph)) < 500
    assert pickle.loads(pickle.dumps(graph)) is graph  # noqa: S301  # our own


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"x": None}, "no array 'x'"),
        ({"edges": np.zeros((2, 0), np.int64)}, "20 nodes and no edges"),
        ({"edges": np.array([[0, 1], [1, 2], [2, 3]])}, r"save edges\.T"),
        ({"edges": np.array([[0], [20]])}, "edge at node 20.*0 to 19"),
        ({"y": np.full(COUNT, -2)}, "class -2"),
        ({"y": np.zeros(3, np.int64)}, "expected 20 integers"),
        ({"train_mask": np.ones(COUNT, bool)}, "in two of train, valid and test"),
        ({"weights": np.ones(COUNT)}, "edges have weights"),
        ({"picture": np.array([2, 2])}, "not height and width of 3"),
        ({"picture": np.array([1 + 1j, 2])}, "not height and width of 3"),
        ({"picture": np.array([0.5, 6.0])}, "not height and width of 3"),
        ({"picture": np.array([-1, -3])}, "not height and width of 3"),
        ({"classes": np.array(["a", "b"])}, "class 2 .*0 to 1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_invalid_files(tmp_path: Path, other: dict[str, Any], message: str) -> None:
    path = saved(tmp_path / "bad.npz", **other)
    with pytest.raises(DataError, match=message) as caught:
        read_node_graph(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_planetoid_is_read_without_unpickling(tmp_path: Path, protocol: int, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = planetoid(tmp_path / "tiny", protocol)
    monkeypatch.setattr(pickle, "loads", None)
    monkeypatch.setattr(pickle, "load", None)
    graph, found = of(folder)
    assert len(graph) == 10
    assert found.labels.tolist() == [0, 1, 2, 0, 1, 2, -1, 1, -1, 0]
    assert found.parts.tolist() == [0, 0, 1, 1, 1, 1, -1, 2, -1, 2]
    assert found.undirected
    assert graph.edges(both=True).shape == (2, 20)
    assert read_node_graph(folder / "ind.tiny.graph").found.graph.nodes.tolist() == found.graph.nodes.tolist()


class _Harm:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ["HARM"],)


@pytest.mark.parametrize("protocol", [2, 4])
def test_a_pickle_with_a_call_is_rejected_without_running_it(
    tmp_path: Path, protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HARM", str(tmp_path / "harm"))
    folder = planetoid(tmp_path / "tiny", protocol, ty=_Harm())
    with pytest.raises(DataError, match=r"ind\.tiny\.ty: names .*mkdir'"):
        read_node_graph(folder)
    assert not (tmp_path / "harm").exists()


ROOM = b"cnumpy\ndtype\n"


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02Nr\xff\xff\xff\x7f.",  # a memo of 2e9 objects
        b"\x80\x02}" + b")" + b"\x85" * 1_000_000 + b"K\x01s.",  # a key nested too deep to hash
        b"\x80\x02})q\x00" + b"h\x00h\x00\x86q\x00" * 60 + b"K\x01s.",  # a key that takes 2**60 steps to hash
        b"\x80\x02})q\x00"
        + b"h\x00h\x00\x86q\x00" * 60
        + b"]h\x00aK\x01]h\x00as.",  # a value with 2**60 steps to print
        b"\x80\x02}K\x01]q\x00("
        + b"K\x01" * 1000
        + b"es"
        + b"".join(b"J" + bytes([n, n, 0, 0]) + b"h\x00s" for n in range(9))
        + b".",
        b"\x80\x02" + ROOM + b"}U\x0c__setstate__" + ROOM + b"sb.",  # the class itself gets an attribute
        b"\x80\x02" + ROOM + b"N}U\x06__name__" + b"U\x01xs\x86b.",
        b"\x80\x02" + ROOM + b"(" + b"K\x01" * 1000 + b"tR.",  # a thousand arguments
        b"\x80\x02c__builtin__\nlist\n" + b"]]K\x01aa\x85R.",
        b"\x80\x02c__builtin__\neval\nX\x03\x00\x00\x001+1\x85R.",
        b"\x80\x04\x82\x01.",  # a number in the extension registry outside the file
        b"I1\n.",
        b"P1\n.",
    ],
)
def test_hostile_pickles_are_one_line(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "p"
    file.write_bytes(content)
    with pytest.raises(DataError) as caught:
        read_pickled(file)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "change", [{"_shape": (-1, 3)}, {"_shape": ("2", 3)}, {"indices": np.ones(6)}, {"indptr": np.array(3)}, {"data": 3}]
)
def test_a_sparse_matrix_with_mismatched_parts(tmp_path: Path, change: dict[str, Any]) -> None:
    matrix = scipy.sparse.csr_matrix(np.ones((2, 3)))
    matrix.__dict__.update(change)
    file = tmp_path / "p"
    file.write_bytes(pickle.dumps(matrix, 2))
    with pytest.raises(DataError):
        read_pickled(file).dense(1000)


@pytest.mark.parametrize("kind", ["array", "turned", "sparse", "dict"])
def test_content_equals_that_of_pickle(tmp_path: Path, kind: str) -> None:
    numbers = np.arange(6, dtype=np.float64).reshape(2, 3)
    given = {"array": numbers, "turned": np.asfortranarray(numbers), "sparse": scipy.sparse.csr_matrix(numbers)}
    file = tmp_path / "p"
    file.write_bytes(pickle.dumps(given.get(kind, {3: [1, 2], 4: []}), 2))
    found = read_pickled(file)
    if kind == "dict":
        assert found == {3: [1, 2], 4: []}
        return
    assert (found.dense(1000) if isinstance(found, Sparse) else found).tolist() == numbers.tolist()
    for length in range(0, file.stat().st_size - 1, 7):
        file.write_bytes(pickle.dumps(given[kind], 2)[:length])
        with pytest.raises(DataError):
            read_pickled(file)


def test_a_sparse_matrix_that_is_too_large(tmp_path: Path) -> None:
    file = tmp_path / "p"
    file.write_bytes(pickle.dumps(scipy.sparse.csr_matrix((100_000, 100_000)), 2))
    with pytest.raises(DataError, match=r"take 40\.0 GB"):
        read_pickled(file).dense(1000)


def test_planetoid_with_a_file_missing(tmp_path: Path) -> None:
    folder = planetoid(tmp_path / "tiny")
    (folder / "ind.tiny.ty").unlink()
    with pytest.raises(DataError, match=r"ind\.tiny\.ty: is missing"):
        read_node_graph(folder)


def ogb(folder: Path, labels: str = "0\n1\n\n0\n") -> Path:
    """Write an OGB folder of four nodes."""
    files = {
        "raw/edge": "0,1\n1,2\n2,3\n",
        "raw/node-feat": "1,0\n0,1\n1,1\n0,0\n",
        "raw/node-label": labels,
        "raw/num-node-list": "4\n",
        "raw/num-edge-list": "3\n",
        "split/time/train": "0\n",
        "split/time/valid": "1\n",
        "split/time/test": "3\n2\n",
        "mapping/labelidx2name": "label idx,name\n0,cats\n1,dogs\n",
    }
    for name, text in files.items():
        path = folder / f"{name}.csv.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()))
    return folder


def test_an_ogb_folder(tmp_path: Path) -> None:
    graph, found = of(ogb(tmp_path / "ogbn_tiny"))
    assert found.labels.tolist() == [0, 1, -1, 0]
    assert found.parts.tolist() == [0, 1, 2, 2]
    assert found.classes == ("cats", "dogs")
    assert graph.edges(both=False).shape == (2, 3)
    assert len(load_nodes(graph.path, "test").notes[GRAPH]) == 4
    assert of(ogb(tmp_path / "ogbn_products"))[1].undirected


@pytest.mark.parametrize("labels", ["0,1\n1,0\n0,0\n1,1\n", "0\n1\n", "0.5\n1\n0\n1\n"])
def test_ogb_labels_must_be_classes(tmp_path: Path, labels: str) -> None:
    with pytest.raises(DataError, match="node-label"):
        read_node_graph(ogb(tmp_path / "ogbn_tiny", labels))
