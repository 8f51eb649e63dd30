from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine import DataError
from utils.arrays import read_npy, read_npz


def test_arrays_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(3), y=np.float16(2))
    np.save(tmp_path / "a.npy", np.arange(4))
    assert {name: array.tolist() for name, array in read_npz(tmp_path / "a.npz").items()} == {"x": [0, 1, 2], "y": 2.0}
    assert list(read_npz(tmp_path / "a.npz", ("y", "z"))) == ["y"]
    assert read_npy(tmp_path / "a.npy").tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("read", [read_npy, read_npz])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"text", b"\x93NUMPY\x01\x00\x06\x00{'a\n(\n"])
def test_a_damaged_file_gives_one_line(read: object, content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "bad"
    file.write_bytes(content)
    with pytest.raises(DataError, match=r"bad .*\.np[yz] file: .+;") as caught:
        read(file)  # type: ignore[operator]
    assert "\n" not in str(caught.value)


def test_missing_files_and_other_formats(tmp_path: Path) -> None:
    np.savez(tmp_path / "several.npy.npz", x=np.arange(3))
    (tmp_path / "several.npy.npz").rename(tmp_path / "several.npy")
    np.save(tmp_path / "one.npy", np.arange(3))
    with pytest.raises(DataError, match="No such file or directory"):
        read_npz(tmp_path / "nowhere.npz")
    with pytest.raises(DataError, match=r"several arrays; .*\.npz"):
        read_npy(tmp_path / "several.npy")
    with pytest.raises(DataError, match=r"is a single \.npy array"):
        read_npz(tmp_path / "one.npy")


def test_files_are_not_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "objects.npz", x=np.array([{}], dtype=object))
    with pytest.raises(DataError, match="not a readable"):
        read_npz(tmp_path / "objects.npz")
