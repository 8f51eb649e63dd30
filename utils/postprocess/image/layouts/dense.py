"""RetinaNet and FCOS: maps of logits and boxes per level of a feature pyramid, as in torchvision.

Lin et al., "Focal Loss for Dense Object Detection" (2017); Tian et al., "FCOS: Fully Convolutional One-Stage Object
Detection" (2019). The outputs are the maps of the last convolutions, whose sizes determine the anchors for any height
and width of the input.
"""

from __future__ import annotations

import numpy as np

from engine import Array
from utils.postprocess.image.layouts.anchors import at_cells, cell_anchors, moved
from utils.postprocess.image.layouts.base import Layout, Outputs, highest, joined, logit, refuse, sigmoid
from utils.postprocess.image.nms import Detections

TOP_K = 1000
"""Maximum candidates of a level."""

RETINANET_NEEDS = "logits_0.. N x (A * C) x H x W and boxes_0.. N x (A * 4) x H x W, a map per level"
FCOS_NEEDS = "logits_0.. N x C x H x W, boxes_0.. N x 4 x H x W and centers_0.. N x 1 x H x W, a map per level"


def read_retinanet(outputs: Outputs) -> list[Detections]:
    """Return the best candidates of every level: logits through a sigmoid, anchors moved by their deltas."""
    logits, boxes = _levels(outputs, 2, RETINANET_NEEDS)
    strides = _strides(outputs, logits)
    cells = [cell_anchors(sizes, outputs.noted("aspect_ratios")) for sizes in outputs.noted("sizes")]
    for level, (scores, deltas, cell) in enumerate(zip(logits, boxes, cells, strict=True)):
        count, (height, width) = len(cell), scores.shape[2:]
        if scores.shape[1] % count or deltas.shape != (outputs.samples, 4 * count, height, width):
            raise refuse(outputs, f"{RETINANET_NEEDS}, with {count} anchors (level {level})")
    found = []
    for i in range(outputs.samples):
        maps = zip(logits, boxes, cells, strides, strict=True)
        found.append(joined([_anchored(one[i], box[i], cell, step, outputs) for one, box, cell, step in maps]))
    return found


def _anchored(logits: Array, deltas: Array, cell: Array, stride: tuple[int, int], outputs: Outputs) -> Detections:
    """Return one level's candidates in one image."""
    height, width = logits.shape[1:]
    split = logits.reshape(len(cell), -1, height, width)
    kinds, classes, rows, columns = np.nonzero(split >= logit(outputs.least))
    found = Detections(np.stack([kinds, rows, columns], axis=1), sigmoid(split[kinds, classes, rows, columns]), classes)
    best = highest(found, int(outputs.note.get("top_k", TOP_K)))
    kinds, rows, columns = best.boxes.T
    anchors = at_cells(cell[kinds], rows, columns, stride)
    boxes = moved(deltas.reshape(len(cell), 4, height, width)[kinds, :, rows, columns], anchors)
    return _plain(boxes, best)


def read_fcos(outputs: Outputs) -> list[Detections]:
    """Return the best candidates of every level: distances to four edges, scores with centredness.

    A score is the square root of the product of the sigmoids of class and centredness; distances are in anchors' sizes.
    """
    logits, boxes, centers = _levels(outputs, 3, FCOS_NEEDS)
    strides, sizes = _strides(outputs, logits), outputs.noted("sizes")
    for scores, distances, center in zip(logits, boxes, centers, strict=True):
        grid = scores.shape[2:]
        if distances.shape != (outputs.samples, 4, *grid) or center.shape != (outputs.samples, 1, *grid):
            raise refuse(outputs, FCOS_NEEDS)
    found = []
    for i in range(outputs.samples):
        maps = zip(logits, boxes, centers, sizes, strides, strict=True)
        found.append(joined([_centred(a[i], b[i], c[i], size[0], step, outputs) for a, b, c, size, step in maps]))
    return found


def _centred(
    logits: Array, distances: Array, centers: Array, size: float, stride: tuple[int, int], outputs: Outputs
) -> Detections:
    """Return one level's candidates in one image."""
    # centredness is at most 1, so class scores below the square of the minimum score can be skipped
    classes, rows, columns = np.nonzero(logits >= logit(outputs.least**2))
    scores = np.sqrt(sigmoid(logits[classes, rows, columns]) * sigmoid(centers[0, rows, columns]))
    enough = scores >= outputs.least
    found = Detections(np.stack([rows, columns], axis=1)[enough], scores[enough], classes[enough])
    best = highest(found, int(outputs.note.get("top_k", TOP_K)))
    rows, columns = best.boxes.T
    middle = np.stack([columns * stride[1], rows * stride[0]], axis=1).astype(np.float32)
    far = distances[:, rows, columns].T.astype(np.float32) * np.float32(size)
    return _plain(np.concatenate([middle - far[:, :2], middle + far[:, 2:]], axis=1), best)


def _plain(boxes: Array, best: Detections) -> Detections:
    """Return candidates as float64, without those with NaN in the box (a NaN is never a sufficient score)."""
    kept = ~np.isnan(boxes).any(axis=1)
    return Detections(boxes[kept].astype(np.float64), best.scores[kept].astype(np.float64), best.classes[kept])


def _levels(outputs: Outputs, kinds: int, needs: str) -> list[tuple[Array, ...]]:
    """Return the maps by kind, one per level."""
    count = len(outputs.noted("sizes"))
    arrays = outputs.arrays
    if len(arrays) != kinds * count or any(one.ndim != 4 or len(one) != outputs.samples for one in arrays):
        raise refuse(outputs, f"{needs}, of {count} levels")
    return [arrays[kind * count : (kind + 1) * count] for kind in range(kinds)]


def _strides(outputs: Outputs, logits: tuple[Array, ...]) -> list[tuple[int, int]]:
    """Return the vertical and horizontal stride of each level in pixels of the input.

    As in torchvision: the input's size over the map's, rounded down. An open size follows from the finest map, as
    inputs are padded to a multiple of its stride.
    """
    finest = int(outputs.noted("stride"))
    height, width = outputs.size or tuple(finest * side for side in logits[0].shape[2:])
    return [(height // one.shape[2], width // one.shape[3]) for one in logits]


LAYOUTS = (
    Layout("retinanet", RETINANET_NEEDS, read_retinanet, clipped=True, takes_logits=True),
    Layout("fcos", FCOS_NEEDS, read_fcos, clipped=True, takes_logits=True),
)
