"""Images with captions, in the layouts of public data sets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from engine import ConfigError, DataError
from utils.datasets.image.captions import MOST, has_captions, load_captions


def image(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (2, 2)).save(file)
    return file


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("captions.txt", 'image,caption\na.png,"A dog, running"\na.png,A  dog\nb.png,Two cats\n'),
        ("captions.txt", "a.png#0\tA dog, running\na.png#1\tA dog\nb.png#0\tTwo cats\n"),
        ("captions.txt", "a.png\tA dog, running\na.png\tA dog\n\nb.png\tTwo cats\n"),
        ("captions.tsv", "file_name\tcaption\na.png\tA dog, running\na.png\tA dog\nb.png\tTwo cats\n"),
        ("captions.csv", 'image,text\na.png,"A dog, running"\na.png,A dog\nb.png,Two cats\n'),
        (
            "captions.jsonl",
            '{"image": "a.png", "captions": ["A dog, running", "A dog"]}\n{"image": "b.png", "captions": "Two cats"}\n',
        ),
    ],
)
def test_lists(tmp_path: Path, name: str, text: str) -> None:
    image(tmp_path / "images/a.png")
    image(tmp_path / "images/b.png")
    (tmp_path / name).write_text(text)
    found = load_captions({"data": tmp_path})
    assert [one.path.name for one in found.samples] == ["a.png", "b.png"]
    assert found.targets == [("A dog, running", "A dog"), ("Two cats",)]
    assert found.notes["captions"] == 2
    assert found.rejected == []
    assert has_captions(tmp_path)
    assert not has_captions(tmp_path / "images")


def coco() -> dict[str, list[dict[str, object]]]:
    return {
        "images": [{"id": 7, "file_name": "a.png"}, {"id": 9, "file_name": "b.png"}],
        "annotations": [
            {"id": 1, "image_id": 9, "caption": "Two cats.\n"},
            {"id": 2, "image_id": 7, "caption": "A dog."},
            {"id": 3, "image_id": 7, "caption": "One dog."},
        ],
    }


def test_coco(tmp_path: Path) -> None:
    image(tmp_path / "val/a.png")
    image(tmp_path / "val/b.png")
    file = tmp_path / "captions_val.json"
    file.write_text(json.dumps(coco()))
    found = load_captions({"captions": file, "images": tmp_path / "val"})
    assert {one.path.name: one.captions for one in found.samples} == {
        "b.png": ("Two cats.",),
        "a.png": ("A dog.", "One dog."),
    }


def test_lines_that_cannot_be_used(tmp_path: Path) -> None:
    image(tmp_path / "a.png")
    lines = ["a.png\tA dog", "b.png\tA cat", "a.png\t", "no tab", "../a.png\tA dog", *["a.png\tmore"] * MOST]
    (tmp_path / "captions.txt").write_text("\n".join(lines))
    found = load_captions({"data": tmp_path})
    assert len(found.targets[0]) == MOST
    assert [str(one.path).rpartition(":")[2] for one in found.rejected] == ["2", "3", "4", "5", str(MOST + 5)]


WRONG = {
    "no list": ({}, "no captions"),
    "no image": ({"captions.txt": "b.png\tA dog"}, "'b.png' is not an image"),
    "not JSON": ({"captions.json": "{"}, "not JSON"),
    "another JSON": ({"captions.json": "[]"}, "'images' and 'annotations'"),
    "not COCO's": (
        {"captions.json": json.dumps(coco() | {"annotations": [{"id": 1}]})},
        "annotation 1 has no text 'caption'",
    ),
    "other columns": ({"captions.csv": "a,b\n1,2\n"}, "'image' and 'caption'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_refused(name: str, tmp_path: Path) -> None:
    files, text = WRONG[name]
    image(tmp_path / "a.png")
    for file, content in files.items():
        (tmp_path / file).write_text(content)
    with pytest.raises(DataError, match=text) as error:
        load_captions({"data": tmp_path})
    assert "\n" not in str(error.value)


def test_unknown_names_of_paths(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="captions=FILE images=FOLDER"):
        load_captions({"captions": image(tmp_path / "a.png")})


def test_the_fingerprint_covers_captions(tmp_path: Path) -> None:
    image(tmp_path / "a.png")
    (tmp_path / "captions.txt").write_text("a.png\tA dog")
    first = load_captions({"data": tmp_path}).fingerprint()
    (tmp_path / "captions.txt").write_text("a.png\tA cat")
    assert load_captions({"data": tmp_path}).fingerprint() != first
