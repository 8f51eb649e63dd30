"""How far two sets of detections agree, and reading another program's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine import DataError
from utils.datasets.image.boxes import load_boxes
from utils.metrics.detection.agreement import agreement
from utils.postprocess.image.nms import Detections
from utils.tasks.detection.results import read_box_results


def found(*rows: tuple[list[float], float, int]) -> Detections:
    boxes, scores, classes = zip(*rows, strict=True) if rows else ([], [], [])
    return Detections(np.array(boxes, float).reshape(-1, 4), np.array(scores, float), np.array(classes, np.int64))


CAT, DOG = ([0.0, 0.0, 10.0, 10.0], 0.9, 0), ([20.0, 0.0, 30.0, 10.0], 0.6, 1)


def test_agreement() -> None:
    both = found(CAT, DOG)
    assert agreement(both, found(DOG, CAT)) == pytest.approx(1.0)
    assert agreement(found(), found()) == 1.0
    assert agreement(both, found()) == agreement(found(), both) == 0.0
    assert agreement(both, found(CAT)) == agreement(found(CAT), both) == pytest.approx(2 * 0.9 / 2.4)
    other_class = found((CAT[0], 0.9, 1), DOG)
    assert agreement(both, other_class) == pytest.approx(2 * 0.6 / 3.0)
    half = found(([0.0, 0.0, 10.0, 8.0], 0.45, 0))
    assert agreement(half, found(CAT)) == pytest.approx(2 * 0.8 * 0.45 / 1.35)
    assert agreement(found(CAT, CAT), found(CAT)) == pytest.approx(2 * 0.9 / 2.7)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        Image.new("RGB", (40, 20)).save(tmp_path / f"{name}.png")
    categories = [{"id": 3, "name": "dog"}, {"id": 7, "name": "cat"}]
    images = [{"id": 5, "file_name": "a.png"}, {"id": 6, "file_name": "b.png"}]
    (tmp_path / "val.json").write_text(json.dumps({"images": images, "categories": categories, "annotations": []}))
    return tmp_path


def read(data: Path, rows: Any, source: str = "val.json") -> list[Detections | None]:
    (data / "golden").mkdir(exist_ok=True)
    file = data / "golden" / "golden.json"
    file.write_text(rows if isinstance(rows, str) else json.dumps(rows))
    return read_box_results(file, load_boxes(data / source), ["cat", "dog"])


def test_results_are_read_by_ids_and_names(data: Path) -> None:
    rows = [
        {"image_id": 6, "category_id": 3, "bbox": [1, 2, 3, 4], "score": 0.5},
        {"image_id": "b", "category_id": 7, "bbox": [0, 0, 9, 9], "score": 0.7},
    ]
    first, second = read(data, rows)
    assert first is None
    assert second is not None
    assert second.boxes.tolist() == [[0, 0, 9, 9], [1, 2, 4, 6]]
    assert second.classes.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("{", "is not JSON"),
        ([], "golden.json is not a list"),
        ([5], "entry 0 is not an object"),
        ([{"image_id": 9, "category_id": 3, "bbox": [1, 2, 3, 4], "score": 1}], "image_id 9"),
        ([{"image_id": 5, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 1}], "category_id 1"),
        ([{"image_id": 5, "category_id": 3, "bbox": [1, 2, 3], "score": 1}], "must be four numbers and one"),
        ([{"image_id": 5, "category_id": 3, "bbox": [1, 2, 3, 4], "score": None}], "must be four numbers and one"),
    ],
)
def test_invalid_results_are_rejected(data: Path, rows: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(data, rows)


def test_golden_with_unusable_entries(data: Path) -> None:
    content = json.loads((data / "val.json").read_text())
    content["images"] += [{"file_name": "c.png"}, 5, {"id": 9}, {"id": [1], "file_name": "d.png"}]
    content["categories"][1]["id"] = "x"  # of another kind than the other one
    (data / "val.json").write_text(json.dumps(content))
    first, second = read(data, [{"image_id": 5, "category_id": "x", "bbox": [1, 2, 3, 4], "score": 0.5}])
    assert first is not None
    assert second is None


def test_golden_with_overflowing_numbers(data: Path) -> None:
    rows = f'[{{"image_id": 5, "category_id": 7, "bbox": [1, 2, 3, {"9" * 400}], "score": 0.5}}]'
    with pytest.raises(DataError, match="must be four numbers"):
        read(data, rows)
