"""The digit detector in other models' output layouts, and its scenes in the layouts of VOC and YOLO."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from support import ROOT

HOME = ROOT / "example" / "detection" / "digit_detector"
SIZE = 160


def _constant(name: str, value: Any, dtype: Any = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(value, dtype), name)


def _wrapped(
    path: Path,
    scale: float,
    mean: Sequence[float],
    nodes: Sequence[onnx.NodeProto],
    constants: Sequence[onnx.TensorProto],
    outputs: dict[str, list[Any]],
) -> Path:
    """Save the detector between an input of (levels - mean) / scale and nodes that convert its output layout."""
    model = onnx.load(str(HOME / "digit_detector_dyn.onnx"))
    graph = model.graph
    for node in graph.node:
        node.input[:] = ["as_trained" if name == "input" else name for name in node.input]
    first = [
        helper.make_node("Mul", ["input", "gain"], ["scaled"]),
        helper.make_node("Add", ["scaled", "shift"], ["as_trained"]),
    ]
    kept = list(graph.node)
    del graph.node[:], graph.output[:], graph.value_info[:], model.metadata_props[:]
    graph.node.extend([*first, *kept, *nodes])
    # the detector takes (levels / 255 - 0.5) / 0.25
    own = [
        _constant("gain", scale / 255 / 0.25),
        _constant("shift", (np.array(mean) / 255 - 0.5).reshape(3, 1, 1) / 0.25),
    ]
    graph.initializer.extend([*own, *constants])
    graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()
    )
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(path))
    return path


def save_ssd(path: Path) -> Path:
    """Save N x 400 x 25: background and 20 classes, of which the first ten are the digits; then shares of the input."""
    nodes = [
        helper.make_node("ReduceSum", ["scores", "last"], ["any"]),
        helper.make_node("Sub", ["one", "any"], ["background"]),
        helper.make_node("Mul", ["scores", "zero"], ["rest"]),
        helper.make_node("Div", ["boxes", "size"], ["shares"]),
        helper.make_node("Concat", ["background", "scores", "rest", "shares"], ["output"], axis=2),
    ]
    constants = [_constant("one", 1), _constant("zero", 0), _constant("size", SIZE), _constant("last", [2], np.int64)]
    return _wrapped(path, 1.0, (123, 117, 104), nodes, constants, {"output": ["batch", 400, 25]})


def save_yolo(path: Path, *, auxiliary: bool) -> Path:
    """Save N x 14 x 400: centre, width, height in pixels, scores; and, as training exports do, a second one."""
    nodes = [
        helper.make_node("Split", ["boxes"], ["low", "high"], axis=2, num_outputs=2),
        helper.make_node("Sub", ["high", "low"], ["sides"]),
        helper.make_node("Add", ["high", "low"], ["both"]),
        helper.make_node("Mul", ["both", "half"], ["middle"]),
        helper.make_node("Concat", ["middle", "sides", "scores"], ["rows"], axis=2),
        helper.make_node("Transpose", ["rows"], ["output"], perm=[0, 2, 1]),
        helper.make_node("Neg", ["scores"], ["auxiliary"]),
    ]
    outputs: dict[str, list[Any]] = {"output": ["batch", 14, 400]}
    if auxiliary:
        outputs["auxiliary"] = ["batch", 400, 10]
    else:
        nodes.pop()
    return _wrapped(path, 255.0, (0, 0, 0), nodes, [_constant("half", 0.5)], outputs)


def scenes(count: int) -> list[tuple[Path, list[tuple[int, list[float]]]]]:
    """Return some held-out scenes: the image, and of each digit the class and the box, left, top, width, height."""
    content = json.loads((HOME / "data" / "val.json").read_text())
    found: dict[int, list[tuple[int, list[float]]]] = {}
    for one in content["annotations"]:
        found.setdefault(one["image_id"], []).append((one["category_id"] - 1, one["bbox"]))
    images = content["images"][:count]
    return [(HOME / "data" / image["file_name"], found.get(image["id"], [])) for image in images]


XML = "<annotation><filename>{name}</filename><size><width>160</width><height>160</height></size>{objects}</annotation>"
OBJECT = (
    "<object><name>{name}</name><difficult>{difficult}</difficult><bndbox><xmin>{xmin}</xmin><ymin>{ymin}</ymin>"
    "<xmax>{xmax}</xmax><ymax>{ymax}</ymax></bndbox></object>"
)


def write_voc(folder: Path, count: int) -> Path:
    """Write scenes as ``VOC2007`` has them: corners in whole pixels from 1 on."""
    for name in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (folder / name).mkdir(parents=True)
    names = []
    for image, objects in scenes(count):
        shutil.copy(image, folder / "JPEGImages")
        names.append(image.stem)
        text = "".join(
            OBJECT.format(
                name=label, difficult=0, xmin=round(x) + 1, ymin=round(y) + 1, xmax=round(x + w), ymax=round(y + h)
            )
            for label, (x, y, w, h) in objects
        )
        file = folder / "Annotations" / f"{image.stem}.xml"
        file.write_text(XML.format(name=image.name, objects=text))
    (folder / "ImageSets" / "Main" / "test.txt").write_text("\n".join(names) + "\n")
    return folder


def write_yolo(folder: Path, count: int) -> Path:
    """Write scenes as COCO's for YOLO: ``images/val2017``, ``labels/val2017``, and the list, which is returned."""
    for name in ("images", "labels"):
        (folder / name / "val2017").mkdir(parents=True)
    lines = []
    for image, objects in scenes(count):
        shutil.copy(image, folder / "images" / "val2017")
        rows = [
            f"{label} {(x + w / 2) / SIZE} {(y + h / 2) / SIZE} {w / SIZE} {h / SIZE}\n"
            for label, (x, y, w, h) in objects
        ]
        (folder / "labels" / "val2017" / f"{image.stem}.txt").write_text("".join(rows))
        lines.append(f"./images/val2017/{image.name}\n")
    (folder / "val2017.txt").write_text("".join(lines))
    (folder / "digits.yaml").write_text("nc: 10\nnames: ['0', '1', '2', '3', '4', '5', '6', '7', '8', '9']\n")
    return folder / "val2017.txt"
