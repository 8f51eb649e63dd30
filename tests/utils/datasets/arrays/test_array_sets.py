"""Data sets of arrays: every layout gives the same samples, and each mistake is one line with file and fix."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from engine import Array, DataError
from utils.datasets.arrays.files import read_arrays
from utils.datasets.arrays.sets import EXPECTED_FORMS, ArraySample, Tensors, load_arrays
from utils.datasets.base import ListDataset

ONE = Tensors(("x",), ("y",))
TWO = Tensors(("left", "right"), ("map", "sure"))

X = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
Y = np.array([3, 1, 2, 0])


def load(path: Path, tensors: Tensors = ONE, *, wanted: bool = True, **more: Path) -> ListDataset:
    return load_arrays({"data": path, **more}, tensors, wanted=wanted)


def contents(found: ListDataset, names: tuple[str, ...] = ("y",)) -> tuple[list[list[Any]], list[list[Any]]]:
    """Return inputs and expected arrays of all samples as lists."""
    assert all(isinstance(sample, ArraySample) for sample in found.samples)
    targets = found.targets or []
    return (
        [[array.tolist() for array in sample.arrays] for sample in found.samples],
        [[np.asarray(target[name]).tolist() for name in names] for target in targets],
    )


EXPECTED = ([[row.tolist()] for row in X], [[label] for label in Y.tolist()])


def by_name(folder: Path) -> dict[str, Path]:
    np.savez(folder / "val.npz", x=X, y=Y)
    return {"data": folder / "val.npz"}


def in_a_folder_of_names(folder: Path) -> dict[str, Path]:
    np.savez(folder / "val.npz", **{"x": X, "expected/y": Y})
    return {"data": folder / "val.npz"}


def unnamed(folder: Path) -> dict[str, Path]:
    np.savez(folder / "val.npz", samples=X, label=Y)
    return {"data": folder / "val.npz"}


def beside(folder: Path) -> dict[str, Path]:
    np.save(folder / "val.npy", X)
    np.save(folder / "val.expected.npy", Y)
    return {"data": folder / "val.npy"}


def beside_as_a_table(folder: Path) -> dict[str, Path]:
    np.save(folder / "val.npy", X)
    (folder / "val.expected.csv").write_text("\n".join(map(str, Y)) + "\n")
    return {"data": folder / "val.npy"}


def named_paths(folder: Path) -> dict[str, Path]:
    np.save(folder / "a.npy", X)
    np.savez(folder / "b.npz", y=Y)
    return {"x": folder / "a.npy", "expected": folder / "b.npz"}


def folder_of_npz(folder: Path) -> dict[str, Path]:
    for place, (row, label) in enumerate(zip(X, Y, strict=True)):
        np.savez(folder / f"{place}.npz", x=row, y=label)
    return {"data": folder}


def folder_of_npy(folder: Path) -> dict[str, Path]:
    for place, (row, label) in enumerate(zip(X, Y, strict=True)):
        np.save(folder / f"{place}.npy", row)
        np.save(folder / f"{place}.expected.npy", label)
    return {"data": folder}


def two_folders(folder: Path) -> dict[str, Path]:
    for name, column in (("x", X), ("expected", Y)):
        (folder / name).mkdir()
        for place, row in enumerate(column):
            np.save(folder / name / f"{place}.npy", row)
    return {"x": folder / "x", "expected": folder / "expected"}


LAYOUTS = [
    *(by_name, in_a_folder_of_names, unnamed, beside, beside_as_a_table, named_paths, folder_of_npz, folder_of_npy),
    two_folders,
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_samples(layout: Callable[[Path], dict[str, Path]], tmp_path: Path) -> None:
    paths = layout(tmp_path)
    found = load_arrays(paths, ONE, wanted=True)
    assert contents(found) == EXPECTED
    assert len(set(found.names)) == len(found) == 4
    assert list(found.rejected) == []
    assert found.notes[EXPECTED_FORMS]["y"][0] == ()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_fingerprint_follows_the_contents(layout: Callable[[Path], dict[str, Path]], tmp_path: Path) -> None:
    paths = layout(tmp_path)
    before = load_arrays(paths, ONE, wanted=True).fingerprint()
    assert load_arrays(paths, ONE, wanted=True).fingerprint() == before
    for file in sorted(file for file in tmp_path.rglob("*") if file.suffix in (".npy", ".npz")):
        content = file.read_bytes()
        with file.open("ab") as stream:
            stream.write(b"\0")
        assert load_arrays(paths, ONE, wanted=True).fingerprint() != before, file
        file.write_bytes(content)


@pytest.mark.parametrize(("suffix", "separator"), [(".csv", ","), (".tsv", "\t")])
def test_tables(suffix: str, separator: str, tmp_path: Path) -> None:
    file = tmp_path / f"val{suffix}"
    lines = [["a", "label", "b"], ["1.5", "2", "-3e-1"], ["0", "1", "7"]]
    file.write_text("\ufeff" + "\n".join(separator.join(line) for line in lines) + "\n", encoding="utf-8")
    found = load(file)
    assert contents(found) == ([[[1.5, -0.3]], [[0, 7]]], [[2], [1]])
    assert found.targets is not None
    assert found.targets[0]["y"].dtype == np.int64
    assert all(sample.flat for sample in found.samples)


def test_columns_of_several_inputs_and_outputs(tmp_path: Path) -> None:
    file = tmp_path / "val.csv"
    file.write_text("left/0,left/1,right,map/0,map/1,expected/sure\n1,2,3,4,5,0.5\n6,7,8,9,10,0.25\n")
    found = load(file, TWO)
    assert contents(found, ("map", "sure")) == ([[[1, 2], 3], [[6, 7], 8]], [[[4, 5], 0.5], [[9, 10], 0.25]])


def test_a_table_without_a_header(tmp_path: Path) -> None:
    file = tmp_path / "val.csv"
    file.write_text("1,2\n3,4\n")
    assert contents(load(file, wanted=False))[0] == [[[1, 2]], [[3, 4]]]


def test_some_expected_outputs_are_enough(tmp_path: Path) -> None:
    np.savez(tmp_path / "val.npz", left=X, right=X, sure=Y)
    found = load(tmp_path / "val.npz", TWO)
    assert set(found.notes[EXPECTED_FORMS]) == {"sure"}


def test_without_expected_outputs(tmp_path: Path) -> None:
    np.savez(tmp_path / "val.npz", x=X)
    found = load(tmp_path / "val.npz", wanted=False)
    assert found.targets is None


@pytest.mark.parametrize("units", [np.array([7, 7, 8, 8]), np.array(["a", "a", "b", "b"])])
def test_units(units: Array, tmp_path: Path) -> None:
    np.savez(tmp_path / "val.npz", x=X, y=Y, units=units)
    found = load(tmp_path / "val.npz")
    assert found.has_units
    assert found.batch([1, 2]).units == [str(units[1]), str(units[2])]


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_files_are_restored(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder, count = tmp_path_factory.mktemp("arrays"), data.draw(st.integers(1, 4))
    dtypes = st.sampled_from([np.float16, np.float32, np.float64, np.uint8, np.int32, np.int64, np.bool_])
    values = {}
    for name in ("left", "right", "map", "sure"):
        shape = (count, *data.draw(array_shapes(min_dims=0, max_dims=3, max_side=3)))
        elements = st.integers(0, 1)
        values[name] = data.draw(arrays(np.int64, shape, elements=elements)).astype(data.draw(dtypes))
    np.savez(folder / "val.npz", **values)
    found = load(folder / "val.npz", TWO)
    for place, (sample, target) in enumerate(zip(found.samples, found.targets or (), strict=True)):
        for name, array in (*zip(TWO.inputs, sample.arrays, strict=True), *target.items()):
            np.testing.assert_array_equal(array, values[name][place])
            assert array.dtype == values[name].dtype


def written(file: Path, content: Any) -> Path:
    if isinstance(content, str):
        file.write_text(content)
    elif isinstance(content, dict):
        np.savez(file, **content)
    else:
        np.save(file, content)
    return file


OBJECTS = np.array([{"a": 1}, None, 2, "x"], dtype=object)


@pytest.mark.parametrize(
    ("name", "content", "tensors", "words"),
    [
        ("v.npz", {"left": X, "map": X}, TWO, ["'right'", "an input of the model"]),
        ("v.npz", {"x": X}, ONE, ["no expected output", "'expected/y'", "v.expected.npz"]),
        ("v.npy", X, ONE, ["no expected output", "v.expected.npy"]),
        ("v.npy", X, TWO, ["'left'", "left=FILE right=FILE"]),
        ("v.npz", {"x": X, "y": Y[:3]}, ONE, ["x 4", "y 3"]),
        ("v.npz", {"x": X, "y": Y, "z": Y}, ONE, ["'z'", "rename or remove"]),
        ("v.npz", {"left": X, "rigth": X, "right": X, "sure": Y}, TWO, ["'rigth'", "did you mean 'right'"]),
        ("v.npz", {"x": np.float32(1), "y": Y}, ONE, ["first axis"]),
        ("v.npz", {"x": X[:0], "y": Y[:0]}, ONE, ["first axis"]),
        ("v.npz", {"x": OBJECTS, "y": Y}, ONE, ["v.npz", "Object arrays cannot be loaded"]),
        ("v.npy", OBJECTS, ONE, ["v.npy", "Object arrays cannot be loaded"]),
        ("v.npz", {"x": np.array(list("abcd")), "y": Y}, ONE, ["'x'", "<U1", "astype"]),
        ("v.npz", {"x": X, "y": np.array([1, np.nan, 2, 3])}, ONE, ["v.npz[1]", "'y'", "1 NaN"]),
        ("v.csv", "a,label\n1,2\n3,four\n", ONE, ["v.csv:3", "'label'", "'four'", "correct the cell"]),
        ("v.csv", "1,2\n3,\n", ONE, ["v.csv:2", "column 2", "''"]),
        ("v.csv", "a,label\nnan,2\n", ONE, ["v.csv:2", "'nan'"]),
        ("v.csv", "a,label\n1,2,3\n", ONE, ["v.csv:2", "3 cells for 2 columns"]),
        ("v.csv", "a,label\n", ONE, ["no rows"]),
        ("v.csv", "a,a\n1,2\n", ONE, ["two columns", "'a'"]),
        ("v.txt", "1\n", ONE, ["'.txt'", ".npz"]),
    ],
)
def test_mistakes_are_one_line(name: str, content: Any, tensors: Tensors, words: list[str], tmp_path: Path) -> None:
    file = written(tmp_path / name, content)
    with pytest.raises(DataError) as caught:
        load(file, tensors)
    text = str(caught.value)
    assert str(file) in text
    assert "\n" not in text
    assert all(word in text for word in words), text


def test_a_wrong_file_of_a_folder_is_rejected_and_the_others_stay(tmp_path: Path) -> None:
    folder_of_npz(tmp_path)
    np.savez(tmp_path / "1.npz", x=X[1])
    np.savez(tmp_path / "2.npz", x=X[2], y=np.nan)
    (tmp_path / "9.csv").write_text("1,2\n3,4\n")
    (tmp_path / "notes.txt").write_text("not a sample")
    found = load(tmp_path)
    assert [Path(name).name for name in found.names] == ["0.npz", "3.npz"]
    assert {one.path.name for one in found.rejected} == {"1.npz", "2.npz", "9.csv"}
    assert all(str(tmp_path) not in one.reason.partition(";")[0] for one in found.rejected)


def test_wrong_paths(tmp_path: Path) -> None:
    paths = two_folders(tmp_path)
    np.save(tmp_path / "a.npy", X)
    (paths["expected"] / "2.npy").unlink()
    assert [one.path.name for one in load_arrays(paths, ONE, wanted=True).rejected] == ["2.npy"]
    for wrong, words in (
        ({"data": tmp_path / "missing.npz"}, "does not exist"),
        ({"z": tmp_path / "a.npy"}, "no input 'z'"),
        ({"x": tmp_path / "a.npy", "expected": paths["expected"]}, "folders only"),
        ({"data": tmp_path}, "a.npy"),
    ):
        with pytest.raises(DataError, match=words):
            load_arrays(wrong, ONE, wanted=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"has no \.npz"):
        load(tmp_path / "empty")


def test_names_of_a_table_are_only_those_asked_for(tmp_path: Path) -> None:
    file = written(tmp_path / "v.csv", "x/0,x/1,other\n1,2,3\n")
    assert {name: array.tolist() for name, array in read_arrays(file, {"x"}).items()} == {"x": [[1, 2]], "": [3]}
    assert {name: array.tolist() for name, array in read_arrays(file, ()).items()} == {"": [[1, 2, 3]]}
