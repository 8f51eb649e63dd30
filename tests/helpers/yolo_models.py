"""The digit detector of the zoo with YOLO's output layouts, and its scenes in YOLO's format."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, compose, helper, numpy_helper
from support import ROOT

DETECTOR = ROOT / "example" / "detection" / "digit_detector"
SIDE = 160
NAMES = tuple(str(number) for number in range(10))

V5, V8 = "v5", "v8"

_NUMBERS = {
    "half": np.array(0.5, np.float32),
    "quarter": np.array(0.25, np.float32),
    "last": np.array([2], np.int64),
}


def save_detector(path: Path, layout: str) -> Path:
    """Write the detector with ``images`` (0 to 1) as its input and one output: N x 400 x 15, or N x 14 x 400.

    In the first form the object score is the best class's, and the class scores are shares of it, so that only their
    product is right.
    """
    core = compose.add_prefix(onnx.load(DETECTOR / "digit_detector_dyn.onnx"), "core_")
    nodes = [
        helper.make_node("Sub", ["images", "half"], ["less"]),
        helper.make_node("Div", ["less", "quarter"], ["core_input"]),
        *core.graph.node,
        helper.make_node("Split", ["core_boxes"], ["starts", "ends"], axis=2, num_outputs=2),
        helper.make_node("Add", ["starts", "ends"], ["sums"]),
        helper.make_node("Mul", ["sums", "half"], ["centres"]),
        helper.make_node("Sub", ["ends", "starts"], ["sides"]),
    ]
    if layout == V5:
        nodes += [
            helper.make_node("ReduceMax", ["core_scores", "last"], ["best"], keepdims=1),
            helper.make_node("Div", ["core_scores", "best"], ["shares"]),
            helper.make_node("Concat", ["centres", "sides", "best", "shares"], ["output"], axis=2),
        ]
        shape = ["batch", 400, 15]
    else:
        nodes += [
            helper.make_node("Concat", ["centres", "sides", "core_scores"], ["rows"], axis=2),
            helper.make_node("Transpose", ["rows"], ["output"], perm=[0, 2, 1]),
        ]
        shape = ["batch", 14, 400]
    numbers = [numpy_helper.from_array(value, name) for name, value in _NUMBERS.items()]
    graph = helper.make_graph(
        nodes,
        "yolo",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["batch", 3, SIDE, SIDE])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, shape)],
        [*core.graph.initializer, *numbers],
    )
    onnx.save(helper.make_model(graph, opset_imports=core.opset_import, ir_version=core.ir_version), path)
    return path


def save_scenes(folder: Path, count: int) -> Path:
    """Write the first scenes as YOLO's scripts expect COCO: ``val2017.txt``, ``images/`` and ``labels/``."""
    annotations = json.loads((DETECTOR / "data" / "val.json").read_text())
    lines = {}
    for image in annotations["images"][:count]:
        lines[image["id"]] = (image, [])
    for one in annotations["annotations"]:
        if one["image_id"] in lines:
            image, own = lines[one["image_id"]]
            left, top, width, height = one["bbox"]
            share = ((left + width / 2) / image["width"], (top + height / 2) / image["height"])
            own.append(f"{one['category_id'] - 1} {share[0]:.8f} {share[1]:.8f} ")
            own[-1] += f"{width / image['width']:.8f} {height / image['height']:.8f}"
    images, labels = folder / "images" / "val2017", folder / "labels" / "val2017"
    images.mkdir(parents=True)
    labels.mkdir(parents=True)
    for image, own in lines.values():
        name = Path(image["file_name"]).name
        shutil.copyfile(DETECTOR / "data" / image["file_name"], images / name)
        (labels / name).with_suffix(".txt").write_text("".join(f"{line}\n" for line in own))
    names = sorted(file.name for file in images.iterdir())
    (folder / "val2017.txt").write_text("".join(f"./images/val2017/{name}\n" for name in names))
    return folder
