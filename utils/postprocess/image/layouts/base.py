"""Definition of a layout of outputs, and the steps shared by several layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine import Array, InputError, ModelError
from utils.postprocess.image.nms import Detections

NOTE = "detection"
"""Metadata key of an export for the layout of its outputs and the parameters of its decoding, a JSON object."""


@dataclass(frozen=True)
class Outputs:
    """Outputs of a model for some images, and the parameters of their decoding.

    Attributes:
        names, arrays: of its outputs, in their order.
        samples: number of images.
        places: samples x 4: position of each image in the input: left, top, width, height in pixels of the input.
        size: height and width of the input in pixels; ``None`` if open.
        labels: number of the model's labels; ``None`` if none are stored.
        note: metadata of the export under :data:`NOTE`.
        least: minimum score of candidates.
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
        """Shapes of the outputs."""
        return tuple(array.shape for array in self.arrays)

    def noted(self, name: str) -> Any:
        """Return a value of the note. Raises ModelError if it is not stored."""
        if name not in self.note:
            raise ModelError(f"metadata {NOTE!r} lacks {name!r}, which this layout needs; export the model again")
        return self.note[name]


Reader = Callable[[Outputs], list[Detections]]


@dataclass(frozen=True)
class Layout:
    """Layout of a detector's outputs.

    Attributes:
        name: used by ``--layout`` and an export's note.
        shapes: description of the outputs.
        read: returns the candidates of each image, boxes in pixels of the input; those with NaN are dropped. Raises
            InputError if the outputs have other shapes.
        fits: is true for outputs of this layout, by their names and shapes; ``None``: it cannot be recognised.
        final: the candidates are the result, without suppression.
        clipped: boxes are clipped to the image before the suppression, not after it.
        box_format: of the boxes in the outputs (:data:`~utils.postprocess.image.box_forms.BOX_FORMATS`).
        rows: changes each row of scores; ``None`` if scores are not in rows.
        scores: returns the index of the output with the scores, and some of those of the first image, if they are
            unchanged probabilities; ``None`` in a layout that computes them from other numbers.
        takes_logits: reading applies a sigmoid or a softmax to the scores.
    """

    name: str
    shapes: str
    read: Reader
    fits: Callable[[Outputs], object] | None = None
    final: bool = False
    clipped: bool = False
    box_format: str = "xyxy"
    rows: Callable[[Outputs, Callable[[Array], Array]], tuple[Array, ...]] | None = None
    scores: Callable[[Outputs], tuple[int, Array] | None] | None = None
    takes_logits: bool = False


def pairs(boxes: Array, scores: Array, outputs: Outputs, top_k: int | None = None) -> Detections:
    """Return one image's candidates: its pairs of box and class with a sufficient score, at most ``top_k`` per class.

    ``boxes`` are Q x 4 in pixels of the input, ``scores`` Q x C.
    """
    boxes, scores = np.asarray(boxes, np.float64), np.asarray(scores)
    enough = (scores >= outputs.least) & ~np.isnan(boxes).any(axis=1, keepdims=True)
    if outputs.best_class and scores.shape[1] > 1:
        best = np.where(np.isnan(scores), -np.inf, scores).argmax(axis=1)
        enough &= best[:, None] == np.arange(scores.shape[1])
    queries, classes = np.nonzero(enough)
    found = Detections(boxes[queries], scores[queries, classes].astype(np.float64), classes)
    return found if top_k is None else highest_per_class(found, top_k)


def highest_per_class(found: Detections, top_k: int) -> Detections:
    """Return at most ``top_k`` detections of each class, by score."""
    order = np.lexsort((-found.scores, found.classes))
    sorted_classes = found.classes[order]
    start = np.searchsorted(sorted_classes, sorted_classes)
    kept = order[np.arange(len(order)) - start < top_k]
    return taken(found, kept)


def highest(found: Detections, top_k: int) -> Detections:
    """Return at most ``top_k`` detections, highest score first."""
    return taken(found, np.argsort(-found.scores, kind="stable")[:top_k])


def taken(found: Detections, places: Array) -> Detections:
    """Return the detections at these indices."""
    return Detections(found.boxes[places], found.scores[places], found.classes[places])


def joined(parts: Sequence[Detections]) -> Detections:
    """Return all detections of several parts of an image's output."""
    return Detections(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def without_nan(found: Detections) -> Detections:
    """Remove detections with NaN in the score or the box."""
    return taken(found, np.flatnonzero(~np.isnan(found.scores) & ~np.isnan(found.boxes).any(axis=1)))


def sufficient(found: Detections, outputs: Outputs) -> Detections:
    """Remove detections with NaN or with a score below the minimum."""
    return without_nan(taken(found, np.flatnonzero(found.scores >= outputs.least)))


def corners(boxes: Array) -> Array:
    """Convert ... x 4 boxes from centre, width and height to left, top, right, bottom."""
    half = boxes[..., 2:] / 2
    return np.concatenate([boxes[..., :2] - half, boxes[..., :2] + half], axis=-1)


def sigmoid(values: Array) -> Array:
    """Return the logistic function of values, without overflow, in float32 at least."""
    values = np.asarray(values, np.result_type(values, np.float32))
    shrunk = np.exp(-np.abs(values))
    found: Array = np.where(values >= 0, 1 / (1 + shrunk), shrunk / (1 + shrunk))
    return found


def softmax(values: Array) -> Array:
    """Return the softmax along the last axis, in float32 at least."""
    values = np.asarray(values, np.result_type(values, np.float32))
    grown = np.exp(values - values.max(axis=-1, keepdims=True))
    found: Array = grown / grown.sum(axis=-1, keepdims=True)
    return found


def logit(score: float) -> float:
    """Return the inverse of the logistic function."""
    with np.errstate(divide="ignore"):
        return float(np.log(score) - np.log1p(-score))


SEEN = 1024
"""Number of boxes of a batch's first image whose scores are checked."""


def seen(scores: Array, axis: int) -> Array:
    """Return about :data:`SEEN` boxes' scores of one image, evenly spaced along the axis of the boxes."""
    step = max(1, scores.shape[axis] // SEEN)
    return scores[::step] if axis == 0 else scores[:, ::step]


def refuse(outputs: Outputs, needs: str) -> InputError:
    """Return the error for outputs that do not have a layout's shapes."""
    found = ", ".join(f"{name} {list(array.shape)}" for name, array in zip(outputs.names, outputs.arrays, strict=False))
    return InputError(f"the outputs are {found} for {outputs.samples} samples; this layout needs {needs}")
