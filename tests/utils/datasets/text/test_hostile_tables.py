"""Invalid files of recommendation and graphs, and decompression bombs: one-line errors without delay."""

from __future__ import annotations

import gzip
import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import DataError
from tecoinfer_modelzoo.files import read_regular
from utils.arrays import read_npy, read_npz
from utils.datasets.episodes import read_recording
from utils.datasets.graphs import molecules, ogb
from utils.datasets.graphs.files import read_graphs
from utils.datasets.graphs.molecules import Molecule, parsed, read_molecules
from utils.datasets.graphs.node_graphs import read_node_graph
from utils.datasets.graphs.ogb import table
from utils.datasets.graphs.pickled_arrays import read_pickled
from utils.datasets.tabular.clicks import load_table
from utils.datasets.tabular.ratings import read_ratings

READERS: dict[str, Callable[[Path], Any]] = {
    "rows.csv": load_table,
    "rows.jsonl": load_table,
    "u.data": read_ratings,
    "ratings.csv": read_ratings,
    "a.npz": read_npz,
    "a.npy": read_npy,
    "set.npz": read_graphs,
    "nodes.npz": read_node_graph,
    "m.sdf": lambda path: read_molecules(path, ()),
    "m.smi": lambda path: read_molecules(path, ()),
    "ind.x.graph": read_pickled,
    "recorded.npz": read_recording,
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("what", ["pipe", "endless", "folder"])
def test_special_files_are_rejected_without_blocking(name: str, what: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if what == "pipe":
        os.mkfifo(path)
    elif what == "endless":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(DataError, match=name):
        READERS[name](path)


def test_a_pipe_next_to_the_ratings(tmp_path: Path) -> None:
    (tmp_path / "u.data").write_text("1\t2\t3\t4\n")
    os.mkfifo(tmp_path / "u.user")
    with pytest.raises(DataError, match=r"u\.user .*is a pipe"):
        read_ratings(tmp_path)


def _bomb(path: Path, times: int) -> Path:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "|u1", "fortran_order": False, "shape": (times * 10**6,)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("x.npy", head.getvalue() + bytes(times * 10**6))
    return path


def test_an_npz_that_is_a_decompression_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("utils.arrays.FREE", 1000)
    file = _bomb(tmp_path / "a.npz", 3)
    with pytest.raises(DataError, match=r"a\.npz .*3000\d+ bytes"):
        read_npz(file)
    assert read_npz(file, ("y",)) == {}  # other arrays are not unpacked


def test_an_npz_with_two_arrays_of_one_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(3))
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("x.npy", archive.read("x.npy"))
    with pytest.raises(DataError, match="two arrays 'x'"):
        read_npz(tmp_path / "a.npz")


def test_an_npz_with_a_member_that_is_not_an_array(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", b"no array")
    with pytest.raises(DataError, match=r"a\.npz .*'x'"):
        read_npz(tmp_path / "a.npz")


def test_a_compressed_table_that_is_a_decompression_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "edge.csv.gz").write_bytes(gzip.compress(b"0,1\n" * 10**5))
    assert len(table(tmp_path, "edge")) == 10**5
    monkeypatch.setattr(ogb, "FREE", 0)
    with pytest.raises(DataError, match=r"edge\.csv\.gz: .*more than \d+ bytes"):
        table(tmp_path, "edge")


def test_an_unknown_element(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rdkit")
    with pytest.raises(DataError, match="Pre-condition Violation"):
        parsed(Molecule("C[#119]", False, "x"))


def test_a_molecule_with_too_many_atoms(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rdkit")
    monkeypatch.setattr(molecules, "MOST_ATOMS", 5)
    assert parsed(Molecule("CCCCC", False, "x")).GetNumAtoms() == 5
    with pytest.raises(DataError, match=r"6 atoms.* 5"):
        parsed(Molecule("CCCCCC", False, "x"))


def test_an_empty_table(tmp_path: Path) -> None:
    (tmp_path / "m.csv").touch()
    with pytest.raises(DataError, match=r"m\.csv is empty"):
        read_molecules(tmp_path / "m.csv", ("SOL",))


def test_a_recording_of_several_environments(tmp_path: Path) -> None:
    rows = {"seeds": np.zeros(1, int), "steps": np.zeros(1, int), "observations": np.zeros((1, 2)), "actions": [0]}
    np.savez(tmp_path / "r.npz", environment=np.array(["a", "b"]), **rows)
    with pytest.raises(DataError, match=r"environment .*\(2,\) and dtype <U1"):
        read_recording(tmp_path / "r.npz")


def test_a_regular_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    assert read_regular(tmp_path / "a") == b"x"
