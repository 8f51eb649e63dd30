"""What is no file is refused before it is opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine import DataError
from utils.preprocess.image.images import open_image, upright_size
from utils.regular import check_regular, read_regular


def test_files_are_read_and_missing_ones_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "link").symlink_to("a")
    assert (read_regular(tmp_path / "a"), read_regular(tmp_path / "link")) == (b"x", b"x")
    check_regular(tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "gone")


def test_pipes_and_folders_are_none(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder.png").mkdir()
    for name, said in (("pipe.png", "it is a pipe"), ("folder.png", "it is a folder")):
        with pytest.raises(OSError, match=said):
            read_regular(tmp_path / name)
        for read in (open_image, upright_size):
            with pytest.raises(DataError, match=f"{name}: cannot be read as a picture .{said}"):
                read(tmp_path / name)
