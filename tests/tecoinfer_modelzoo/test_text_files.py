"""Paths that are not regular files are rejected before they are opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine import DataError
from tecoinfer_modelzoo.files import check_regular, not_a_file_reason, read_regular
from utils.datasets.text.pair_rows import read_rows
from utils.datasets.text.questions import load_questions
from utils.preprocess.image.images import open_image, upright_size


def test_regular_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "link").symlink_to("a")
    assert (read_regular(tmp_path / "a"), read_regular(tmp_path / "link")) == (b"x", b"x")
    check_regular(tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        read_regular(tmp_path / "gone")


def test_pipes_and_folders_are_rejected(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "folder.png").mkdir()
    for name, reason in (("pipe.png", "it is a pipe"), ("folder.png", "it is a folder")):
        with pytest.raises(OSError, match=reason):
            read_regular(tmp_path / name)
        for read in (open_image, upright_size):
            with pytest.raises(DataError, match=f"{name}.*{reason}"):
                read(tmp_path / name)


def test_special_files_are_not_reported_as_missing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    for read in (load_questions, lambda path: list(read_rows(path))):
        with pytest.raises(DataError, match=r"pipe\.json is a pipe"):
            read(tmp_path / "pipe.json")
    assert (not_a_file_reason(tmp_path), not_a_file_reason(tmp_path / ("n" * 5000))) == (
        "is a folder",
        "does not exist",
    )


def test_a_sparse_file_of_ten_gigabytes_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "hole").touch()
    os.truncate(tmp_path / "hole", 10 << 30)
    with pytest.raises(OSError, match=r"10737418240.*4294967296"):
        read_regular(tmp_path / "hole")
