"""The library's operators: each is one launch on the device, with the values of the plain functions.

The kernel is registered for the CPU; the device runs it on the same memory, like any operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from torch_sdaa.contrib.optimized_lib import plain

_library = torch.library.Library("sdaa", "FRAGMENT")


def _shuffled(parts: list[Tensor], groups: int, pieces: int) -> list[Tensor]:
    return [piece.contiguous() for piece in plain.shuffle(parts, groups).chunk(pieces, 1)]


def _unshuffled(pieces: list[Tensor], groups: int, sizes: list[int]) -> list[Tensor]:
    whole = pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1)
    batch, channels, *rest = whole.shape
    ordered = whole.reshape(batch, channels // groups, groups, *rest).transpose(1, 2).reshape(whole.shape)
    return [part.contiguous() for part in ordered.split(sizes, 1)]


def _iou_backward(grad: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        given = [boxes.detach().requires_grad_() for boxes in (left, right)]
        made = torch.autograd.grad(plain.pairwise_iou(*given), given, grad)
    return made[0], made[1]


def _fake_pieces(parts: list[Tensor], groups: int, pieces: int) -> list[Tensor]:
    batch, _, *rest = parts[0].shape
    width = sum(part.shape[1] for part in parts) // pieces
    return [parts[0].new_empty(batch, width, *rest) for _ in range(pieces)]


def _fake_parts(pieces: list[Tensor], groups: int, sizes: list[int]) -> list[Tensor]:
    batch, _, *rest = pieces[0].shape
    return [pieces[0].new_empty(batch, size, *rest) for size in sizes]


_BOXES = "Tensor boxes, Tensor scores, int height, int width, float score_thresh, float nms_thresh, int topk, int limit"
_OPERATORS: dict[str, tuple[str, Callable[..., Any], Callable[..., Any] | None]] = {
    "shuffle_channels": ("(Tensor[] parts, int groups, int pieces) -> Tensor[]", _shuffled, _fake_pieces),
    "unshuffle_channels": ("(Tensor[] pieces, int groups, int[] sizes) -> Tensor[]", _unshuffled, _fake_parts),
    "pairwise_iou": (
        "(Tensor left, Tensor right) -> Tensor",
        plain.pairwise_iou,
        lambda left, right: left.new_empty(len(left), len(right)),
    ),
    "pairwise_iou_backward": (
        "(Tensor grad, Tensor left, Tensor right) -> (Tensor, Tensor)",
        _iou_backward,
        lambda grad, left, right: (torch.empty_like(left), torch.empty_like(right)),
    ),
    "nms": ("(Tensor boxes, Tensor scores, float most) -> Tensor", plain.kept, None),
    "fast_rcnn_inference": (f"({_BOXES}) -> (Tensor, Tensor, Tensor, Tensor)", plain.fast_rcnn_inference, None),
}
"""Schema, kernel, and fake kernel; ``None`` if result shapes depend on values."""

for _name, (_schema, _kernel, _fake) in _OPERATORS.items():
    _library.define(_name + _schema)
    _library.impl(_name, _kernel, "CPU")
    if _fake is not None:
        torch.library.register_fake(f"sdaa::{_name}", _fake, lib=_library)
