"""SSD: one box and C + 1 logits per default box, as in torchvision's SSD300 and SSDlite320.

Liu et al., "SSD: Single Shot MultiBox Detector" (2016), sections 2.1 and 2.2. The order of the default boxes, the
weights of the coder (10, 10, 5, 5) and the steps of the post-processing are those of torchvision.models.detection.
"""

from __future__ import annotations

import math

import numpy as np

from engine import Array
from utils.postprocess.image.layouts.anchors import DELTA_CLIP, moved
from utils.postprocess.image.layouts.base import Layout, Outputs, pairs, refuse, softmax
from utils.postprocess.image.nms import Detections

WEIGHTS = (10.0, 10.0, 5.0, 5.0)
TOP_K = 400
NEEDS = "bbox_regression N x A x 4 and cls_logits N x A x (C + 1)"


def default_boxes(outputs: Outputs) -> Array:
    """Return A x 4 float32 boxes (left, top, right, bottom) in pixels, grouped by cell, row by row.

    The note has ``grids`` (height and width of each feature map), ``aspect_ratios`` (a list per map), ``scales`` (one
    more than maps, relative to the input) and, for cells that are not evenly spaced, ``steps`` in pixels.
    """
    height, width = outputs.size or tuple(outputs.noted("size"))
    scales, ratios = outputs.noted("scales"), outputs.noted("aspect_ratios")
    steps = outputs.note.get("steps")
    found = []
    for k, (rows, columns) in enumerate(outputs.noted("grids")):
        down, across = (height / steps[k], width / steps[k]) if steps else (rows, columns)
        y = ((np.arange(rows, dtype=np.float32) + np.float32(0.5)) / down).astype(np.float32)
        x = ((np.arange(columns, dtype=np.float32) + np.float32(0.5)) / across).astype(np.float32)
        sizes = np.clip(np.array(_sizes(scales[k], scales[k + 1], ratios[k]), np.float32), 0, 1)
        centres = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 1, 2)
        half = np.float32(0.5) * sizes[None]
        found.append(np.concatenate([centres - half, centres + half], axis=-1).reshape(-1, 4))
    return np.concatenate(found) * np.array([width, height] * 2, np.float32)


def _sizes(scale: float, following: float, ratios: list[float]) -> list[tuple[float, float]]:
    """Return width and height of a cell's boxes: two squares, then for each ratio a wide and a tall box."""
    between = math.sqrt(scale * following)
    sizes = [(scale, scale), (between, between)]
    for ratio in ratios:
        wide, narrow = scale * math.sqrt(ratio), scale / math.sqrt(ratio)
        sizes += [(wide, narrow), (narrow, wide)]
    return sizes


def fits(outputs: Outputs) -> bool:
    """Return whether the outputs have torchvision's names."""
    return sorted(outputs.names) == ["bbox_regression", "cls_logits"]


def read(outputs: Outputs) -> list[Detections]:
    """Return the best boxes of each class except the background (class 0)."""
    if len(outputs.arrays) != 2:
        raise refuse(outputs, NEEDS)
    boxes, logits = outputs.arrays if outputs.names[0] != "cls_logits" else outputs.arrays[::-1]
    anchors = default_boxes(outputs)
    if boxes.shape != (outputs.samples, len(anchors), 4) or logits.shape[:2] != boxes.shape[:2]:
        raise refuse(outputs, f"{NEEDS} with A = {len(anchors)}")
    top_k = int(outputs.note.get("top_k", TOP_K))
    return [
        pairs(moved(box, anchors, WEIGHTS, DELTA_CLIP), softmax(scores)[:, 1:], outputs, top_k)
        for box, scores in zip(boxes, logits, strict=True)
    ]


SHAPES = f"{NEEDS}: offsets from default boxes, class 0 is the background"
LAYOUTS = (Layout("ssd", SHAPES, read, fits, clipped=True, takes_logits=True),)
