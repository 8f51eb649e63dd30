"""What the library's operators compute, in PyTorch's own operators: many launches where it is called on the device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Nms = Callable[[Tensor, Tensor, float], Tensor]
"""From boxes, scores and the largest overlap to the numbers of the boxes that are kept."""


def shuffle(parts: Sequence[Tensor], groups: int) -> Tensor:
    """Return the parts as one tensor, its channels taken from the groups in turn (as ShuffleNet mixes them)."""
    whole = parts[0] if len(parts) == 1 else torch.cat(list(parts), 1)
    batch, channels, *rest = whole.shape
    return whole.reshape(batch, groups, channels // groups, *rest).transpose(1, 2).reshape(batch, channels, *rest)


def pairwise_iou(left: Tensor, right: Tensor) -> Tensor:
    """Return the overlap of each of N boxes (x1, y1, x2, y2) with each of M over their union; 0 where none is."""
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
    """Return the boxes that a detector found in an image, with score, class and number of the proposal.

    Args:
        boxes: N x 4 for each class, or N x 4 for all. scores: N x classes and the background, which is left out.
        limit: more numbers than that in the boxes, and classes are suppressed one by one, as torchvision does.
        nms: suppresses the boxes of one class; :func:`kept` where none is given.
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
    if boxes.numel() <= limit:  # all at once: boxes of another class are moved to where they meet none
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
    """Return the numbers of the boxes that no better one overlaps by more than ``most``, best first."""
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
        # the limit is a double, as in torchvision: rounded to the boxes' dtype it would decide otherwise beside it
        alive &= ~((overlap / (areas[k] + areas - overlap)).double() > most)
    return order[torch.tensor(out, dtype=torch.int64)]
