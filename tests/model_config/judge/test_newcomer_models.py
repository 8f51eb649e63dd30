"""Seven kinds of model that a newcomer brings: the gate passes what float16 changes, and fails a change of 0.95 %.

Every model is small, with a fixed seed, and has as many samples as a newcomer has. Labels of classifiers are the
model's own float32 answers, one in ten of them replaced, so that the metric is near 0.9. Two kinds have a task of the
zoo; the others have one of the contributed form, with metrics that the check computes in another process.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from judged_case import JudgedCase, weighted
from newcomer_models import (
    Plant,
    labels_of,
    more_of_a_class,
    point_clouds,
    point_network,
    ran,
    saved,
    shifted,
    with_head,
)
from onnx import helper
from PIL import Image
from planted import Net
from support import ROOT
from yolo_models import DETECTOR, V8, save_detector

from engine import Array
from model_config.cases.case import Case, Command
from model_config.results import Accuracy, Verdict
from tecoinfer_modelzoo import predict
from utils.tasks.detection.task import Detection

pytestmark = pytest.mark.slow

SCRIPT = '''\
"""Evaluate the model."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from {module} import {task}
from utils.pipeline import cli

if __name__ == "__main__":
    cli.valid({task}, ckpt="model.onnx", data_path="{data}", batch_size=16{more})
