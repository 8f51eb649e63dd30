"""YOLO's text files: the layouts of Darknet and Ultralytics, names, polygons, and invalid lines."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine import ConfigError, DataError
from utils.datasets.image.boxes import load_boxes
from utils.datasets.image.yolo import label_file

LINES = {"a": "1 0.5 0.5 0.25 1\n\n0 0.1 0.2 0.3 0.2 0.3 0.6\n", "b": ""}
NAMES = ("cat", "dog")


def tree(root: Path, split: str = "val") -> Path:
    """Write two images of 8 x 4 in the layout of Ultralytics, without a YAML file."""
    for kind in ("images", "labels"):
        (root / kind / split).mkdir(parents=True)
    for name, text in LINES.items():
        Image.new("RGB", (8, 4)).save(root / "images" / split / f"{name}.png")
        (root / "labels" / split / f"{name}.txt").write_text(text)
    return root


def names_and_boxes(path: Path) -> list[tuple[str, list[float]]]:
    found = load_boxes(path)
    assert not found.rejected
    assert [sample.name for sample in found.samples] == ["a.png", "b.png"]
    real, nothing = found.targets or ()
    assert not len(nothing.boxes)
    return [
        (real.categories[label] if real.categories else str(label), np.round(box, 9).tolist())
        for box, label in zip(real.boxes, real.classes, strict=True)
    ]


WANTED = [("dog", [3, 0, 5, 4]), ("cat", [0.8, 0.8, 2.4, 2.4])]
NUMBERED = [("1", [3, 0, 5, 4]), ("0", [0.8, 0.8, 2.4, 2.4])]


@pytest.mark.parametrize(
    "text",
    [
        "names: [cat, dog]\nval: images/val\n",
        "names: {0: cat, 1: dog}\nval: images/val\ntrain: images/train\nnc: 2\n",
        "names: {'1': dog, '0': cat}\nval: [images/val]\npath: .\n",
        "names: [cat, dog]\nval: ../images/val\n",
        "names: [cat, dog]\nval: images/val\npath: /home/somebody/coco\n",
        "names: [cat, dog]\nval: val.txt\n",
    ],
)
@pytest.mark.parametrize("given", ["", "data.yaml"])
def test_a_yaml_file(text: str, given: str, tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "data.yaml").write_text(text)
    (tmp_path / "val.txt").write_text("./images/val/a.png\nimages/val/b.png\n")
    assert names_and_boxes(tmp_path / given) == WANTED


@pytest.mark.parametrize("split", ["val", "valid", "."])
def test_folders_of_images_and_labels(split: str, tmp_path: Path) -> None:
    tree(tmp_path, split)
    if split == "valid":
        tree(tmp_path, "train")
    assert names_and_boxes(tmp_path) == NUMBERED
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    assert names_and_boxes(tmp_path) == WANTED


@pytest.mark.parametrize("names", ["classes.txt", "obj.names"])
def test_labels_next_to_images(names: str, tmp_path: Path) -> None:
    tree(tmp_path / "in")
    for file in (tmp_path / "in").rglob("*.*"):
        shutil.copy(file, tmp_path)
    shutil.rmtree(tmp_path / "in")
    (tmp_path / "train.txt").write_text("a.png\n")
    assert names_and_boxes(tmp_path) == NUMBERED
    (tmp_path / names).write_text("\ufeffcat\r\ndog\r\n", encoding="utf-8")  # as written by Windows
    (tmp_path / "a.txt").write_text("\ufeff" + LINES["a"], encoding="utf-8")
    assert names_and_boxes(tmp_path) == WANTED


def test_labels_of_unlisted_images_are_ignored(tmp_path: Path) -> None:
    tree(tmp_path, ".")
    (tmp_path / "data.yaml").write_text("names: [cat, dog]\nval: val.txt\n")
    (tmp_path / "val.txt").write_text("images/a.png\n")
    found = load_boxes(tmp_path)
    assert (len(found), found.rejected) == (1, [])


def test_a_missing_listed_image_is_reported_once(tmp_path: Path) -> None:
    tree(tmp_path, ".")
    (tmp_path / "data.yaml").write_text("names: [cat, dog]\nval: val.txt\n")
    (tmp_path / "val.txt").write_text("images/a.png\nimages/gone.png\n")
    found = load_boxes(tmp_path)  # a warning about its label file would be an error
    assert (len(found), [one.path.name for one in found.rejected]) == (1, ["gone.png"])


def test_paths_of_label_files() -> None:
    assert label_file(Path("/x/images/y/images/z/a.b.jpg")) == Path("/x/images/y/labels/z/a.b.txt")
    assert label_file(Path("images/a.jpg")) == Path("labels/a.txt")
    assert label_file(Path("/x/a.jpg")) == Path("/x/a.txt")


@pytest.mark.parametrize(
    ("line", "expected_error"),
    [
        ("0 0.5 0.5 0.5", "line 2: 3 numbers after the class"),
        ("0 0.5 0.5 0.5 0.5 0.9", "line 2: 5 numbers after the class"),
        ("2 0.5 0.5 0.5 0.5", "line 2: class 2 is out of range: 0 to 1"),
        ("-1 0.5 0.5 0.5 0.5", "line 2: class -1 is out of range"),
        ("0.5 0.5 0.5 0.5 0.5", "line 2: class 0.5 is out of range"),
        ("cat 0.5 0.5 0.5 0.5", "are not numbers"),
        ("0 nan 0.5 0.5 0.5", "a number is NaN or infinite"),
        ("0 0.5 0.5 1e999 0.5", "a number is NaN or infinite"),
        ("0 320 0.5 0.5 0.5", "line 2: 320 is not from 0 to 1"),
        ("0 0.5 0.5 -0.5 0.5", "-0.5 is not from 0 to 1"),
        ("\xff", "byte 18 is not UTF-8 text"),
    ],
)
def test_an_invalid_line_rejects_only_its_image(line: str, expected_error: str, tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    (tmp_path / "labels" / "val" / "a.txt").write_bytes(f"0 0.5 0.5 0.5 0.5\n{line}\n".encode("latin-1"))
    found = load_boxes(tmp_path)
    assert found.samples == [tmp_path / "images" / "val" / "b.png"]
    (one,) = found.rejected
    assert expected_error in one.reason
    assert "\n" not in one.reason


def test_mismatched_images_and_labels(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "labels" / "val" / "b.txt").rename(tmp_path / "labels" / "val" / "c.txt")
    (tmp_path / "images" / "val" / "d.png").write_bytes(b"no image")
    (tmp_path / "labels" / "val" / "d.txt").write_text("0 0.5 0.5 0.5 0.5\n")
    with pytest.warns(UserWarning, match="without a label file: 1"):
        found = load_boxes(tmp_path)
    assert [sample.name for sample in found.samples] == ["a.png", "b.png"]
    reasons = {one.path.name: one.reason for one in found.rejected}
    assert sorted(reasons) == ["c.txt", "d.png"]
    assert "JPEG, PNG, PPM" in reasons["d.png"]
    assert reasons["c.txt"] == "this label file has no image"
    shutil.rmtree(tmp_path / "labels" / "val")
    (tmp_path / "labels" / "val").mkdir()
    with pytest.raises(DataError, match=r"3 images .*/labels/val/"):
        load_boxes(tmp_path)


def test_boxes_that_exceed_the_image_or_are_empty(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "labels" / "val" / "a.txt").write_text("0 0.9 0.5 0.8 0.5\n0 0.5 0.5 0 0.5\n")
    with pytest.warns(UserWarning, match=": 1 ") as expected_error:
        found = load_boxes(tmp_path)
    assert sorted(str(one.message).partition(": ")[2].partition(" ")[0] for one in expected_error) == [
        "boxes",
        "objects",
    ]
    assert (found.targets or ())[0].boxes.tolist() == pytest.approx(np.array([[4, 1, 10.4, 3], [4, 1, 4, 3]]))


LAUGHS = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 10)}]\n" for n in range(9)
)


@pytest.mark.parametrize(
    ("text", "expected_error"),
    [
        ("names: [cat, dog", "is not YAML"),
        ("- cat", "is not a mapping"),
        ("val: images/val", "names is None; write a list of class names"),
        ("names: {0: cat, 2: dog}\nval: images/val", "names is .*; write a list"),
        ("names: [cat, cat]\nval: images/val", "name 'cat' occurs twice"),
        ('names: ["\\ud800"]\nval: images/val', "names is|is not YAML"),
        ("names: [cat, dog]\n", "val is None; write the folder"),
        ("names: [cat, dog]\nval: {}\n", "val is {}; write the folder"),
        ("names: [cat, dog]\nval: images/test\n", "val 'images/test' does not exist in"),
        ("names: [cat, dog]\nval: /etc\n", "val '/etc' leaves the data folder"),
        ("names: [cat, dog]\nval: images/../../x\n", "leaves the data folder"),
        ("names: [cat, dog]\nval: data.yaml\n", "data.yaml must be a folder or a text file"),
        ("names: [cat, dog]\nval: out.txt\n", "'/etc/a.png' leaves the data folder"),
        ("names: !!python/object/apply:os.system ['true']\nval: images/val", "is not YAML"),
        (f"{LAUGHS}names: *j\nval: images/val", "its aliases stand for more than 4 MiB"),
        ("names: &a [*a]\nval: images/val", "a value holds itself by an alias"),
    ],
)
def test_bad_yaml(text: str, expected_error: str, tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "data.yaml").write_text(text)
    (tmp_path / "out.txt").write_text("/etc/a.png\n")
    with pytest.raises(DataError, match=expected_error) as caught:
        load_boxes(tmp_path / "data.yaml")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_data_in_several_formats_require_a_flag(tmp_path: Path) -> None:
    tree(tmp_path)
    (tmp_path / "annotations").mkdir()
    content = '{"images": [{"id": 1, "file_name": "val/a.png"}], "categories": [], "annotations": []}'
    (tmp_path / "annotations" / "instances_val.json").write_text(content)
    with pytest.raises(DataError, match=r"coco \(instances_val.json\) and yolo .*--data_format"):
        load_boxes(tmp_path)
    assert len(load_boxes(tmp_path, "coco")) == 1
    assert len(load_boxes(tmp_path, "yolo")) == 2
    for form in ("images", "pictures"):  # the present and the former name
        assert load_boxes(tmp_path / "images" / "val", form).targets is None
    with pytest.raises(ConfigError, match="unknown data format 'x'"):
        load_boxes(tmp_path, "x")


@pytest.mark.parametrize("text", [f"names: [0x{'f' * 6000}]\nval: images/val\n", f"names: [a]\nval: 0x{'f' * 6000}\n"])
def test_numbers_too_long_for_python(text: str, tmp_path: Path) -> None:
    (tree(tmp_path) / "data.yaml").write_text(text)
    with pytest.raises(DataError, match="a number of 6002 characters"):
        load_boxes(tmp_path / "data.yaml")


@pytest.mark.parametrize("kind", ["folder", "pipe", "dead link"])
def test_labels_that_are_not_files_reject_their_image(kind: str, tmp_path: Path) -> None:
    file = tree(tmp_path) / "labels" / "val" / "a.txt"
    file.unlink()
    {"folder": file.mkdir, "pipe": lambda: os.mkfifo(file), "dead link": lambda: file.symlink_to("gone")}[kind]()
    found = load_boxes(tmp_path)
    assert [sample.name for sample in found.samples] == ["b.png"]
    ((path, reason),) = [(one.path.name, one.reason) for one in found.rejected]
    assert (path, "a.txt cannot be read" in reason) == ("a.png", True)
