# ruff: noqa: E402 - what is imported later needs what importorskip looks for
"""Networks for instance segmentation by name: sizes of the published ones, files equal to PyTorch, metadata."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxsim")

from exported_networks import check_metric, check_outputs, exported, parameters

from engine import DataError, ModelError
from utils.export.networks.vision.architecture import Asked, network
from utils.export.networks.vision.categories import OBJECTS, instance_categories
from utils.export.networks.vision.instance_networks import ARCHS
from utils.export.scripts.image_network import INSTANCES, export_network
from utils.tasks.instance_segmentation.task import InstanceSegmentation
from utils.tasks.templates.sample_images import fill_squares

pytestmark = pytest.mark.torch

PUBLISHED = {
    "yolov8n_seg": 3.409968,
    "yolov8s_seg": 11.8,
    "yolov8m_seg": 27.3,
    "yolov8l_seg": 46.0,
    "yolov8x_seg": 71.8,
}
"""Millions of parameters by Ultralytics' page of YOLOv8."""


@pytest.mark.parametrize("arch", PUBLISHED)
def test_as_many_parameters_as_published(arch: str) -> None:
    assert parameters(ARCHS[arch], Asked((640, 640), OBJECTS)) / 1e6 == pytest.approx(PUBLISHED[arch], rel=0.01)


def test_weights_have_the_published_names() -> None:
    with torch.device("meta"):
        state = ARCHS["yolov8n_seg"].build(Asked((640, 640), OBJECTS)).state_dict()
    assert state["model.22.proto.upsample.bias"].shape == (64,)
    assert state["model.22.proto.cv3.conv.weight"].shape == (32, 64, 1, 1)
    assert state["model.22.cv3.2.2.bias"].shape == (80,)
    assert state["model.0.conv.weight"].shape == (16, 3, 3, 3)


@pytest.mark.slow
def test_outputs_and_metric_equal_pytorch(tmp_path: Path) -> None:
    fill_squares(tmp_path, regions=True)
    categories = instance_categories(tmp_path / "data" / "val.json")
    assert categories.labels == ("red", "green", "blue")
    found = network(ARCHS, "yolov8n_seg", "random", [64], categories=categories)
    ckpt = exported(found, tmp_path)
    check_outputs(found, ckpt)
    check_metric(InstanceSegmentation, found, ckpt, tmp_path / "data", limit=8)


def test_weights_of_another_number_of_classes_are_one_line(tmp_path: Path) -> None:
    made = ARCHS["yolov8n_seg"].build(Asked((64, 64), OBJECTS._replace(labels=("cat", "dog"))))
    torch.save(made.state_dict(), tmp_path / "two.pth")
    with pytest.raises(ModelError, match=r"two\.pth .*of another shape model\.22\.cv3\.0") as got:
        network(ARCHS, "yolov8n_seg", str(tmp_path / "two.pth"), [64], categories=OBJECTS)
    assert "\n" not in str(got.value)


def test_annotations_without_categories_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "none.json").write_text(json.dumps({"images": [], "annotations": []}))
    with pytest.raises(DataError, match=r"none\.json: 'categories' is missing"):
        export_network("x", tmp_path, INSTANCES, ["--weights", "random", "--annotations", str(tmp_path / "none.json")])
