"""What a layout of outputs is, and the steps that several of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine import Array, InputError, ModelError
from utils.postprocess.image.nms import Detections

NOTE = "detection"
"""The key under which an export stores the layout of its outputs and what decoding them needs, a JSON object."""


@dataclass(frozen=True)
class Outputs:
    """What a model answered for some images, and what is known about it.

    Attributes:
        names, arrays: of its outputs, in their order.
        samples: how many images.
        places: samples x 4: where each image lies in the input: left, top, width, height in pixels of the input.
        size: height and width of the input in pixels; ``None`` where the batch decided.
        labels: how many classes the model has labels for; ``None`` where none are stored.
        note: what the export stored under :data:`NOTE`.
        least: candidates below this score are left out.
        best_class: a box is a candidate of its best class only, not of every class above ``least``.
    """

    names: tuple[str, ...]
    arrays: tuple[Array, ...]
    samples: int
    places: Array
    size: tuple[int, int] | None = None
    labels: int | None = None
    note: Mapping[str, Any] = field(default_factory=dict)
    least: float = 0.0
    best_class: bool = False

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the outputs."""
        return tuple(array.shape for array in self.arrays)

    def noted(self, name: str) -> Any:
        """Return a value of the note.

        Raises:
            ModelError: it is not stored.
        """
        if name not in self.note:
            raise ModelError(f"metadata {NOTE!r} lacks {name!r}, which this layout needs; export the model again")
        return self.note[name]


Reader = Callable[[Outputs], list[Detections]]


@dataclass(frozen=True)
class Layout:
    """How a model's outputs say what is where.

    Attributes:
        name: as ``--layout`` and an export's note have it.
        shapes: the outputs in words, for people.
        read: the candidates of each image, boxes in pixels of the input; what has NaN is none.
        fits: says whether outputs have this layout, by their names and shapes; ``None``: nothing in them tells.
        final: what is read is the answer: nothing is suppressed.
        clipped: boxes are clipped to the image before the suppression, not after it.
        box_format: of the boxes in the outputs (:data:`~utils.postprocess.image.box_forms.BOX_FORMATS`).
        rows: changes each row of scores; ``None`` where scores do not lie in rows.
        scores: the place of the output with the scores, and some of those of the first image, where they are
            probabilities as they are; ``None`` in a layout that makes them of other numbers.
        takes_logits: reading applies a sigmoid or a softmax to what is no box.
    """

    name: str
    shapes: str
    read: Reader
    fits: Callable[[Outputs], bool] | None = None
    final: bool = False
    clipped: bool = False
    box_format: str = "xyxy"
    rows: Callable[[Outputs, Callable[[Array], Array]], tuple[Array, ...]] | None = None
    scores: Callable[[Outputs], tuple[int, Array] | None] | None = None
    takes_logits: bool = False


def pairs(boxes: Array, scores: Array, outputs: Outputs, top_k: int | None = None) -> Detections:
    """Return one image's candidates: its pairs of box and class with a sufficient score.

    Args:
        boxes: Q x 4 in pixels of the input.
        scores: Q x C.
        outputs: says the least score, and whether only a box's best class counts.
        top_k: as many of each class at most, the surest; ``None``: all.
    """
    boxes, scores = np.asarray(boxes, np.float64), np.asarray(scores)
    enough = (scores >= outputs.least) & ~np.isnan(boxes).any(axis=1, keepdims=True)
    if outputs.best_class and scores.shape[1] > 1:
        best = np.where(np.isnan(scores), -np.inf, scores).argmax(axis=1)
        enough &= best[:, None] == np.arange(scores.shape[1])
    queries, classes = np.nonzero(enough)
    found = Detections(boxes[queries], scores[queries, classes].astype(np.float64), classes)
    return found if top_k is None else surest_of_classes(found, top_k)


def surest_of_classes(found: Detections, top_k: int) -> Detections:
    """Return at most ``top_k`` detections of each class, the surest."""
    order = np.lexsort((-found.scores, found.classes))
    sorted_classes = found.classes[order]
    start = np.searchsorted(sorted_classes, sorted_classes)
    kept = order[np.arange(len(order)) - start < top_k]
    return taken(found, kept)


def surest(found: Detections, top_k: int) -> Detections:
    """Return at most ``top_k`` detections, the surest first."""
    return taken(found, np.argsort(-found.scores, kind="stable")[:top_k])


def taken(found: Detections, places: Array) -> Detections:
    """Return the detections at these places."""
    return Detections(found.boxes[places], found.scores[places], found.classes[places])


def joined(parts: Sequence[Detections]) -> Detections:
    """Return all detections of several parts of an image's output."""
    return Detections(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def without_nan(found: Detections) -> Detections:
    """Leave out what has NaN as its score or in its box."""
    return taken(found, np.flatnonzero(~np.isnan(found.scores) & ~np.isnan(found.boxes).any(axis=1)))


def corners(boxes: Array) -> Array:
    """Return ... x 4 boxes given by centre, width and height as left, top, right, bottom."""
    half = boxes[..., 2:] / 2
    return np.concatenate([boxes[..., :2] - half, boxes[..., :2] + half], axis=-1)


def sigmoid(values: Array) -> Array:
    """Return the logistic function of values, without an overflow, in float32 at least."""
    values = np.asarray(values, np.result_type(values, np.float32))
    shrunk = np.exp(-np.abs(values))
    shares: Array = np.where(values >= 0, 1 / (1 + shrunk), shrunk / (1 + shrunk))
    return shares


def softmax(values: Array) -> Array:
    """Return the softmax along the last axis, in float32 at least."""
    values = np.asarray(values, np.result_type(values, np.float32))
    grown = np.exp(values - values.max(axis=-1, keepdims=True))
    shares: Array = grown / grown.sum(axis=-1, keepdims=True)
    return shares


def logit(score: float) -> float:
    """Return the value whose logistic function is ``score``."""
    with np.errstate(divide="ignore"):
        return float(np.log(score) - np.log1p(-score))


SEEN = 1024
"""Boxes of a batch's first image whose scores are looked at before they are read."""


def seen(scores: Array, axis: int) -> Array:
    """Return at most about :data:`SEEN` boxes' scores of one image, from all over it; boxes lie on this axis."""
    step = max(1, scores.shape[axis] // SEEN)
    return scores[::step] if axis == 0 else scores[:, ::step]


def refuse(outputs: Outputs, needs: str) -> InputError:
    """Return the error of outputs that do not have a layout's shapes."""
    found = ", ".join(f"{name} {list(array.shape)}" for name, array in zip(outputs.names, outputs.arrays, strict=False))
    return InputError(f"the outputs are {found} for {outputs.samples} samples; this layout needs {needs}")
