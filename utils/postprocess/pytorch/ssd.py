"""Historical interface of SSD's postprocessing and of its metric, that of Pascal VOC 2007."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from engine import Array, ConfigError, DataError, InputError
from tecoinfer_modelzoo.text import shape_text
from utils.postprocess.image.layouts.base import Outputs, pairs
from utils.postprocess.image.nms import Detections, non_maximum_suppression
from utils.torch_array import as_array, like

__all__ = ["IOU", "MOST", "Found", "Images", "get_metrics", "postprocess"]

IOU = 0.45
"""Maximum overlap of two boxes of a class; the one with the lower score is removed (Liu et al., "SSD", 2016)."""

MOST = 100
"""Maximum objects per image, as in the weights' published configuration (lufficc/SSD, ``TEST``), like :data:`IOU`."""

FAR = 4.0
"""Boxes may extend beyond the input; if half of their numbers exceed this, they are pixels."""

SLACK = 1e-2
"""Tolerance for probabilities outside 0..1, because float16 rounds."""


class Images(Protocol):
    """The part of a data set used by the metric, such as :class:`utils.datasets.ssd_dataset.VOCDataset`.

    Attributes:
        root_dir: its folder. names: of its classes, without the background.
        objects: per image its :class:`~utils.datasets.image.objects.Objects`.
    """

    root_dir: Path
    names: tuple[str, ...]
    objects: list[Any]

    def __len__(self) -> int: ...

    def size_of(self, index: int) -> tuple[int, int]:
        """Return width and height of an image in pixels."""
        ...


