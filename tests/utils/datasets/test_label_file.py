from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from engine import DataError
from utils.datasets.label_file import load_label_file


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("a.png", "sub/b c.png", "sub/#d.JPEG"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("L", (1, 1)).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no")
    return tmp_path


def write(root: Path, text: str) -> Path:
    file = root / "val.txt"
    file.write_bytes(text.encode())
    return file


def listed(root: Path, text: str) -> list[tuple[str, int | None]]:
    dataset = load_label_file(write(root, text))
    return [(str(sample.path.relative_to(root)), sample.label) for sample in dataset]


def test_lines_in_order_with_spaces_comments_and_every_line_ending(root: Path) -> None:
    text = "\ufeff# a comment\r\nsub/b c.png   7\r\n\n  sub/#d.JPEG\t0  \n./sub/../a.png 65"
    assert listed(root, text) == [("sub/b c.png", 7), ("sub/#d.JPEG", 0), ("a.png", 65)]


def test_paths_start_from_a_given_root(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = write(tmp_path_factory.mktemp("lists"), "a.png 1\n")
    dataset = load_label_file(elsewhere, root=root)
    assert [sample.path for sample in dataset] == [root / "a.png"]
    assert dataset.labels.tolist() == [1]


def test_absolute_path_inside_the_root(root: Path) -> None:
    assert listed(root, f"{root}/a.png 1") == [("a.png", 1)]


def test_relative_root(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, "a.png 1")
    monkeypatch.chdir(root)
    assert [str(sample.path) for sample in load_label_file(Path("val.txt"))] == ["a.png"]
    with pytest.raises(DataError, match="leaves the data folder"):
        load_label_file(write(root, "../a.png 1").relative_to(root))


@pytest.mark.parametrize("line", ["a.png", "5", "a.png,1"])
def test_malformed_line(root: Path, line: str) -> None:
    with pytest.raises(DataError, match=rf"val.txt:2: '{line}' is not 'path label'"):
        listed(root, f"a.png 1\n{line}\n")


@pytest.mark.parametrize("label", ["cat", "-1", "1.0", "+1", "1e3", "٣", "²", "1_0", "9" * 19])
def test_bad_label(root: Path, label: str) -> None:
    with pytest.raises(DataError) as caught:
        listed(root, f"\na.png {label}")
    assert f"val.txt:2: label {label!r} is not a class index" in str(caught.value)


@pytest.mark.parametrize("path", ["../a.png", "sub/../../a.png", "/etc/a.png", ".."])
def test_path_that_leaves_the_root(root: Path, path: str) -> None:
    with pytest.raises(DataError, match=rf"val.txt:1: path '{path}' leaves"):
        listed(root, f"{path} 1")


def test_missing_and_other_files_are_rejected_and_the_rest_stays(root: Path) -> None:
    dataset = load_label_file(write(root, "gone.png 1\na.png 2\nnotes.txt 3\nnu\0l.png 4\n"))
    assert dataset.labels.tolist() == [2]
    assert [path.name for path, _ in dataset.rejected] == ["gone.png", "notes.txt", "nu\0l.png"]
    assert dataset.rejected[0].reason == "it does not exist but is listed in val.txt line 1"
    assert "not an image file" in dataset.rejected[1].reason


def test_a_file_without_usable_lines(root: Path) -> None:
    with pytest.raises(DataError, match=r"2 images .*gone.png"):
        listed(root, "gone.png 1\nlost.png 2")
    with pytest.raises(DataError, match="lists no image"):
        listed(root, "# nothing\n\n")


def test_unreadable_file(root: Path) -> None:
    with pytest.raises(DataError, match=r"/gone.txt .*No such file"):
        load_label_file(root / "gone.txt")
    (root / "val.txt").write_bytes("a.png 1\nä".encode("latin-1"))
    with pytest.raises(DataError, match=r"val.txt: byte 8 .*UTF-8"):
        load_label_file(root / "val.txt")
