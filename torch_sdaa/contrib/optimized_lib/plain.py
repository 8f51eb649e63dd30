"""The library's operators as PyTorch operators: many launches if called on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Nms = Callable[[Tensor, Tensor, float], Tensor]
"""Returns the indices of the kept boxes, from boxes, scores and the maximum overlap."""


def shuffle(parts: Sequence[Tensor], groups: int) -> Tensor:
    """Return the concatenated parts with channels taken from the groups in turn (ShuffleNet's channel shuffle)."""
    whole = parts[0] if len(parts) == 1 else torch.cat(list(parts), 1)
    batch, channels, *rest = whole.shape
    return whole.reshape(batch, groups, channels // groups, *rest).transpose(1, 2).reshape(batch, channels, *rest)


def pairwise_iou(left: Tensor, right: Tensor) -> Tensor:
    """Return intersection over union of N boxes (x1, y1, x2, y2) with M; 0 for disjoint boxes."""
    areas = [(boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) for boxes in (left, right)]
    sides = torch.min(left[:, None, 2:], right[:, 2:]) - torch.max(left[:, None, :2], right[:, :2])
    overlap = sides.clamp(min=0).prod(2)
    return torch.where(overlap > 0, overlap / (areas[0][:, None] + areas[1] - overlap), overlap.new_zeros(1))


def fast_rcnn_inference(
    boxes: Tensor,
    scores: Tensor,
    height: int,
    width: int,
    score_thresh: float,
    nms_thresh: float,
    topk: int,
    limit: int,
    nms: Nms | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the detected boxes of an image, with score, class and index of the proposal.

    Args:
        boxes: N x 4 for each class, or N x 4 for all. scores: N x classes and the background, which is ignored.
        limit: number of coordinates above which classes are suppressed one by one, as in torchvision.
        nms: suppresses the boxes of one class; default: :func:`kept`.
    """
    finite = boxes.isfinite().all(1) & scores.isfinite().all(1)
    if not finite.all():
        boxes, scores = boxes[finite], scores[finite]
    scores = scores[:, :-1]
    most = torch.tensor([width, height, width, height], dtype=boxes.dtype).to(boxes.device)
    boxes = torch.minimum(boxes.reshape(-1, 4).clamp(min=0), most).view(-1, boxes.shape[1] // 4, 4)
    chosen = scores > score_thresh
    rows = chosen.nonzero()
    boxes = boxes[rows[:, 0], 0] if boxes.shape[1] == 1 else boxes[chosen]
    scores, classes = scores[chosen], rows[:, 1]
    keep = _kept_by_class(boxes.float(), scores, classes, nms_thresh, limit, nms or kept)
    keep = keep[:topk] if topk >= 0 else keep
    return boxes[keep], scores[keep], classes[keep], rows[keep, 0]


def _kept_by_class(boxes: Tensor, scores: Tensor, classes: Tensor, most: float, limit: int, nms: Nms) -> Tensor:
    if boxes.numel() <= limit:  # all at once: boxes of different classes are moved apart
        if not boxes.numel():
            return torch.empty(0, dtype=torch.int64, device=boxes.device)
        offsets = classes.to(boxes) * (boxes.max() + torch.tensor(1).to(boxes))
        return nms(boxes + offsets[:, None], scores, most)
    mask = torch.zeros_like(scores, dtype=torch.bool)
    for one in classes.unique():
        places = torch.where(classes == one)[0]
        mask[places[nms(boxes[places], scores[places], most)]] = True
    places = torch.where(mask)[0]
    return places[scores[places].sort(descending=True)[1]]


def kept(boxes: Tensor, scores: Tensor, most: float) -> Tensor:
    """Return the indices of the boxes that no better box overlaps by more than ``most``, best first."""
    order = scores.sort(descending=True, stable=True)[1]
    x1, y1, x2, y2 = boxes[order].unbind(1)
    areas = (x2 - x1) * (y2 - y1)
    alive = torch.ones(len(order), dtype=torch.bool)
    out = []
    for k in range(len(order)):
        if not alive[k]:
            continue
        out.append(k)
        wide = (torch.minimum(x2[k], x2) - torch.maximum(x1[k], x1)).clamp(min=0)
        high = (torch.minimum(y2[k], y2) - torch.maximum(y1[k], y1)).clamp(min=0)
        overlap = wide * high
        # The limit is a double, as in torchvision; rounded to the boxes' dtype, decisions near it would differ.
        alive &= ~((overlap / (areas[k] + areas - overlap)).double() > most)
    return order[torch.tensor(out, dtype=torch.int64)]
