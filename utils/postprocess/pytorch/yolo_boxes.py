"""Box functions of YOLO's scripts: corners and centres, overlaps, and conversion from the input to the image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from engine import Array, ConfigError, InputError
from utils.postprocess.image.nms import overlaps
from utils.preprocess.image.letterbox import Geometry, fit, to_image
from utils.torch_array import as_array, like

Placed: TypeAlias = "tuple[Sequence[float], Sequence[float]]"
"""Pixels of the input per pixel of the image, vertical and horizontal, and position of the image: left and top."""


def xywh2xyxy(x: Any) -> Any:
    """Convert ... x 4 or more columns from centre x, centre y, width, height to left, top, right, bottom.

    Returns a new array or tensor of the same float dtype; float32 for integers. Raises InputError for fewer columns.
    """
    given = _columns(x, "boxes")
    made = given.copy()
    half = given[..., 2:4] / 2
    made[..., :2], made[..., 2:4] = given[..., :2] - half, given[..., :2] + half
    return like(made, x)


def xyxy2xywh(x: Any) -> Any:
    """Convert ... x 4 or more columns from left, top, right, bottom to centre x, centre y, width, height.

    Inverse of :func:`xywh2xyxy`, with the same argument, result and error.
    """
    given = _columns(x, "boxes")
    made = given.copy()
    made[..., :2] = (given[..., :2] + given[..., 2:4]) / 2
    made[..., 2:4] = given[..., 2:4] - given[..., :2]
    return like(made, x)


def box_iou(box1: Any, box2: Any) -> Any:
    """Return the intersections over union of N x 4 and M x 4 boxes (left, top, right, bottom), N x M; 0 without area.

    Returns a tensor if either is one, else an array, of their float dtype; float32 for integers. Raises InputError if
    the shapes are not those of boxes.
    """
    one, two = _columns(box1, "box1"), _columns(box2, "box2")
    if one.ndim != 2 or two.ndim != 2 or one.shape[1] != 4 or two.shape[1] != 4:
        raise InputError(f"boxes of shapes {one.shape} and {two.shape} cannot be compared; pass N x 4 and M x 4")
    return like(overlaps(one, two).astype(np.result_type(one, two)), box1, box2)


def scale_boxes(
    img1_shape: Sequence[int], boxes: Any, img0_shape: Sequence[int], ratio_pad: Placed | None = None
) -> Any:
    """Convert boxes from pixels of an input to pixels of the image in it, clipped to the image, in place; return them.

    Args:
        img1_shape: height and width of the input in pixels. img0_shape: of the image.
        boxes: ... x 4 or more: left, top, right, bottom first. Changed in place.
        ratio_pad: position of the image, from a data loader; ``None``: letterboxed, as by ``preprocess``.

    Raises ConfigError if a shape is invalid, and InputError if there are fewer than four columns.
    """
    corners = _columns(boxes, "boxes")[..., :4]
    back = to_image(corners, _geometry(img1_shape, img0_shape, ratio_pad))
    boxes[..., :4] = like(back.astype(corners.dtype), boxes)
    return boxes


def _geometry(size: Sequence[int], image: Sequence[int], ratio_pad: Placed | None) -> Geometry:
    """Return the position of an image of this height and width in an input of that height and width."""
    (height, width), (rows, columns) = (_sides(shape) for shape in (image, size))
    if ratio_pad is None:
        return fit(width, height, (rows, columns))
    (down, across), (left, top) = ratio_pad
    if min(down, across) <= 0:
        raise ConfigError(f"ratio_pad {ratio_pad} has a scale that is not positive; pass that of the loader")
    return Geometry(width, height, float(across), float(down), left, top)  # type: ignore[arg-type]  # may be halves


def _sides(shape: Sequence[int]) -> tuple[int, int]:
    """Return the first two numbers of a shape."""
    if len(shape) < 2:
        raise ConfigError(f"{tuple(shape)} is not a height and width in pixels")
    return int(shape[0]), int(shape[1])


def _columns(value: Any, what: str) -> Array:
    """Return rows of at least four floats."""
    found = as_array(value, what)
    if found.ndim < 1 or found.shape[-1] < 4:
        raise InputError(f"{what} of shape {found.shape} need at least four numbers along the last axis")
    return found if found.dtype.kind == "f" else found.astype(np.float32)
