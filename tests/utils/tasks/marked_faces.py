"""A constructed face detector, and photographs that it finds the faces on: for pipelines of two models."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
from onnx import numpy_helper, parser, save
from PIL import Image

from utils.preprocess.image.alignment import TEMPLATE

MARK = (255, 0, 255)
SIDE = 64
GRAPH = """<ir_version: 8, opset_import: ["" : 17]>
marks (float[N,3,H,W] input)
  => (float[N,1,h,w] heatmap, float[N,2,h,w] scale, float[N,2,h,w] offset, float[N,10,h,w] landmarks)
{
  cells = AveragePool<kernel_shape = [4, 4], strides = [4, 4]>(input)
  heat = Conv(cells, heat_w, heat_b)
  heatmap = Sigmoid(heat)
  scale = Conv(cells, scale_w, scale_b)
  offset = Conv(cells, offset_w, offset_b)
  landmarks = Conv(cells, landmarks_w, landmarks_b)
}
"""
"""A detector of CenterFace's form: a violet mark of 4 x 4 pixels stands in the middle of a face of 32 x 32."""


def write_detector(path: Path) -> Path:
    model = parser.parse_model(GRAPH)
    biases = {"scale": [math.log(8)] * 2, "offset": [-0.5] * 2, "landmarks": np.array(TEMPLATE)[:, ::-1].ravel()}
    weights = {f"{name}_w": np.zeros((len(bias), 3, 1, 1)) for name, bias in biases.items()}
    weights |= {f"{name}_b": np.array(bias) for name, bias in biases.items()}
    weights |= {"heat_w": np.array([40, -80, 40]).reshape(1, 3, 1, 1), "heat_b": np.array([-70])}
    model.graph.initializer.extend(numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items())
    entry = model.metadata_props.add()
    entry.key, entry.value = "preprocess", json.dumps({"mean": [0.0] * 3, "std": [1.0] * 3})
    save(model, path)
    return path


def photograph(face: Path, left: int, top: int, file: Path, more: tuple[int, int] | None = None) -> Path:
    """Put a marked face of 32 x 32 on a dark image, and another mark where that is asked for."""
    canvas = np.full((SIDE, SIDE, 3), 20, np.uint8)
    canvas[top : top + 32, left : left + 32] = np.asarray(Image.open(face))
    canvas[top + 16 : top + 20, left + 16 : left + 20] = MARK
    if more is not None:
        canvas[more[1] : more[1] + 4, more[0] : more[0] + 4] = MARK
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(canvas).save(file)
    return file


def with_detector(folder: Path) -> Path:
    """Add ``detector.onnx``, and photographs of its people beside its portraits, to the template's folder."""
    write_detector(folder / "detector.onnx")
    chance = np.random.default_rng(0)
    for face in sorted((folder / "data").glob("*/*.png")):
        left, top = (4 * chance.integers(0, 9, 2)).tolist()
        photograph(face, left, top, folder / "photographs" / face.parent.name / face.name)
    return folder
