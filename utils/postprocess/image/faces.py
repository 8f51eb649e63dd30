"""Decoding of CenterFace's maps: boxes, scores and five points of faces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine import Array, InputError
from utils.postprocess.image.nms import Detections, non_maximum_suppression
from utils.preprocess.image.letterbox import Geometry, to_image

POINTS = 5
"""Points of a face: the eye at the left of the image, the right one, nose, left and right corner of the mouth."""

HEADS = {"heatmap": 1, "scale": 2, "offset": 2, "landmarks": 2 * POINTS}
"""Output maps of a model, N x C x H/4 x W/4, in this order, and their channels."""

STRIDE = 4
"""Pixels of the input per cell of the maps, along each axis."""

MOST = 750
"""Maximum faces in an image."""

LARGEST = 16.0
"""Maximum logarithm of a side in cells; larger boxes are dropped."""


@dataclass(frozen=True)
class Faces:
    """Faces of one image, highest score first.

    Attributes:
        boxes: n x 4 float32: left, top, right and bottom in pixels of the image, clipped to it.
        scores: n float32, 0 to 1.
        landmarks: n x 5 x 2 float32: x and y of :data:`POINTS` points in pixels of the image, not clipped.
    """

    boxes: Array
    scores: Array
    landmarks: Array

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def classes(self) -> Array:
        """Class 0 for each face, n int64, for metrics of detection."""
        return np.zeros(len(self.scores), np.int64)


def decode_faces(
    outputs: Sequence[Array], geometries: Sequence[Geometry], threshold: float, iou: float, most: int = MOST
) -> list[Faces]:
    """Return the faces of each image; at most ``most``, by score.

    A cell in row r and column c of the maps with a heat of at least the threshold is a candidate (CenterFace, Xu et al.
    2020, section 3): ``exp`` of the scale is the height and width in cells, the centre is at (c + offset + 1/2) cells,
    and the points are relative to the sides, from the left upper corner. Every pair is y first. Candidates with NaN or
    infinite sizes are dropped. Of candidates that overlap by more than ``iou``, the one with the highest score is kept.
    ``outputs`` are :data:`HEADS` in this order, N x C x h x w, of any floating-point dtype. Raises InputError if they
    have other shapes.
    """
    maps = _checked(outputs, len(geometries))
    return [
        _faces([one[place] for one in maps], geometry, threshold, iou, most)
        for place, geometry in enumerate(geometries)
    ]


def _faces(maps: Sequence[Array], geometry: Geometry, threshold: float, iou: float, most: int) -> Faces:
    """Return the faces of one image with maps C x h x w."""
    heat = np.asarray(maps[0][0])
    rows, columns = np.nonzero(heat >= threshold)
    scores = heat[rows, columns].astype(np.float64)
    scale, offset, points = (one[:, rows, columns].astype(np.float64).T for one in maps[1:])
    logarithms = np.where(scale <= LARGEST, scale, np.nan)  # NaN stays NaN
    sides = np.exp(logarithms)[:, ::-1] * STRIDE  # width, height
    middle = (np.stack([columns, rows], axis=1) + offset[:, ::-1] + 0.5) * STRIDE
    starts = middle - sides / 2
    places = points.reshape(-1, POINTS, 2)[..., ::-1] * sides[:, None] + starts[:, None]
    boxes = np.concatenate([starts, starts + sides], axis=1)
    usable = np.isfinite(boxes).all(axis=1) & np.isfinite(places).all(axis=(1, 2))
    boxes, scores, places = boxes[usable], scores[usable], places[usable]
    boxes = to_image(boxes, geometry)
    # the indices of the candidates serve as classes, to find the points of those that are kept
    numbers, together = np.arange(len(scores)), np.zeros(len(scores), np.int64)
    kept = non_maximum_suppression(Detections(boxes, scores, numbers), iou, most, together)
    start, step = np.array([geometry.left, geometry.top]), np.array([geometry.across, geometry.down])
    landmarks = (places[kept.classes] - start) / step
    return Faces(kept.boxes.astype(np.float32), kept.scores.astype(np.float32), landmarks.astype(np.float32))


def _checked(outputs: Sequence[Array], samples: int) -> list[Array]:
    """Return the maps. Raises InputError if their shapes are not those of :data:`HEADS`."""
    maps = [np.asarray(one) for one in outputs]
    cells = maps[0].shape[2:] if maps and maps[0].ndim == 4 else ()
    wanted = [(samples, channels, *cells) for channels in HEADS.values()]
    if not cells or [one.shape for one in maps] != wanted:
        shapes = ", ".join(str(list(one.shape)) for one in maps) or "nothing"
        heads = ", ".join(f"{name} (N x {channels} x h x w)" for name, channels in HEADS.items())
        raise InputError(f"the outputs are {shapes} for {samples} samples; faces need {heads}")
    return maps
