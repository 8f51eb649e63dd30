"""Pascal VOC's layout: splits, corners counted from 1, difficult objects, and untrusted XML."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from engine import DataError
from utils.datasets.image.boxes import load_boxes
from utils.datasets.image.voc import NAMES, read_xml

MAIN = "VOCdevkit/VOC2007/ImageSets/Main"


def noted(*objects: str, size: tuple[int, int] = (8, 6), name: str = "a.png") -> str:
    sides = f"<size><width>{size[0]}</width><height>{size[1]}</height><depth>3</depth></size>"
    return f"<annotation><filename>{name}</filename>{sides}{''.join(objects)}</annotation>"


def entry(name: str = "cat", box: tuple[Any, ...] = (1, 1, 8, 6), more: str = "") -> str:
    edges = "".join(
        f"<{edge}>{value}</{edge}>" for edge, value in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
    )
    return f"<object><name>{name}</name>{more}<bndbox>{edges}</bndbox></object>"


def kit(root: Path, year: str = "VOC2007") -> Path:
    """Write a data set of three images in the layout of the development kit, and return its folder."""
    folder = root / year
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True)
    for name, objects in {
        "000001": [entry("dog", (1, 1, 8, 6)), entry("cat", (2, 3, 4.5, 5), "<difficult>1</difficult>")],
        "000002": [],
        "000003": [entry("person", more="<part><name>head</name><bndbox/></part>")],
    }.items():
        Image.new("RGB", (8, 6)).save(folder / "JPEGImages" / f"{name}.jpg")
        (folder / "Annotations" / f"{name}.xml").write_text(noted(*objects))
    (folder / "ImageSets" / "Main" / "test.txt").write_text("000001\n000002\n")
    (folder / "ImageSets" / "Main" / "train.txt").write_text("000003\n")
    (folder / "ImageSets" / "Main" / "dog_test.txt").write_text("000001  1\n000002 -1\n")
    return folder


def beside(folder: Path, text: str) -> Path:
    """Write an image with its annotation, and a second valid one."""
    for name in ("a", "b"):
        Image.new("RGB", (8, 6)).save(folder / f"{name}.png")
    (folder / "a.xml").write_text(text)
    (folder / "b.xml").write_text(noted(entry()))
    return folder


@pytest.mark.parametrize("given", [".", "VOCdevkit", "VOCdevkit/VOC2007", f"{MAIN}/dog_test.txt"])
def test_the_development_kit(given: str, tmp_path: Path) -> None:
    folder = kit(tmp_path / "VOCdevkit")
    found = load_boxes(tmp_path / given)
    assert found.samples == [folder / "JPEGImages" / f"00000{number}.jpg" for number in (1, 2)]
    assert not found.rejected
    real, nothing = found.targets or ()
    assert real.categories == NAMES
    assert [NAMES[label] for label in real.classes] == ["dog", "cat"]
    assert real.boxes.tolist() == [[0, 0, 8, 6], [1, 2, 4.5, 5]]  # 1 to 8 are all eight pixels
    assert real.crowd.tolist() == [False, True]
    assert nothing.boxes.shape == (0, 4)


def test_other_lists_and_years(tmp_path: Path) -> None:
    folder = kit(tmp_path)
    assert len(load_boxes(folder / "ImageSets" / "Main" / "train.txt")) == 1
    (folder / "ImageSets" / "Main" / "test.txt").unlink()
    assert len(load_boxes(folder)) == 3  # no list for evaluation: all
    kit(tmp_path, "VOC2012")
    with pytest.raises(DataError, match=r"VOC2007, .*VOC2012"):
        load_boxes(tmp_path)
    (folder / "ImageSets" / "Main" / "train.txt").write_text("000003\nnothing\n../../../secret\n")
    found = load_boxes(folder / "ImageSets" / "Main" / "train.txt")
    assert [one.reason for one in found.rejected] == [
        "it does not exist but is listed",
        "its name '../../../secret' leaves the data folder",
    ]
    (folder / "ImageSets" / "Main" / "train.txt").write_text("\n")
    with pytest.raises(DataError, match="lists no image"):
        load_boxes(folder / "ImageSets" / "Main" / "train.txt")


def test_files_next_to_images_and_other_class_names(tmp_path: Path) -> None:
    beside(tmp_path, noted(entry("zebra"), entry("ant")))
    Image.new("RGB", (8, 6)).save(tmp_path / "c.png")
    found = load_boxes(tmp_path)
    assert [real.categories for real in found.targets or ()] == [("ant", "cat", "zebra")] * 2
    assert [str(one.reason) for one in found.rejected] == ["it has no c.xml"]
    (tmp_path / "a.png").rename(tmp_path / "other.png")
    assert "no image of this name" in load_boxes(tmp_path).rejected[0].reason
    (tmp_path / "a.xml").write_text(noted(entry(), name="other.png"))
    assert load_boxes(tmp_path).samples == [tmp_path / "other.png", tmp_path / "b.png"]
    (tmp_path / "a.xml").write_text(noted(entry(), name="../b.png"))
    assert load_boxes(tmp_path).samples == [tmp_path / "b.png"]


LAUGHS = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 9))


@pytest.mark.parametrize(
    ("text", "expected_error"),
    [
        (noted(entry())[:-20], "not XML, or truncated"),
        ("", "not XML, or truncated"),
        ("no XML", "not XML, or truncated"),
        (f'<!DOCTYPE a [<!ENTITY l0 "ha">{LAUGHS}]><annotation>&l8;</annotation>', "document type"),
        ('<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><annotation>&x;</annotation>', "document type"),
        ('<!DOCTYPE a SYSTEM "http://127.0.0.1/a.dtd"><annotation/>', "document type"),
        (noted(entry(box=("1", "1", "nan", "6"))), "object 0 (cat): its bndbox needs the numbers"),
        (noted(entry(box=("1", "1", "inf", "6"))), "object 0 (cat): its bndbox needs the numbers"),
        (noted(entry(box=("1", "1", "", "6"))), "object 0 (cat): its bndbox needs the numbers"),
        (noted(entry(), "<object><name>cat</name></object>"), "object 1 (cat): its bndbox needs"),
        (noted(entry(box=(6, 1, 3, 6))), "object 0 (cat): its bndbox ends before it starts"),
        (noted(entry(name="")), "object 0 has no name"),
    ],
)
def test_an_invalid_file_rejects_only_its_image(text: str, expected_error: str, tmp_path: Path) -> None:
    found = load_boxes(beside(tmp_path, text))
    assert found.samples == [tmp_path / "b.png"]
    (one,) = found.rejected
    assert one.path == tmp_path / "a.xml"
    assert re.search(re.escape(expected_error), one.reason) or re.search(expected_error, one.reason)
    assert "\n" not in one.reason


def test_suspicious_entries_are_used_with_a_warning(tmp_path: Path) -> None:
    beside(tmp_path, noted(entry(box=(0, 0, 80, 6)), entry(box=(3, 3, 2, 5)), size=(9, 9)))
    with pytest.warns(UserWarning, match=": 1 ") as expected_error:
        found = load_boxes(tmp_path)
    words = sorted(str(one.message).partition(": ")[2].partition(" ")[0] for one in expected_error)
    assert words == ["boxes", "images", "objects"]
    assert len(found) == 2


def test_exif_orientation_is_applied(tmp_path: Path) -> None:
    beside(tmp_path, noted(entry(box=(1, 1, 6, 8)), size=(6, 8)))
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (8, 6)).save(tmp_path / "a.jpg", exif=exif)
    (tmp_path / "a.png").unlink()
    assert len(load_boxes(tmp_path)) == 2  # 6 x 8 when rotated: no warning


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    file = tmp_path / "a.xml"
    with file.open("wb") as out:
        out.truncate(64 << 20)
    with pytest.raises(DataError, match="more than 32 MB"):
        read_xml(file)


def test_a_pipe_does_not_block(tmp_path: Path) -> None:
    beside(tmp_path, noted(entry()))
    (tmp_path / "a.xml").unlink()
    os.mkfifo(tmp_path / "a.xml")
    (rejected,) = load_boxes(tmp_path).rejected
    assert rejected.reason == "it is a pipe, a socket or a device, not a regular file"


def test_a_document_type_is_rejected(tmp_path: Path) -> None:
    (rejected,) = load_boxes(beside(tmp_path, "<!DOCTYPE a []><annotation/>")).rejected
    assert rejected.reason.startswith("it has a document type")
