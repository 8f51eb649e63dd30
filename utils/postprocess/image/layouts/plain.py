"""Boxes and scores without further decoding: the layout of the zoo's own small detectors."""

from __future__ import annotations

from collections.abc import Callable

from engine import Array
from utils.postprocess.image.layouts.base import Layout, Outputs, pairs, refuse, seen
from utils.postprocess.image.nms import Detections

NEEDS = "boxes N x Q x 4 and scores N x Q x C"


def _ordered(outputs: Outputs) -> tuple[Array, Array]:
    boxes, scores = outputs.arrays[::-1] if outputs.names == ("scores", "boxes") else outputs.arrays
    return boxes, scores


def fits(outputs: Outputs) -> bool:
    """Return whether there are two outputs with shapes of boxes and scores, and no name of another layout."""
    if len(outputs.arrays) != 2 or "logits" in outputs.names:
        return False
    boxes, scores = _ordered(outputs)
    return scores.ndim == 3 and len(scores) == outputs.samples and boxes.shape == (*scores.shape[:2], 4)


def read(outputs: Outputs) -> list[Detections]:
    """Return every pair of box and class with a sufficient score."""
    if not fits(outputs):
        raise refuse(outputs, NEEDS)
    return [pairs(*one, outputs) for one in zip(*_ordered(outputs), strict=True)]


def change_scores(outputs: Outputs, change: Callable[[Array], Array]) -> tuple[Array, ...]:
    """Return the outputs with every row of scores changed."""
    if not fits(outputs):
        raise refuse(outputs, NEEDS)
    boxes, scores = _ordered(outputs)
    changed = boxes, change(scores)
    return changed[::-1] if outputs.names == ("scores", "boxes") else changed


def _scores(outputs: Outputs) -> tuple[int, Array] | None:
    """Return some scores of the first image for :attr:`Layout.scores`."""
    place = 0 if outputs.names == ("scores", "boxes") else 1
    return (place, seen(_ordered(outputs)[1][0], 0)) if fits(outputs) else None


LAYOUTS = (Layout("boxes", f"{NEEDS}: corners in pixels of the input", read, fits, rows=change_scores, scores=_scores),)
