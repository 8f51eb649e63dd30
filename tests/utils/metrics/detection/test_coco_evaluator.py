"""COCO's twelve figures compared with pycocotools."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import ConfigError, DataError, InputError
from utils.datasets.image.coco_api import CocoAnnotations
from utils.metrics.detection.coco_evaluator import CocoGroundingEvaluator


def annotations(seed: int = 0, images: int = 8) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    found = []
    for image in range(images):
        for _ in range(int(rng.integers(0, 6))):
            left, top, width, height = rng.uniform(5, 150, 4).round(1).tolist()
            found.append(
                {
                    "id": len(found) + 1,
                    "image_id": image + 10,
                    "category_id": int(rng.choice([2, 5, 9])),
                    "bbox": [left, top, width, height],
                    "area": width * height * 0.7,
                    "iscrowd": int(rng.random() < 0.1),
                }
            )
    return {
        "images": [{"id": i + 10, "file_name": f"{i}.jpg", "width": 320, "height": 320} for i in range(images)],
        "categories": [{"id": 9, "name": "c"}, {"id": 2, "name": "a"}, {"id": 5, "name": "b"}],
        "annotations": found,
    }


def guesses(content: dict[str, Any], seed: int = 1) -> dict[int, dict[str, Any]]:
    """Return detections near the objects and at random, several with equal scores."""
    rng = np.random.default_rng(seed)
    found = {}
    for image in content["images"]:
        mine = [a for a in content["annotations"] if a["image_id"] == image["id"]]
        boxes = np.array([a["bbox"] for a in mine] * 2 + [[50, 50, 30, 30]], np.float64)
        boxes = boxes + rng.normal(0, 4, boxes.shape)
        boxes[:, 2:] = np.abs(boxes[:, 2:]) + boxes[:, :2]
        labels = np.array([a["category_id"] for a in mine] * 2 + [5])
        found[image["id"]] = {"boxes": boxes, "scores": rng.random(len(boxes)).round(1), "labels": labels}
    return found


@pytest.fixture
def coco(tmp_path: Path) -> CocoAnnotations:
    (tmp_path / "a.json").write_text(json.dumps(annotations()))
    return CocoAnnotations(tmp_path / "a.json")


def theirs(coco: CocoAnnotations, found: dict[int, dict[str, Any]], *, classes: bool) -> list[float]:
    api = pytest.importorskip("pycocotools.coco")
    from pycocotools.cocoeval import COCOeval

    with contextlib.redirect_stdout(io.StringIO()):
        truth = api.COCO(str(coco.file))
        rows = [
            {
                "image_id": key,
                "category_id": int(label),
                "score": float(score),
                "bbox": [*box[:2].tolist(), *(box[2:] - box[:2]).tolist()],
            }
            for key, one in found.items()
            for box, score, label in zip(one["boxes"], one["scores"], one["labels"], strict=True)
        ]
        judge = COCOeval(truth, truth.loadRes(rows), "bbox")
        judge.params.imgIds = sorted(found)
        judge.params.useCats = int(classes)
        for step in (judge.evaluate, judge.accumulate, judge.summarize):
            step()
    return list(judge.stats.tolist())


@pytest.mark.parametrize("classes", [True, False])
@pytest.mark.parametrize("images", [8, 5])
def test_figures_equal_pycocotools(
    classes: bool, images: int, coco: CocoAnnotations, capsys: pytest.CaptureFixture[str]
) -> None:
    found = dict(list(guesses(annotations()).items())[:images])
    evaluator = CocoGroundingEvaluator(coco, iou_types=("bbox",), useCats=classes)
    for key, one in reversed(found.items()):
        evaluator.update({key: one})
    evaluator.synchronize_between_processes()
    evaluator.accumulate()
    want = theirs(coco, found, classes=classes)
    assert evaluator.coco_eval["bbox"].stats.tolist() == pytest.approx(want, abs=1e-9)
    assert 0.1 < want[0] < 0.95
    evaluator.summarize()
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == f" Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = {want[0]:.3f}"
    assert len(lines) == 13


def test_images_without_objects_give_minus_one(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(annotations() | {"annotations": []}))
    evaluator = CocoGroundingEvaluator(CocoAnnotations(tmp_path / "a.json"), ["bbox"])
    evaluator.update({10: {"boxes": np.zeros((0, 4)), "scores": [], "labels": []}})
    with pytest.warns(UserWarning, match="every figure is -1"):
        evaluator.accumulate()
    assert evaluator.coco_eval["bbox"].stats.tolist() == [-1.0] * 12


def test_unknown_ids(coco: CocoAnnotations) -> None:
    evaluator = CocoGroundingEvaluator(coco, ("bbox",))
    one = {"boxes": np.zeros((1, 4)), "scores": np.ones(1), "labels": np.array([1])}
    with pytest.raises(InputError, match=r"label 1 .*10 .*a\.json; .*coco_api"):
        evaluator.update({10: one})
    with pytest.raises(InputError, match="image_id 3 is not in"):
        evaluator.update({3: one})
    with pytest.raises(DataError, match="call update"):
        evaluator.accumulate()
    with pytest.raises(ConfigError, match="iou_types"):
        CocoGroundingEvaluator(coco, ("segm",))


def test_the_interface_of_pycocotools(coco: CocoAnnotations) -> None:
    api = pytest.importorskip("pycocotools.coco")
    with contextlib.redirect_stdout(io.StringIO()):
        other = api.COCO(str(coco.file))
    assert coco.getImgIds() == sorted(other.getImgIds())
    assert coco.getImgIds(catIds=[2]) == sorted(other.getImgIds(catIds=[2]))
    assert coco.getCatIds() == other.getCatIds()
    assert coco.getCatIds(catNms=["a", "b"]) == other.getCatIds(catNms=["a", "b"])
    for keywords in ({}, {"imgIds": [10, 12]}, {"imgIds": 11, "catIds": [5]}, {"catIds": [9], "iscrowd": False}):
        assert coco.getAnnIds(**keywords) == other.getAnnIds(**keywords)
    assert coco.loadAnns([1, 2]) == other.loadAnns([1, 2])
    assert (coco.loadImgs(10), coco.loadCats([2, 9])) == (other.loadImgs(10), other.loadCats([2, 9]))
    assert coco.imgs == other.imgs
    with pytest.raises(DataError, match="the id 1;"):
        coco.loadImgs(1)