class Found(dict[str, Any]):
    """Objects of one image; every entry is an attribute too.

    Entries:
        boxes: N x 4 float32: left, top, right, bottom in pixels of the input, not clipped to it.
        labels: N int64, from 1 on; 0 is the background, which does not occur.
        scores: N float32, in descending order.
        img_width, img_height: of the input, for the boxes.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the result has no {name!r}; it has {', '.join(self)}") from None

    def resize(self, size: Sequence[float]) -> Found:
        """Return a copy with boxes in the pixels of an image of this width and height."""
        width, height = size
        boxes = as_array(self["boxes"], "boxes")
        scale = np.array([width / self["img_width"], height / self["img_height"]] * 2, np.float32)
        given = like((boxes * scale).astype(np.float32), self["boxes"])
        return Found({**self, "boxes": given, "img_width": width, "img_height": height})


def postprocess(
    prec: Sequence[Any], image_size: int | Sequence[int] = 320, conf_thres: float = 0.01, **_: object
) -> list[Found]:
    """Return per image its objects as :class:`Found`, of torch tensors for tensors.

    Candidates are the boxes with a sufficient score of each class except the background; of those that overlap more
    than :data:`IOU` the one with the highest score is kept, and at most :data:`MOST` of an image are returned.
    Candidates with NaN are dropped. Raises InputError if scores and boxes are inconsistent, or scores are not
    probabilities, and ConfigError if the size or threshold is invalid.

    Args:
        prec: scores N x A x C after the softmax, column 0 the background's; and boxes N x A x 4: left, top, right,
            bottom relative to the input. Arrays or torch tensors.
        image_size: side of the input in pixels, or its width and height.
        conf_thres: minimum score, 0 to 1.
    """
    if not isinstance(prec, (tuple, list)) or len(prec) != 2:
        raise InputError("pass (scores, boxes): N x A x C after the softmax, and N x A x 4 as shares of the input")
    scores, boxes = as_array(prec[0], "scores"), as_array(prec[1], "boxes")
    width, height = _size(image_size)
    if not 0 <= conf_thres <= 1:
        raise ConfigError(f"conf_thres {conf_thres} must be from 0 to 1")
    _check(scores, boxes)
    pixels = boxes.astype(np.float64) * np.array([width, height, width, height], np.float64)
    outputs = Outputs((), (scores,), len(scores), np.empty((0, 4)), least=conf_thres)
    found = []
    for box, score in zip(pixels, scores, strict=True):
        best = non_maximum_suppression(pairs(box, score[:, 1:], outputs), IOU, MOST)
        columns = (best.boxes.astype(np.float32), best.classes + 1, best.scores.astype(np.float32))
        boxes, labels, scores = (like(column, prec[0]) for column in columns)
        found.append(Found(boxes=boxes, labels=labels, scores=scores, img_width=width, img_height=height))
    return found


def _size(image_size: int | Sequence[int]) -> tuple[int, int]:
    """Return width and height."""
    sides = [image_size] if isinstance(image_size, (int, float)) else list(image_size)
    if len(sides) not in (1, 2) or not all(side >= 1 for side in sides):
        raise ConfigError(
            f"image_size {image_size} is not a size in pixels; pass the input's side, or width and height"
        )
    return sides[0], sides[-1]


def _check(scores: Array, boxes: Array) -> None:
    for name, array in (("scores", scores), ("boxes", boxes)):
        if array.dtype.kind != "f":
            raise InputError(f"{name} have dtype {array.dtype}; pass floats, arrays or torch tensors")
    if scores.ndim != 3 or scores.shape[2] < 2 or boxes.shape != (*scores.shape[:2], 4):
        raise InputError(
            f"scores are {shape_text(scores.shape)} and boxes {shape_text(boxes.shape)}; pass N x A x C, the "
            "background's column first, and N x A x 4"
        )
    real = scores[~np.isnan(scores)]
    if real.size and (real.min() < -SLACK or real.max() > 1 + SLACK):
        raise InputError(
            f"scores go from {real.min():g} to {real.max():g}: they are not probabilities; export the model with its "
            "softmax, or apply one to the scores"
        )
    if boxes.size and (typical := float(np.median(np.nan_to_num(np.abs(boxes.astype(np.float32)))))) > FAR:
        raise InputError(
            f"half of the boxes' numbers are above {typical:g}: not relative to the input; divide pixels by its "
            "width and height"
        )


def get_metrics(
    dataset: Images, predictions: Mapping[int, Any] | Sequence[Any], iteration: int | None = None
) -> dict[str, Any]:
    """Return the mean average precision by Pascal VOC 2007's rules: 11 recalls, an overlap of 0.5.

    A class's precision at each recall 0, 0.1, ..., 1 is the maximum at that or a higher recall, and the mean is over
    classes with objects that are not difficult (Everingham et al., 2010). Scripts print it as ``mAP@0.5~0.95``.
    ``predictions`` are results of :func:`postprocess` by the images' indices in the data set. Images without one are
    left out of the metric, with a warning. ``iteration``, of a training, is returned unchanged if given.

    Returns ``metrics``: a mapping with ``mAP`` and the average precision of every class by its name, 0 to 1; NaN for a
    class without objects. Raises DataError if predictions are missing, or the images with predictions have no objects,
    and InputError if a prediction's index is invalid, or its boxes, labels, scores or size are missing.
    """
    from utils.metrics.detection.metric import MeanAveragePrecision

    named = dict(predictions) if isinstance(predictions, Mapping) else dict(enumerate(predictions))
    given = {int(place): one for place, one in named.items()}
    strange = [place for place in given if not 0 <= place < len(dataset)]
    if strange:
        raise InputError(
            f"image_id {strange[0]} of a prediction is not in the data set of {len(dataset)}; pass the image_ids of "
            "the loader as keys"
        )
    if not given:
        raise DataError(f"{dataset.root_dir}: none of its {len(dataset)} images has a prediction; run the model first")
    if len(given) < len(dataset):
        warnings.warn(
            f"the metric is of {len(given)} of {len(dataset)} images: the others have no prediction", stacklevel=2
        )
    metric = MeanAveragePrecision(dataset.names, rules="voc2007")
    for place in sorted(given):
        metric.update([_in_image(given[place], place, dataset.size_of(place))], [dataset.objects[place]])
    classes = metric.per_class()
    figures = {"mAP": metric.compute()}
    figures |= {name: classes[name]["AP"] if name in classes else float("nan") for name in dataset.names}
    return {"metrics": figures} | ({} if iteration is None else {"iteration": iteration})


def _in_image(found: Any, place: int, size: tuple[int, int]) -> Detections:
    """Return the detections of an image in its own pixels; classes from 0 on."""
    names = ("boxes", "labels", "scores", "img_width", "img_height")
    missing = [name for name in names if not isinstance(found, Mapping) or name not in found]
    if missing:
        raise InputError(f"prediction of image {place} has no {', '.join(missing)}; pass the result of postprocess")
    moved = Found(found).resize(size)
    boxes, labels, scores = (as_array(moved[name], name) for name in ("boxes", "labels", "scores"))
    return Detections(boxes.reshape(-1, 4).astype(np.float64), scores, labels.astype(np.int64) - 1)
