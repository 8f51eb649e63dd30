"""The objects of images as inputs of a model of one object, and its points as objects of the images."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from PIL import Image

from engine import Array
from utils.postprocess.image.poses import Poses, empty, object_score
from utils.preprocess.image.person_crops import Crop, crop_of, cropped


class Crops(NamedTuple):
    """Context of an image for a model of one object: its objects in the rows of the input."""

    crops: tuple[Crop, ...]
    asked: bool = True  # False: the image has no object, and its row is not an answer


def cut(image: Image.Image, boxes: Array | None, size: tuple[int, int], scale: float) -> tuple[list[Array], Crops]:
    """Return the crops of an image's objects, each height x width x 3 uint8, and its context.

    ``boxes`` are N x 4; ``None`` makes the whole image one object, and no boxes a crop that is not an answer, because a
    call needs a row.
    """
    whole = np.array([[0, 0, *image.size]], np.float64)
    found = whole if boxes is None or not len(boxes) else boxes
    crops = [crop_of(box, size, scale) for box in found]
    return [cropped(image, crop, size) for crop in crops], Crops(tuple(crops), boxes is None or len(boxes) > 0)


def of_crops(context: Crops, points: Array, sure: Array) -> Poses:
    """Return the objects of an image from the points in its crops, N x K x 2 and N x K; without those with NaN."""
    kept = np.flatnonzero(np.isfinite(points).all(axis=(1, 2))) if context.asked else np.zeros(0, np.int64)
    if not len(kept):
        return empty(points.shape[1])
    boxes = np.array([context.crops[row].box for row in kept], np.float64)
    places = np.array([context.crops[row].in_image(points[row]) for row in kept])
    found = Poses(boxes, object_score(sure[kept]), np.zeros(len(kept), np.int64), places, sure[kept])
    return found.at(np.argsort(-found.scores, kind="stable"))