'''

MODEL = "model.onnx"


@dataclass
class Folder:
    """A newcomer's folder: ``write`` puts the model and the data in, and returns the plant.

    The records of a discrete metric do not change with small deviations, but at thresholds.
    """

    task: str
    write: Callable[[Path], Plant]
    module: str = "newcomer_tasks"
    data: str = "data/data.npz"
    more: str = ""
    is_discrete: bool = True


def arrays(folder: Path, samples: Array, targets: Array) -> None:
    (folder / "data").mkdir()
    np.savez(folder / "data/data.npz", samples=samples, targets=targets)


# ---------------------------------------------------------------------------------------------------------- the kinds


def classifier(folder: Path) -> Plant:
    """300 images of gratings; a stem, depthwise blocks and global pooling, as in timm."""
    rng = np.random.default_rng(0)
    places = np.mgrid[:32, :32]
    images = []
    for _ in range(300):
        direction, colour = rng.normal(0, 0.25, 2), rng.uniform(0, 255, (2, 3))
        wave = (1 + np.sin((direction[:, None, None] * places).sum(axis=0) + rng.uniform(0, 6)))[..., None] / 2
        images.append((wave * colour[0] + (1 - wave) * colour[1] + rng.normal(0, 8, (32, 32, 3))).clip(0, 255))
    pixels = np.array(images).astype(np.uint8)

    def build() -> tuple[Net, str]:
        net = Net(1)
        x = net.add("Relu", net.conv("x", 3, 24, 3, stride=2, scale=1.4))
        for _ in range(3):
            depthwise = net.random(24, 1, 3, 3)
            y = net.add("Relu", net.add("Conv", x, depthwise, kernel_shape=[3, 3], pads=[1] * 4, group=24))
            x = net.add("Relu", net.add("Add", net.conv(y, 24, 24, 1), x))
        return net, net.add("Flatten", net.add("GlobalAveragePool", x))

    data = ((pixels / np.float32(255) - np.float32(0.5)) / np.float32(0.25)).transpose(0, 3, 1, 2).astype(np.float32)
    with_head(build, folder / MODEL, (1, ["N", 3, 32, 32]), data, 10)
    model = onnx.load(folder / MODEL)
    preprocess = {"resize_shape": 32, "crop_shape": 32, "mean": [0.5] * 3, "std": [0.25] * 3}
    helper.set_model_props(model, {"preprocess": json.dumps(preprocess)})
    onnx.save(model, folder / MODEL)
    scores = ran(folder / MODEL, data)
    labels = labels_of(scores, rng)
    (folder / "data").mkdir()
    for place, image in enumerate(pixels):
        Image.fromarray(image).save(folder / f"data/{place:03}.png")
    lines = [f"{place:03}.png {label}" for place, label in enumerate(labels.tolist())]
    (folder / "data/val.txt").write_text("\n".join(lines) + "\n")
    return more_of_a_class(scores, labels)


def detector(folder: Path) -> Plant:
    """24 scenes; the digit detector with YOLOv8's output, its answers as boxes, some of them moved or left out."""
    save_detector(folder / MODEL, V8)
    model = onnx.load(folder / MODEL)
    helper.set_model_props(model, {"names": str({place: str(place) for place in range(10)}), "stride": "8"})
    onnx.save(model, folder / MODEL)
    data = json.loads((DETECTOR / "data/val.json").read_text())
    data["images"] = data["images"][:24]
    (folder / "data/val").mkdir(parents=True)
    files = [folder / "data" / image["file_name"] for image in data["images"]]
    for file, image in zip(files, data["images"], strict=True):
        shutil.copy(DETECTOR / "data" / image["file_name"], file)
    answers = predict(
        Detection, [str(file) for file in files], ckpt=folder / MODEL, layout="yolov8", score_threshold=0.4
    )
    rng, boxes = np.random.default_rng(0), []
    for image, answer in zip(data["images"], answers, strict=True):
        for one in answer.answer:
            left, top, right, bottom = np.array(one["box"]) + (rng.random() < 0.3) * rng.normal(0, 1.5, 4)
            if rng.random() < 0.1:
                continue
            box = [left, top, right - left, bottom - top]
            boxes.append(
                {"id": len(boxes) + 1, "image_id": image["id"], "category_id": int(one["label"]) + 1, "iscrowd": 0}
                | {"bbox": [float(value) for value in box], "area": float(box[2] * box[3])}
            )
    data["annotations"] = boxes
    (folder / "data/val.json").write_text(json.dumps(data))
    return lambda case: case.plant(weighted("core_box.1.weight", lambda values: values * 1.033))


def file_kind(folder: Path) -> Plant:
    """300 files of eight kinds, the first 128 bytes of each; an embedding, a convolution and pooling, as in magika."""
    rng = np.random.default_rng(1)
    ranges = [(32, 127), (0, 256), (48, 58), (65, 91), (0, 16), (128, 256), (97, 123), (0, 2)]
    rows = []
    for place in range(300):
        low, high = ranges[place % 8]
        other = ranges[int(rng.integers(8))]
        cut = int(rng.integers(64, 128))
        rows.append(np.concatenate([rng.integers(low, high, cut), rng.integers(*other, 128 - cut)]))
    data = np.array(rows, np.int64)

    def build() -> tuple[Net, str]:
        net = Net(2)
        table = net.const(net.rng.normal(0, 1, (256, 16)))
        x = net.add("Transpose", net.add("Gather", table, "x"), perm=[0, 2, 1])
        kernel = net.const(net.rng.normal(0, 0.15, (24, 16, 3)))
        x = net.add("Relu", net.add("Conv", x, kernel, kernel_shape=[3], pads=[1, 1]))
        return net, net.add("Flatten", net.add("GlobalAveragePool", x))

    with_head(build, folder / MODEL, (onnx.TensorProto.INT64, ["N", 128]), data, 8)
    scores = ran(folder / MODEL, data)
    labels = labels_of(scores, rng)
    arrays(folder, data, labels)
    return more_of_a_class(scores, labels)


def entities(folder: Path) -> Plant:
    """100 sentences of 16 tokens; an embedding, a convolution over the neighbours, and five classes per token."""
    rng = np.random.default_rng(2)
    data = rng.zipf(1.3, (100, 16)).clip(1, 199).astype(np.int64)

    def build() -> tuple[Net, str]:
        net = Net(3)
        table = net.const(net.rng.normal(0, 1, (200, 24)))
        x = net.add("Transpose", net.add("Gather", table, "x"), perm=[0, 2, 1])
        kernel = net.const(net.rng.normal(0, 0.12, (24, 24, 3)))
        x = net.add("Tanh", net.add("Conv", x, kernel, kernel_shape=[3], pads=[1, 1]))
        return net, net.add("Transpose", x, perm=[0, 2, 1])

    with_head(build, folder / MODEL, (onnx.TensorProto.INT64, ["N", 16]), data, 5, (16,))
    scores = ran(folder / MODEL, data)
    labels = labels_of(scores, rng)
    arrays(folder, data, labels)
    return more_of_a_class(scores, labels)


def stereo(folder: Path) -> Plant:
    """12 pairs; absolute differences at eight disparities, averaged over a window, and their soft minimum."""
    rng = np.random.default_rng(3)
    count, height, width, most = 12, 24, 40, 8
    wide = rng.normal(0, 1, (count, height, width + most))
    wide = sum(np.roll(wide, shift, axis=2) for shift in range(3)) / 3
    truth = np.empty((count, 1, height, width))
    truth[..., : width // 2], truth[..., width // 2 :] = rng.integers(1, most - 1, (2, count, 1, height, 1))
    columns = np.arange(width)[None, None, :] + truth[:, 0].astype(int)
    left = np.take_along_axis(wide, columns, axis=2)
    pairs = np.stack([left, wide[..., :width]], axis=1).astype(np.float32)

    net = Net(4)
    costs = []
    padded = net.add("Pad", "right", net.const([0, 0, 0, 0, 0, 0, 0, most], np.int64))
    for shift in range(most):
        ends = [net.const([value], np.int64) for value in (shift, shift + width, 3)]
        cost = net.add("Abs", net.add("Sub", "left", net.add("Slice", padded, *ends)))
        costs.append(net.add("AveragePool", cost, kernel_shape=[1, 5], pads=[0, 2, 0, 2]))
    sharp = net.add("Mul", net.add("Concat", *costs, axis=1), net.const(-12.0))
    shares = net.add("Softmax", sharp, axis=1)
    levels = net.const(np.arange(most).reshape(1, most, 1, 1))
    mean = net.add("ReduceSum", net.add("Mul", shares, levels), net.const([1], np.int64), keepdims=1)
    net.weights.append(onnx.numpy_helper.from_array(np.zeros(1, np.float32), "bias"))
    image = (1, ["N", 1, height, width])
    saved(net, folder / MODEL, {"left": image, "right": image}, net.add("Add", mean, "bias"), ["N", 1, height, width])
    arrays(folder, pairs, truth.astype(np.float32))
    found = ran(folder / MODEL, pairs[:, :1], pairs[:, 1:])
    return shifted(lambda amount: float(np.abs(found + amount - truth).mean()), "bias")


def super_resolution(folder: Path) -> Plant:
    """20 images; bilinear enlargement and a sharpening convolution."""
    rng = np.random.default_rng(4)
    places = np.mgrid[:32, :32] / 32
    waves = [
        sum(np.sin(rng.normal(0, 9, 2) @ places.reshape(2, -1) + rng.uniform(0, 6)) for _ in range(5))
        for _ in range(20)
    ]
    large = (np.array(waves).reshape(20, 1, 32, 32) / 10 + 0.5).clip(0, 1)
    small = large.reshape(20, 1, 16, 2, 16, 2).mean(axis=(3, 5)).astype(np.float32)

    net = Net(5)
    scales = net.const([1, 1, 2, 2])
    bigger = net.add("Resize", "x", "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
    kernel = np.full((1, 1, 3, 3), -0.04)
    kernel[0, 0, 1, 1] = 1.32
    net.weights.append(onnx.numpy_helper.from_array(np.zeros(1, np.float32), "bias"))
    sharp = net.add("Conv", bigger, net.const(kernel), "bias", kernel_shape=[3, 3], pads=[1] * 4)
    saved(net, folder / MODEL, {"x": (1, ["N", 1, 16, 16])}, sharp, ["N", 1, 32, 32])
    arrays(folder, small, large.astype(np.float32))
    found = ran(folder / MODEL, small).astype(np.float64)

    def psnr(amount: float) -> float:
        return float(-10 * np.log10(((found + amount - large) ** 2).mean(axis=(1, 2, 3))).mean())

    return shifted(psnr, "bias")


def point_cloud(folder: Path) -> Plant:
    """300 clouds of 64 points on balls, boxes, discs and rods; layers per point, and the maximum over the points."""
    rng = np.random.default_rng(5)
    data = point_clouds(rng)
    with_head(point_network, folder / MODEL, (1, ["N", 64, 3]), data, 4)
    scores = ran(folder / MODEL, data)
    labels = labels_of(scores, rng)
    arrays(folder, data, labels)
    return more_of_a_class(scores, labels)


KINDS = {
    "classifier": Folder(
        "Classification", classifier, "utils.tasks.classification.task", "data/val.txt", ", input_size=32"
    ),
    "detector": Folder(
        "Detection", detector, "utils.tasks.detection.task", "data", ', layout="yolov8"', is_discrete=False
    ),
    "file_kind": Folder("FileKind", file_kind),
    "entities": Folder("Entities", entities),
    "stereo": Folder("Stereo", stereo, is_discrete=False),
    "super_resolution": Folder("SuperResolution", super_resolution, is_discrete=False),
    "point_cloud": Folder("PointCloud", point_cloud),
}


def judged(case: JudgedCase) -> Accuracy:
    result = case.judge()
    (found,) = result.accuracy
    assert (result.verdict, result.notes) == (found.verdict, ())
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_float16_passes_and_a_planted_change_fails(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "newcomer_tasks", raising=False)
    of, home = KINDS[kind], tmp_path / "home"
    home.mkdir()
    plant = of.write(home)
    shutil.copy(ROOT / "tests/helpers/newcomer_tasks.py", home)
    script = SCRIPT.format(module=of.module, task=of.task, data=of.data, more=of.more)
    (home / "example_valid.py").write_text(script)
    params = {"ckpt": MODEL, "batch_size": 16, "data_path": of.data, "target": "sdaa", "dtype": "float16"}
    step = Command("valid", "example_valid.py", params)
    case = JudgedCase(Case(kind, f"example/newcomer/{kind}", (step,), Path("model.yaml")), tmp_path / "zoo", home)

    found = judged(case)
    assert found.verdict is Verdict.PASS, found.reason
    assert "strict" not in found.reason
    assert 0 < found.reference < 40
    if of.is_discrete:
        assert (found.differing, found.metric) == (0, found.reference)
        assert 0.85 < found.reference < 0.95
    else:
        assert found.differing == found.units, "float16 was computed"
        assert abs(found.relative_difference) < 0.001

    plant(case)
    found = judged(case)
    assert found.verdict is Verdict.FAIL, found.reason
    assert 0.005 < abs(found.relative_difference) < 0.015, found.reason
