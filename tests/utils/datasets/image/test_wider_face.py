"""Lists of faces of WIDER FACE and RetinaFace: every entry is read, or rejected with its line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine import DataError
from utils.datasets.image.boxes import load_boxes
from utils.datasets.image.wider_face import NAMES, face_lists
from utils.datasets.renaming import renamed

FACE = "10 20 30 40 0 0 0 0 0 0"
POINTS = "10 20 30 40 11 21 0 12 22 1 -1 -1 -1 14 24 0 15.5 25 0 0.9"


def write(folder: Path, text: str, name: str = "wider_face_val_bbx_gt.txt", images: str = "a b c d") -> Path:
    for one in images.split():
        file = folder / "images" / f"{one}.png"
        file.parent.mkdir(exist_ok=True, parents=True)
        Image.new("RGB", (64, 96)).save(file)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_wider_faces_list(tmp_path: Path) -> None:
    text = (
        f"a.png\n2\n{FACE}\n1 2 3 4 0 0 0 1 0 0\nb.png\n0\n0 0 0 0 0 0 0 0 0 0\nc.png\n0\nd.png\n1\n{FACE}\n"
        "gone.png\n1\n1 2 3 4\n"
    )
    write(tmp_path, text)
    for path in (tmp_path, tmp_path / "wider_face_val_bbx_gt.txt"):
        found = load_boxes(path)
        assert [sample.name for sample in found.samples] == ["a.png", "b.png", "c.png", "d.png"]
        assert [len(target.boxes) for target in found.targets] == [2, 0, 0, 1]
        first = found.targets[0]
        assert first.boxes.tolist() == [[10, 20, 40, 60], [1, 2, 4, 6]]
        assert first.crowd.tolist() == [False, True]
        assert first.categories == NAMES
        assert first.points is None
        ((gone, reason),) = found.rejected
        assert (gone.name, reason) == ("gone.png", "it does not exist but is listed in wider_face_val_bbx_gt.txt")
    assert load_boxes(tmp_path, "wider").fingerprint() == load_boxes(tmp_path).fingerprint()


def test_wider_faces_own_folders(tmp_path: Path) -> None:
    write(tmp_path / "WIDER_val", "", images="0--Parade/a 1--Rally/b")
    (tmp_path / "WIDER_val" / "wider_face_val_bbx_gt.txt").unlink()
    lists = tmp_path / "wider_face_split"
    lists.mkdir()
    write(lists, f"0--Parade/a.png\n1\n{FACE}\n1--Rally/b.png\n0\n", images="")
    write(lists, f"0--Parade/x.png\n1\n{FACE}\n", "wider_face_train_bbx_gt.txt", images="")
    for path in (tmp_path, lists / "wider_face_val_bbx_gt.txt"):
        assert len(load_boxes(path)) == 2
        assert not load_boxes(path).rejected
    with pytest.raises(DataError, match=r"several data sets: .*train"):
        load_boxes(lists)


def test_retinafaces_labels(tmp_path: Path) -> None:
    none = "5 6 7 8" + " -1 -1 -1" * 5 + " 0.3"
    file = write(tmp_path, f"# a.png\n{POINTS}\n{none}\n1 2 3 4\n# b.png\n\n# c.png\n1 2 3 4\n", "label.txt")
    assert face_lists(tmp_path) == [file]
    found = load_boxes(tmp_path)
    assert [len(target.boxes) for target in found.targets] == [3, 0, 1]
    first, second, third = (target.points for target in found.targets)
    assert second is None
    assert third is None
    np.testing.assert_array_equal(first[0], [[11, 21], [12, 22], [np.nan, np.nan], [14, 24], [15.5, 25]])
    assert np.isnan(first[1:]).all()
    assert first.shape == (3, 5, 2)
    before = found.fingerprint()
    file.write_text(file.read_text().replace("15.5 25", "15.5 26"))
    assert load_boxes(tmp_path).fingerprint() != before
    again = renamed(found, {"face": "head"}, file)
    assert again.targets[0].categories == ("head",)
    np.testing.assert_array_equal(again.targets[0].points, first)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ("x", "line 2 is not the number of its faces"),
        ("", "line 2 is not the number of its faces"),
        (f"2\n{FACE}", "line 2 states 2 faces, but 1 follow"),
        (f"0\n{FACE}", "line 2 states 0 faces, but 1 follow"),
        ("1\n1 2 3", "line 3 has 3 numbers; a face has 4 or 10"),
        ("1\n1 2 3 x", "line 3: '1 2 3 x' are not numbers"),
        ("1\n1 2 3 nan", "line 3: a number is NaN, infinite or at least 1e+09"),
        ("1\n1 2 -3 4", "line 3: width -3 and height 4 must not be negative"),
    ],
)
def test_an_invalid_entry_rejects_its_image(rows: str, reason: str, tmp_path: Path) -> None:
    write(tmp_path, f"a.png\n{rows}\nb.png\n1\n{FACE}\n")
    found = load_boxes(tmp_path, "wider")
    assert [sample.name for sample in found.samples] == ["b.png"]
    assert [(one.path.name, one.reason) for one in found.rejected] == [("a.png", reason)]


def test_an_invalid_landmark_line_and_a_path_outside(tmp_path: Path) -> None:
    write(tmp_path, f"# a.png\n1 2 3 4 5\n# ../x.png\n# b.png\n{POINTS}\n", "label.txt")
    found = load_boxes(tmp_path)
    assert [sample.name for sample in found.samples] == ["b.png"]
    reasons = [one.reason for one in found.rejected]
    assert reasons[0] == "line 2 has 5 numbers; a face has 4 or 19 or 20"
    assert "line 3 of label.txt leaves the data folder" in reasons[1]


def test_invalid_files(tmp_path: Path) -> None:
    file = write(tmp_path, "words\nand words\n", "notes.txt")
    with pytest.raises(DataError, match="not an image file"):
        load_boxes(file)
    with pytest.raises(DataError, match=r"notes.txt, line 1: 'words'"):
        load_boxes(file, "wider")
    with pytest.raises(DataError, match="wider_face_val_bbx_gt"):
        load_boxes(tmp_path / "images", "wider")
    (tmp_path / "bytes.txt").write_bytes(b"a.png\n\xff\xfe1\n")
    with pytest.raises(DataError, match=r"cannot be read .*UTF-8"):
        load_boxes(tmp_path / "bytes.txt", "wider")
