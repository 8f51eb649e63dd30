"""Molecules: SDF files, tables of SMILES, and their graphs by RDKit."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from engine import ConfigError, DataError, ModelError
from utils.datasets.graphs.molecules import (
    AtomFeatures,
    Molecule,
    canonical,
    graph_of,
    look_of,
    read_molecules,
    read_sdf,
)

BLOCK = """{name}
  made by hand

  3  2  0  0  0  0            999 V2000
    0.0000    0.0000    0.0000 C   0  0
    1.0000    0.0000    0.0000 C   0  0
    2.0000    0.0000    0.0000 O   0  0
  1  2  1  0
  2  3  1  0
M  END
> <SOL>
{value}

> 25 <NOTE>
two
lines

$$$$
"""


def sdf(folder: Path, *records: tuple[str, str], ending: str = "\n") -> Path:
    file = folder / "m.sdf"
    text = "".join(BLOCK.format(name=name, value=value) for name, value in records)
    file.write_text(text, encoding="utf-8", newline=ending)
    return file


def smiles(text: str) -> Molecule:
    return Molecule(text, False, text)


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_records_and_their_data(ending: str, tmp_path: Path) -> None:
    found = read_sdf(sdf(tmp_path, ("ethanol", "1.1"), ("", "-2"), ending=ending), ["SOL"])
    assert [one.name for one in found.found] == ["ethanol", "m_19"]
    assert found.targets is not None
    assert found.targets.tolist() == [[1.1], [-2.0]]
    assert {canonical(one) for one in found.found} == {"CCO"}
    assert read_sdf(tmp_path / "m.sdf", ()).targets is None


def test_invalid_records_are_rejected(tmp_path: Path) -> None:
    file = sdf(tmp_path, ("a", "1"), ("b", "much"), ("c", ""), ("d", "inf"))
    file.write_text(file.read_text() + "cut\nshort\n$$$$\n")
    found = read_sdf(file, ["SOL"])
    assert [one.name for one in found.found] == ["a"]
    reasons = [f"{lost.path.name} {lost.reason}" for lost in found.rejected]
    for line, words in zip(
        reasons, ("'b': SOL is 'much'", "'c': it has no SOL", "'d': SOL is 'inf'", "'cut'"), strict=True
    ):
        assert words in line
    with pytest.raises(DataError, match=r"'sol' \(--property\).*'SOL', 'NOTE'"):
        read_sdf(file, ["sol"])


def test_equal_names_get_numbers(tmp_path: Path) -> None:
    assert [one.name for one in read_sdf(sdf(tmp_path, ("a", "1"), ("a", "2")), ()).found] == ["a (1)", "a (2)"]


def test_a_table_of_smiles(tmp_path: Path) -> None:
    file = tmp_path / "m.csv"
    file.write_text("SMILES,name,one,two\nCCO,ethanol,1,\n,empty,1,1\nC1CC,broken,,2\nCC,ethane,,\n")
    found = read_molecules(file, ["one", "two"])
    assert [one.name for one in found.found] == ["ethanol", "broken"]  # parse errors are reported when it is prepared
    assert found.targets is not None
    assert [list(map(math.isnan, row)) for row in found.targets.tolist()] == [[False, True], [True, False]]
    assert len(found.rejected) == 2
    with pytest.raises(DataError, match="no column 'three'"):
        read_molecules(file, ["three"])
    (tmp_path / "m.smi").write_text("CCO ethanol of wine\n\nCC\n")
    assert [one.name for one in read_molecules(tmp_path / "m.smi", ()).found] == ["ethanol of wine", "CC"]
    with pytest.raises(DataError, match="have no targets"):
        read_molecules(tmp_path / "m.smi", ["one"])
    (tmp_path / "n.csv").write_text("a,b\n1,2\n")
    with pytest.raises(DataError, match=r"'a', 'b'.*--smiles_column"):
        read_molecules(tmp_path / "n.csv", ())


def test_invalid_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_molecules(tmp_path / "gone.sdf", ())
    with pytest.raises(ConfigError, match=r"unsupported ending.*\.smi"):
        read_molecules(tmp_path / "a.pdb", ())
    (tmp_path / "empty.sdf").write_text("")
    with pytest.raises(DataError, match="no usable molecule"):
        read_molecules(tmp_path / "empty.sdf", ["SOL"])


def test_a_molecule_as_a_graph() -> None:
    features = AtomFeatures()
    found = graph_of(smiles("C[NH3+]"), features)
    assert found.nodes.shape == (2, features.width) == (2, 22)
    assert found.edges.tolist() == [[0, 1], [1, 0]]
    elements, degrees, hydrogens, rest = np.split(found.nodes, [10, 15, 19], axis=1)
    assert elements.argmax(1).tolist() == [0, 1]
    assert degrees.argmax(1).tolist() == [1, 1]
    assert hydrogens.argmax(1).tolist() == [3, 3]  # three is not in (0, 1, 2)
    assert rest.tolist() == [[0, 0, 0], [1, 0, 0]]
    ring = graph_of(smiles("c1ccccc1"), features)
    assert ring.nodes[:, -2:].tolist() == [[1, 1]] * 6
    assert graph_of(smiles("C"), features).edges.shape == (2, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("C1CC", "RDKit cannot read its SMILES 'C1CC'"),
        ("", "has no atoms"),
        ("C(C)(C)(C)(C)C", "is not a molecule: Explicit valence for atom # 0 C, 5, is greater than permitted"),
    ],
)
def test_invalid_molecules(text: str, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError, match=message) as caught:
        graph_of(smiles(text), AtomFeatures())
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""  # RDKit's log is suppressed


def test_drawing() -> None:
    look, bonds = look_of(smiles("OC(=O)c1ccccc1"))
    assert look.points.shape == (9, 2)
    assert sorted(filter(None, look.labels)) == ["O", "OH"]
    assert sorted(look.orders.tolist()) == [1] * 5 + [2] * 4  # rings have alternating single and double lines
    assert bonds.shape == (2, 9)
    assert look_of(smiles("C"))[0].labels == ["CH4"]


def test_missing_rdkit_is_reported_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdkit", None)
    with pytest.raises(ConfigError, match=r"rdkit.*pip install .*molecules"):
        graph_of(smiles("CC"), AtomFeatures())


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ([], "must be an object with elements"),
        ({**AtomFeatures().stored(), "degrees": ["1"]}, "degrees is not a list of int"),
        ({**AtomFeatures().stored(), "rest": ["mass"]}, "'mass'.*charge, aromatic, ring"),
    ],
)
def test_stored_features(stored: object, message: str) -> None:
    assert AtomFeatures.of(AtomFeatures().stored(), Path("m.onnx")) == AtomFeatures()
    with pytest.raises(ModelError, match=message):
        AtomFeatures.of(stored, Path("m.onnx"))
