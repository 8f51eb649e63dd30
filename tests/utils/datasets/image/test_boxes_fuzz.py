"""Annotations with any content: a loader returns a valid data set, or raises a one-line error."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from PIL import Image

from engine import DataError
from utils.datasets.image.boxes import BoxedImages, load_boxes
from utils.metrics.detection.metric import MeanAveragePrecision
from utils.postprocess.image.nms import Detections

COCO: dict[str, Any] = {
    "images": [{"id": 1, "file_name": "a.png", "width": 8, "height": 6}, {"id": 2, "file_name": "b.png"}],
    "categories": [{"id": 3, "name": "cat"}, {"id": 7, "name": "dog"}],
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 3, "bbox": [1, 1, 4, 4], "area": 9.5, "iscrowd": 0},
        {
            "id": 2,
            "image_id": 1,
            "category_id": 7,
            "bbox": [0, 0, 8, 6],
            "segmentation": {"counts": "x", "size": [6, 8]},
        },
    ],
}
VOC = (
    "<annotation><filename>a.png</filename><size><width>8</width><height>6</height></size><object><name>cat</name>"
    "<difficult>1</difficult><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>8</xmax><ymax>6</ymax></bndbox></object>"
    "</annotation>"
)
YOLO = "0 0.5 0.5 0.5 0.5\n1 0.1 0.1 0.2 0.1 0.2 0.9\n"
YAML = "path: .\nval: images\nnames:\n  0: cat\n  1: dog\n"
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 1, 2, 3, 7, 10**400, "a.png", "../a.png", "/", ".", "a\0.png", "\ud800", "é" * 300]),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.one_of(st.integers(-5, 5), st.floats(), st.none()), max_size=5),
    st.dictionaries(st.sampled_from(["id", "name", "bbox", "image_id"]), st.integers(0, 4), max_size=2),
)
WORDS = [
    "nan",
    "inf",
    "1e999",
    "-0.5",
    "9" * 500,
    "<!DOCTYPE a>",
    "&amp;",
    "&x;",
    "\0",
    "\ud7ff",
    "\n",
    " ",
    "<",
    "]",
    "*a",
    "&a [*a]",
]

run = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    for name in ("images", "labels"):
        (tmp_path / name).mkdir()
    for name in ("a.png", "b.png", "images/a.png", "images/b.png"):
        Image.new("RGB", (8, 6)).save(tmp_path / name)
    yield tmp_path
    shutil.rmtree(tmp_path)


def usable(load: Callable[[], BoxedImages]) -> None:
    """Check that loading gives a valid data set or a short one-line error."""
    try:
        found = load()
    except DataError as error:
        reasons = [str(error)]
    else:
        reasons = [one.reason for one in found.rejected]
        measured(found)
    assert all("\n" not in reason and len(reason) < 2000 for reason in reasons)


def measured(found: BoxedImages) -> None:
    """Evaluate perfect detections."""
    json.dumps(found.notes, ensure_ascii=False).encode()
    assert len(found.fingerprint()) == 64
    metric = MeanAveragePrecision(categories=found.notes["categories"])
    for real in found.targets or ():
        assert np.isfinite(real.boxes).all()
        assert len(real.boxes) == len(real.classes) == len(real.crowd)
        assert not len(real.classes) or not real.categories or real.classes.max() < len(real.categories)
        metric.update([Detections(real.boxes, np.ones(len(real.boxes)), real.classes)], [real])
    if any((~real.crowd).any() for real in found.targets or ()):
        assert 0 <= metric.compute() <= 1
        assert metric.per_class()


@st.composite
def spoiled_json(draw: st.DrawFn) -> str:
    """Return COCO's JSON with some values replaced, removed or duplicated."""
    content = copy.deepcopy(COCO)
    for _ in range(draw(st.integers(1, 3))):
        at: Any = content
        while True:
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            key = draw(st.sampled_from(keys))
            if not isinstance(at[key], (dict, list)) or not at[key] or draw(st.integers(0, 3)) == 0:
                break
            at = at[key]
        how = draw(st.integers(0, 3))
        if how == 0:
            del at[key]
        elif how == 1 and isinstance(at, list):
            at.append(copy.deepcopy(at[key]))
        else:
            at[key] = draw(ODD)
        if not content:
            break
    return json.dumps(content)


@st.composite
def spoiled_text(draw: st.DrawFn, text: str) -> bytes:
    """Return a text truncated, with parts removed or duplicated, or with odd words."""
    for _ in range(draw(st.integers(1, 3))):
        start, end = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        how = draw(st.integers(0, 3))
        word = draw(st.sampled_from(WORDS))
        text = [text[:start], text[:start] + text[end:], text[:end] + text[start:], text[:start] + word + text[start:]][
            how
        ]
    found = text.encode("utf-8", "surrogatepass")
    place = draw(st.integers(0, len(found)))
    return found[:place] + draw(st.binary(max_size=2)) + found[place:] if draw(st.booleans()) else found


@run
@given(content=spoiled_json())
def test_json_with_other_values(content: str, folder: Path) -> None:
    (folder / "val.json").write_text(content)
    usable(lambda: load_boxes(folder / "val.json"))


@run
@given(content=spoiled_text(json.dumps(COCO)))
def test_json_with_other_bytes(content: bytes, folder: Path) -> None:
    (folder / "val.json").write_bytes(content)
    usable(lambda: load_boxes(folder / "val.json"))


@run
@given(content=spoiled_text(VOC))
def test_xml_with_other_bytes(content: bytes, folder: Path) -> None:
    (folder / "a.xml").write_bytes(content)
    (folder / "b.xml").write_text(VOC)
    usable(lambda: load_boxes(folder, "voc"))


@run
@given(content=spoiled_text(YOLO), names=st.booleans())
def test_lines_with_other_bytes(content: bytes, names: bool, folder: Path) -> None:
    (folder / "labels" / "a.txt").write_bytes(content)
    (folder / "labels" / "b.txt").write_text(YOLO)
    (folder / "classes.txt").write_text("cat\ndog\n" if names else "")
    usable(lambda: load_boxes(folder, "yolo"))


@run
@given(content=spoiled_text(YAML))
def test_yaml_with_other_bytes(content: bytes, folder: Path) -> None:
    (folder / "labels" / "a.txt").write_text(YOLO)
    (folder / "data.yaml").write_bytes(content)
    usable(lambda: load_boxes(folder, "yolo"))


@run
@given(content=spoiled_text("a\nb -1\n"))
def test_splits_with_other_bytes(content: bytes, folder: Path) -> None:
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in ("a", "b"):
        shutil.copy(folder / f"{name}.png", folder / "JPEGImages")
        (folder / "Annotations" / f"{name}.xml").write_text(VOC)
    (folder / "ImageSets" / "Main" / "val.txt").write_bytes(content)
    usable(lambda: load_boxes(folder, "voc"))


@run
@example(content=b"./images/a.png\n" + b"9" * 600 + b"./images/b.png\n", which="list.txt")
@given(content=spoiled_text("./images/a.png\n./images/b.png\n"), which=st.sampled_from(["list.txt", "classes.txt"]))
def test_lists_with_other_bytes(content: bytes, which: str, folder: Path) -> None:
    (folder / "labels" / "a.txt").write_text(YOLO)
    (folder / "data.yaml").unlink(missing_ok=True)
    if which == "list.txt":
        (folder / "data.yaml").write_text("names: [cat, dog]\nval: list.txt\n")
    (folder / which).write_bytes(content)
    usable(lambda: load_boxes(folder, "yolo"))
