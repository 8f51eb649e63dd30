"""Folder trees deeper than the limits of Python's recursive functions."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tecoinfer_modelzoo.trees import below, copy_tree, remove_tree, walk


def deep(top: Path, levels: int, name: str = "d") -> None:
    """Create nested folders, with a file in the deepest."""
    top.mkdir()
    at = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=at)
        inner = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(os.open("file.csv", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "top/b/c").mkdir(parents=True)
    (tmp_path / "top/a").mkdir()
    (tmp_path / "top/b/c/one.csv").write_text("1")
    (tmp_path / "top/two.txt").write_text("2")
    (tmp_path / "top/a/link").symlink_to("../b")
    (tmp_path / "top/a/broken").symlink_to("gone")
    return tmp_path / "top"


@pytest.mark.parametrize("followlinks", [False, True])
def test_walk_equals_os_walk(folder: Path, followlinks: bool) -> None:
    def sorted_walk(found: object) -> list[tuple[str, list[str], list[str]]]:
        return [(str(here), sorted(folders), sorted(files)) for here, folders, files in found]  # type: ignore[attr-defined]

    assert sorted_walk(walk(folder, followlinks=followlinks)) == sorted_walk(os.walk(folder, followlinks=followlinks))
    assert sorted(below(folder)) == sorted(folder.rglob("*"))
    assert sorted(below(folder, "*.csv*")) == sorted(folder.rglob("*.csv*"))


def test_removed_folders_are_not_walked(folder: Path) -> None:
    found = []
    for here, folders, _ in walk(folder):
        found.append(Path(here).name)
        folders[:] = [name for name in folders if name != "b"]
    assert found == ["top", "a"]


@pytest.mark.slow
def test_900_folders_are_walked_and_copied(tmp_path: Path) -> None:
    deep(tmp_path / "deep", 900)
    assert [path.name for path in below(tmp_path / "deep", "*.csv")] == ["file.csv"]
    copy_tree(tmp_path / "deep", tmp_path / "copy", "__pycache__")
    assert [path.name for path in below(tmp_path / "copy", "*.csv")] == ["file.csv"]
    for name in ("deep", "copy"):
        remove_tree(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_folder_with_a_path_beyond_the_limit_is_removed(tmp_path: Path) -> None:
    deep(tmp_path / "deep", 2500, "name")
    with pytest.raises(OSError, match="too long"):
        list(below(tmp_path / "deep"))
    with pytest.raises(OSError, match="too long"):
        copy_tree(tmp_path / "deep", tmp_path / "copy", "__pycache__")
    for name in ("deep", "copy"):
        remove_tree(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_copy_keeps_links_permissions_and_times(folder: Path, tmp_path: Path) -> None:
    (folder / "__pycache__").mkdir()
    (folder / "two.txt").chmod(0o640)
    (folder / "b/c").chmod(0o500)
    os.utime(folder / "b/c", ns=(1, 10**18))
    copy_tree(folder, tmp_path / "copy", "__pycache__")
    assert {str(p.relative_to(tmp_path / "copy")) for p in below(tmp_path / "copy")} == {
        str(p.relative_to(folder)) for p in below(folder) if p.name != "__pycache__"
    }
    assert os.readlink(tmp_path / "copy/a/link") == "../b"
    assert stat.S_IMODE((tmp_path / "copy/two.txt").stat().st_mode) == 0o640
    found = (tmp_path / "copy/b/c").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_mtime_ns) == (0o500, 10**18)
    remove_tree(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_pipe_is_not_copied(folder: Path, tmp_path: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(OSError, match="pipe"):
        copy_tree(folder, tmp_path / "copy", "__pycache__")


def test_a_removal_follows_no_links_and_keeps_files(folder: Path, tmp_path: Path) -> None:
    (folder / "out").symlink_to(tmp_path)
    (tmp_path / "kept").write_text("")
    (tmp_path / "to").symlink_to(folder)
    for path in (tmp_path / "to", tmp_path / "kept", tmp_path / "gone"):
        remove_tree(path)
    assert (folder / "b/c/one.csv").is_file()
    (folder / "b").chmod(0)
    remove_tree(folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "to"]
