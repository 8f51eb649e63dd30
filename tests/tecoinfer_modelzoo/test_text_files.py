"""What is no file is refused before it is opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine import DataError
from tecoinfer_modelzoo.files import check_regular, no_file, read_regular
from utils.datasets.text.pair_rows import read_rows
from utils.datasets.text.questions import load_questions
from utils.preprocess.image.images import open_image, upright_size


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
            with pytest.raises(DataError, match=f"{name}: cannot be read as an image .{said}"):
                read(tmp_path / name)


def test_what_is_no_file_is_not_said_to_be_missing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    for read in (load_questions, lambda path: list(read_rows(path))):
        with pytest.raises(DataError, match=r"pipe.json is a pipe, a socket or a device, and no file; give a"):
            read(tmp_path / "pipe.json")
    assert (no_file(tmp_path), no_file(tmp_path / ("n" * 5000))) == ("is a folder", "does not exist")


def test_a_hole_of_ten_gigabytes_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "hole").touch()
    os.truncate(tmp_path / "hole", 10 << 30)
    with pytest.raises(OSError, match="it has 10737418240 bytes, and 4294967296 are read at most"):
        read_regular(tmp_path / "hole")
