"""Folders of the Open Graph Benchmark: counts, splits, unknown labels."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from engine import ConfigError, DataError
from utils.datasets.graphs.ogb import is_ogb, labels, read_ogb, split, table
from utils.datasets.graphs.sets import Wanted, load_graphs

FILES = {
    "raw/num-node-list.csv.gz": "2\n3\n1\n",
    "raw/num-edge-list.csv.gz": "1\n2\n0\n",
    "raw/edge.csv.gz": "0,1\n0,1\n1,2\n",
    "raw/node-feat.csv.gz": "5,0\n6,0\n7,0\n8,1\n9,1\n4,1\n",
    "raw/edge-feat.csv.gz": "1\n2\n3\n",
    "raw/graph-label.csv.gz": "1,0\n,1\n0,\n",
    "split/scaffold/test.csv.gz": "2\n0\n",
    "split/scaffold/train.csv.gz": "1\n",
    "mapping/mol.csv.gz": "smiles,mol_id\nCO,a\nCCO,b\nC,c\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(gzip.compress(text.encode()))
    return tmp_path


def test_graphs_and_targets(folder: Path) -> None:
    assert is_ogb(folder)
    first, second, third = read_ogb(folder)
    assert [one.name for one in (first, second, third)] == ["0: CO", "1: CCO", "2: C"]
    assert second.nodes.tolist() == [[7, 0], [8, 1], [9, 1]]
    assert second.edges.tolist() == [[0, 1], [1, 2]]
    assert second.weights is not None
    assert second.weights.tolist() == [[2], [3]]
    assert third.edges.shape == (2, 0)
    np.testing.assert_array_equal(labels(folder), [[1, 0], [np.nan, 1], [0, np.nan]])


def test_split(folder: Path) -> None:
    found = load_graphs(folder, Wanted())
    assert found.names == ["2: C", "0: CO"]
    np.testing.assert_array_equal(found.batch(range(2)).targets, [[0, np.nan], [1, 0]])
    assert load_graphs(folder, Wanted(split="scaffold/train")).names == ["1: CCO"]
    assert len(load_graphs(folder / "raw", Wanted(split="all"))) == 3


def test_missing_parts(folder: Path) -> None:
    for part, scheme, message in (
        ("dev", None, "--split dev.*train, valid, test"),
        ("test", "random", "'random'.*scaffold"),
    ):
        with pytest.raises(ConfigError, match=message):
            split(folder, part, scheme)
    (folder / "split/random").mkdir()
    with pytest.raises(ConfigError, match=r"random, scaffold.*--split random/test"):
        split(folder, "test")
    with pytest.raises(DataError, match=r"valid.csv.gz is missing"):
        split(folder, "valid", "scaffold")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("raw/num-edge-list.csv.gz", "1\n2\n", "3 .*num-node-list.* 2 .*num-edge-list"),
        ("raw/node-feat.csv.gz", "5,0\n", "node-feat has 1 lines.* 6"),
        ("raw/edge.csv.gz", "0,x\n", "not a table of numbers"),
        ("raw/num-node-list.csv.gz", "2.5\n1\n1\n", "num-node-list needs one integer"),
    ],
)
def test_damaged_files(name: str, text: str, message: str, folder: Path) -> None:
    (folder / name).write_bytes(gzip.compress(text.encode()))
    with pytest.raises(DataError, match=message) as caught:
        read_ogb(folder)
    assert "\n" not in str(caught.value)


def test_a_truncated_file(folder: Path) -> None:
    file = folder / "raw/node-feat.csv.gz"
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(DataError, match="not a table of numbers"):
        table(folder / "raw", "node-feat")
