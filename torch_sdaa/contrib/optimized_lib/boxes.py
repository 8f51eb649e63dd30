"""Boxes of detectors: overlaps, and selection of detections; one launch each."""

from __future__ import annotations

from operator import index
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine import DataError
from torch_sdaa.contrib.optimized_lib import kernels  # noqa: F401 -- defines the operators

_TORCHVISION_LIMITS = {"cpu": 4000}
_LIMIT_OF_DEVICES = 100_000
"""Number of box coordinates from which torchvision suppresses boxes class by class."""


class Found(NamedTuple):
    """Detections of an image, with the names of detectron2's ``Instances``."""

    pred_boxes: Tensor
    scores: Tensor
    pred_classes: Tensor


class _Iou(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor) -> Tensor:
        ctx.save_for_backward(left, right)
        made: Tensor = torch.ops.sdaa.pairwise_iou(left, right)
        return made

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> Any:
        return torch.ops.sdaa.pairwise_iou_backward(grad.contiguous(), *ctx.saved_tensors)


def pairwise_iou(boxes1: Any, boxes2: Any) -> Tensor:
    """Return the overlaps of N boxes with M: an N x M tensor, 0 for disjoint boxes.

    Args:
        boxes1, boxes2: tensors of rows (x1, y1, x2, y2), or objects with one as ``tensor`` (detectron2's ``Boxes``).

    Raises:
        DataError: an argument has another type or shape.
    """
    left, right = (
        _rows(getattr(boxes, "tensor", boxes), name) for boxes, name in ((boxes1, "boxes1"), (boxes2, "boxes2"))
    )
    made: Tensor = _Iou.apply(left, right)
    return made


def fast_rcnn_inference_single_image(
    boxes: Tensor,
    scores: Tensor,
    image_shape: tuple[int, int],
    score_thresh: float,
    nms_thresh: float,
    topk_per_image: int,
) -> tuple[Found, Tensor]:
    """Return the boxes found in an image, best first, and the indices of their proposals, like detectron2.

    Proposals with non-finite numbers are skipped and not counted. Boxes and scores keep their gradients.

    Args:
        boxes: N x 4, or N x (4 classes). scores: N x (classes + 1), with the background last.
        image_shape: height and width. score_thresh: minimum score, exclusive. nms_thresh: maximum overlap with a better
            box of the class. topk_per_image: maximum number of boxes; negative: all.

    Raises:
        DataError: shapes do not match.
    """
    if not (isinstance(boxes, Tensor) and isinstance(scores, Tensor)):
        kinds = f"{type(boxes).__name__} and {type(scores).__name__}"
        raise DataError(f"fast_rcnn_inference_single_image: boxes and scores must be tensors, not {kinds}")
    classes = scores.shape[1] - 1 if scores.dim() == 2 else 0
    if classes < 1 or boxes.dim() != 2 or len(boxes) != len(scores) or boxes.shape[1] not in (4, 4 * classes):
        raise DataError(
            f"fast_rcnn_inference_single_image: boxes {tuple(boxes.shape)} and scores {tuple(scores.shape)} do not "
            "match: N x 4 or N x (4 classes), and N x (classes + 1)"
        )
    limit = _TORCHVISION_LIMITS.get(boxes.device.type, _LIMIT_OF_DEVICES)
    try:
        height, width = map(index, image_shape)
    except (TypeError, ValueError) as error:
        message = f"fast_rcnn_inference_single_image: image_shape must be two ints (height, width), not {image_shape!r}"
        raise DataError(message) from error
    kept, points, labels, rows = torch.ops.sdaa.fast_rcnn_inference(
        boxes.detach(), scores.detach(), height, width, score_thresh, nms_thresh, topk_per_image, limit
    )
    if torch.is_grad_enabled() and (boxes.requires_grad or scores.requires_grad):
        kept, points = _with_gradients(boxes, scores, rows, labels, (height, width))
    return Found(kept, points, labels), rows


def _with_gradients(
    boxes: Tensor, scores: Tensor, rows: Tensor, labels: Tensor, image_shape: tuple[int, int]
) -> tuple[Tensor, Tensor]:
    """Return the detected boxes and scores, computed from the arguments with gradients."""
    finite = boxes.detach().isfinite().all(1) & scores.detach().isfinite().all(1)
    boxes, scores = boxes[finite].view(-1, boxes.shape[1] // 4, 4), scores[finite]
    taken = boxes[rows, labels if boxes.shape[1] > 1 else torch.zeros_like(labels)]
    height, width = image_shape
    sides = [side.clamp(0, most) for side, most in zip(taken.unbind(1), (width, height) * 2, strict=True)]
    return torch.stack(sides, 1), scores[rows, labels]


def _rows(boxes: Any, name: str) -> Tensor:
    if isinstance(boxes, Tensor) and boxes.dim() == 2 and boxes.shape[1] == 4:
        return boxes
    found = tuple(boxes.shape) if isinstance(boxes, Tensor) else type(boxes).__name__
    raise DataError(f"pairwise_iou: {name} must be a tensor of N x 4 (x1, y1, x2, y2), not {found}")
