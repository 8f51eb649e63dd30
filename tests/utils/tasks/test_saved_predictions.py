"""``--save_predictions``: what others compute from the saved answers is the metric that was printed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from constructed_models import NAME, written
from PIL import Image
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from sklearn.metrics import jaccard_score

from engine import ConfigError
from utils.datasets.base import Batch, ListDataset
from utils.datasets.image.boxes import load_boxes
from utils.datasets.renaming import renamed
from utils.pipeline import valid
from utils.pipeline.flags.options import options
from utils.postprocess.image.nms import Detections
from utils.tasks.base import Task
from utils.tasks.detection.results import BoxResults, read_box_results
from utils.tasks.find import find_task
from utils.tasks.segmentation.task import MaskFiles

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools' own

CLASSIFICATION, DETECTION, SEGMENTATION = map(find_task, ("classification", "detection", "segmentation"))


def run(task: type[Task], model: Path, data: Path, result: Path, *words: str) -> dict[str, Any]:
    argv = ["--target", "onnx", "--json", str(result), *words]
    assert valid.main(None, task, argv=argv, ckpt=model / f"{NAME}_dyn.onnx", data_path=data, batch_size=5) == 0
    found: dict[str, Any] = json.loads(result.read_text())
    return found


@pytest.mark.slow
def test_saved_detections_reproduce_pycocotools(tmp_path: Path) -> None:
    model = written(DETECTION, tmp_path)
    (listed,) = (model / "data").glob("*.json")
    content = json.loads(listed.read_text())
    categories = {one["id"]: 10**10 - 7 * one["id"] for one in content["categories"]}  # the order is turned round
    images = {one["id"]: 2**40 - one["id"] ** 3 for one in content["images"]}
    for one in content["categories"]:
        one["id"] = categories[one["id"]]
    for one in content["images"]:
        one["id"] = images[one["id"]]
    for place, one in enumerate(content["annotations"]):
        one |= {"image_id": images[one["image_id"]], "category_id": categories[one["category_id"]]}
        one |= {"iscrowd": int(place % 5 == 0), "area": 1000 + place % 50}
    listed.write_text(json.dumps(content))
    saved = tmp_path / "found.json"
    report = run(DETECTION, model, model / "data", tmp_path / "r.json", "--save_predictions", str(saved))
    truth = COCO(str(listed))
    judge = COCOeval(truth, truth.loadRes(str(saved)), "bbox")
    judge.evaluate()
    judge.accumulate()
    judge.summarize()
    mine = [report["metric"], *(report["secondary"].get(name, -1) for name in ("mAP50", "mAP75", "mAP_small"))]
    assert mine == pytest.approx(judge.stats[:4], abs=1e-12)
    assert report["metric"] > 0.5


def test_saved_masks_reproduce_scikit_learn(tmp_path: Path) -> None:
    model = written(SEGMENTATION, tmp_path)
    saved = tmp_path / "masks"
    report = run(SEGMENTATION, model, model / "data", tmp_path / "r.json", "--save_predictions", str(saved))
    truth = sorted((model / "data" / "masks").iterdir())
    assert [file.name for file in sorted(saved.iterdir())] == [file.name for file in truth]
    right, found = (
        np.concatenate([np.asarray(Image.open(file)).ravel() for file in sorted(files)])
        for files in (truth, saved.iterdir())
    )
    known = right != 255
    assert report["metric"] == pytest.approx(jaccard_score(right[known], found[known], average="macro"), abs=1e-12)
    shutil.rmtree(model / "data" / "masks")
    shutil.copytree(saved, model / "data" / "masks")
    assert run(SEGMENTATION, model, model / "data", tmp_path / "r.json")["metric"] == 1.0


def detections(*classes: int) -> Detections:
    boxes = np.array([[1.0, 2.0, 4.5, 6.0]] * len(classes)).reshape(-1, 4)
    return Detections(boxes, np.linspace(0.9, 0.1, len(classes)), np.array(classes, np.int64))


@pytest.fixture
def image_folder(tmp_path: Path) -> Path:
    for name in ("a", "b"):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{name}.png")
    categories = [{"id": 9, "name": "dog"}, {"id": 4, "name": "cat"}, {"id": 6, "name": "fox"}]
    images = [{"id": 5, "file_name": "b.png"}, {"id": 3, "file_name": "a.png"}]
    (tmp_path / "val.json").write_text(json.dumps({"images": images, "categories": categories, "annotations": []}))
    return tmp_path


def test_ids_are_the_data_sets_and_foreign_classes_are_left_out(image_folder: Path) -> None:
    dataset, labels = load_boxes(image_folder), ["bird", "cat", "dog"]
    batch, file = dataset.batch(range(2)), image_folder / "found.json"
    writer = BoxResults(file, dataset, labels)
    writer.see(Batch(batch.samples, batch.targets, batch.names), [detections(2, 0, 1), detections()])
    writer.close()
    rows = json.loads(file.read_text())
    assert [(row["image_id"], row["category_id"], row["bbox"]) for row in rows] == [
        (5, 9, [1, 2, 3.5, 4]),
        (5, 4, [1, 2, 3.5, 4]),
    ]
    fewer = load_boxes(image_folder)
    fewer.notes = {**fewer.notes, "categories": ("cat", "bird", "dog")}
    again = BoxResults(file, fewer, labels)
    again.see(Batch(batch.samples, batch.targets, batch.names), [detections(0), detections(1)])
    again.close()
    assert [(row["image_id"], row["category_id"]) for row in json.loads(file.read_text())] == [(5, 6), (3, 4)]


def test_classes_that_became_one_have_the_first_ones_id(image_folder: Path) -> None:
    dataset = renamed(load_boxes(image_folder), {"fox": "dog"}, image_folder / "labels.txt")
    assert (dataset.notes["categories"], dataset.notes["category_ids"]) == (("cat", "dog"), (4, 6))


def test_without_ids_images_are_known_by_their_names(image_folder: Path) -> None:
    (image_folder / "val.json").unlink()
    for name in ("a", "b"):
        (image_folder / f"{name}.txt").write_text("1 0.5 0.5 0.5 0.5\n")
    (image_folder / "classes.txt").write_text("cat\ndog\n")
    dataset, file = load_boxes(image_folder), image_folder / "found.json"
    writer = BoxResults(file, dataset, ["dog", "cat"])
    batch = dataset.batch(range(2))
    writer.see(Batch(batch.samples, batch.targets, batch.names), [detections(0), detections(1, 0)])
    writer.close()
    rows = json.loads(file.read_text())
    assert [(row["image_id"], row["category_id"]) for row in rows] == [("a", 1), ("b", 0), ("b", 1)]
    read = read_box_results(file, dataset, ["dog", "cat"])
    assert [one.classes.tolist() for one in read if one is not None] == [[0], [1, 0]]


def test_unsupported_saving_is_rejected(tmp_path: Path) -> None:
    model, words = written(SEGMENTATION, tmp_path), ["--save_predictions", str(tmp_path / "masks")]
    with pytest.raises(ConfigError, match=r"--resume, .*--launcher ray"):
        run(SEGMENTATION, model, model / "data", tmp_path / "r.json", *words, "--resume", str(tmp_path / "j"))
    with pytest.raises(ConfigError, match="gone does not exist"):
        run(
            SEGMENTATION, model, model / "data", tmp_path / "r.json", "--save_predictions", str(tmp_path / "gone" / "x")
        )
    with pytest.raises(ConfigError, match=r"--save_predictions .*folder"):
        run(
            SEGMENTATION,
            model,
            model / "data",
            tmp_path / "r.json",
            "--save_predictions",
            str(model / f"{NAME}_dyn.onnx"),
        )
    with pytest.raises(SystemExit):
        options(None, CLASSIFICATION, "valid", ckpt=tmp_path / "a.onnx", argv=words)


def test_masks_of_images_that_differ_in_their_endings(tmp_path: Path) -> None:
    long, odd = "a" * 251, "line\nbreak\udcff"
    names = [
        f"{tmp_path}/data/{name}" for name in ("a.jpg", "a.png", "b.png", f"{odd}.png", f"{long}.jpg", f"{long}.bmp")
    ]
    dataset = ListDataset(names, names=names)
    maps = [np.full((2, 2), place, np.int16) for place in range(len(names))]
    MaskFiles(tmp_path / "out", dataset).see(dataset.batch(range(len(names))), maps)
    written = sorted((tmp_path / "out").iterdir())
    assert sorted(int(np.asarray(Image.open(file)).max()) for file in written) == list(range(len(names)))
    assert {"b.png", f"{odd}.png"} <= {file.name for file in written}
    assert "a.png" not in {file.name for file in written}  # whose would it be?
