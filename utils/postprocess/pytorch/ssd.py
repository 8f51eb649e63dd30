"""The historical face of SSD's postprocessing and of its metric, that of Pascal VOC 2007."""

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

__all__ = ["IOU", "MOST", "Found", "Pictures", "get_metrics", "postprocess"]

IOU = 0.45
"""Of two boxes of a class that overlap more than this the surer one stays (Liu et al., "SSD", 2016)."""

MOST = 100
"""Objects per image, the surest. The published configuration of the weights has both so (lufficc/SSD, ``TEST``)."""

FAR = 4.0
"""Boxes may reach out of the input; where half of their numbers are larger than this they are pixels."""

SLACK = 1e-2
"""By how much a probability may be off 0 to 1: float16 rounds."""


class Pictures(Protocol):
    """What the metric needs of a data set, such as :class:`utils.datasets.ssd_dataset.VOCDataset`.

    Attributes:
        root_dir: where it lies. names: of its classes, without the background.
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
    """What was found in one image; every entry is an attribute too.

    Entries:
        boxes: N x 4 float32: left, top, right, bottom in pixels of the input, not clipped to it.
        labels: N int64: from 1 on; 0 is the background, which is never found.
        scores: N float32, the surest first.
        img_width, img_height: of the input that boxes are in the pixels of.
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"what was found has no {name!r}; it has {', '.join(self)}") from None

    def resize(self, size: Sequence[float]) -> Found:
        """Return the same with its boxes in the pixels of an image of another width and height."""
        width, height = size
        boxes = as_array(self["boxes"], "boxes")
        scale = np.array([width / self["img_width"], height / self["img_height"]] * 2, np.float32)
        given = like((boxes * scale).astype(np.float32), self["boxes"])
        return Found({**self, "boxes": given, "img_width": width, "img_height": height})


def postprocess(
    prec: Sequence[Any], image_size: int | Sequence[int] = 320, conf_thres: float = 0.01, **_: object
) -> list[Found]:
    """Return what was found in each image.

    Per class but the background the boxes with a sufficient score are candidates; of those that overlap more than
    :data:`IOU` the surest stays, and :data:`MOST` of an image come back. What has NaN is no candidate.

    Args:
        prec: scores N x A x C after the softmax, column 0 the background's; and boxes N x A x 4: left, top, right,
            bottom as shares of the input. Arrays or torch tensors.
        image_size: side of the input in pixels, or its width and height.
        conf_thres: least score, 0 to 1.

    Returns:
        Per image its :class:`Found`, of torch tensors where tensors were given.

    Raises:
        InputError: scores and boxes that do not belong together, or scores that are no probabilities.
        ConfigError: an impossible size or threshold.
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
        found.append(_result(best, width, height, prec[0]))
    return found


def _result(best: Detections, width: int, height: int, given: Any) -> Found:
    return Found(
        boxes=like(best.boxes.astype(np.float32), given),
        labels=like(best.classes + 1, given),
        scores=like(best.scores.astype(np.float32), given),
        img_width=width,
        img_height=height,
    )


def _size(image_size: int | Sequence[int]) -> tuple[int, int]:
    """Return width and height."""
    sides = [image_size] if isinstance(image_size, (int, float)) else list(image_size)
    if len(sides) not in (1, 2) or not all(side >= 1 for side in sides):
        raise ConfigError(f"image_size {image_size} is no size in pixels; pass the input's side, or width and height")
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
            f"scores go from {real.min():g} to {real.max():g}: they are no probabilities; export the model with its "
            "softmax, or apply one to the scores"
        )
    if boxes.size and (typical := float(np.median(np.nan_to_num(np.abs(boxes.astype(np.float32)))))) > FAR:
        raise InputError(
            f"half of the boxes' numbers are above {typical:g}: they are no shares of the input; divide pixels by its "
            "width and height"
        )


def get_metrics(
    dataset: Pictures, predictions: Mapping[int, Any] | Sequence[Any], iteration: int | None = None
) -> dict[str, Any]:
    """Return the mean average precision by Pascal VOC 2007's rules: 11 recalls, an overlap of 0.5.

    By these rules a class's precision at each recall 0, 0.1, ..., 1 is the best one reached there or later, and the
    mean is over classes with objects that are not difficult (Everingham et al., 2010). Scripts that print it as
    ``mAP@0.5~0.95`` mean this figure.

    Args:
        dataset: what the images come from.
        predictions: what :func:`postprocess` found, by the images' places in the data set. Images without a
            prediction are left out of the metric, and a warning says how many.
        iteration: of a training, which comes back as it is.

    Returns:
        ``metrics``: a mapping with ``mAP`` and the average precision of every class by its name, 0 to 1; NaN for a
        class without objects. ``iteration``, where it was given.

    Raises:
        DataError: there is no prediction, or no object in the images that have one.
        InputError: a prediction of an image that is not there, or one without its boxes, labels, scores or size.
    """
    from utils.metrics.detection.metric import MeanAveragePrecision

    named = dict(predictions) if isinstance(predictions, Mapping) else dict(enumerate(predictions))
    given = {int(place): one for place, one in named.items()}
    strange = [place for place in given if not 0 <= place < len(dataset)]
    if strange:
        raise InputError(
            f"predictions name image {strange[0]} of a data set of {len(dataset)}; the keys are the image_ids that "
            "the loader yields"
        )
    if not given:
        raise DataError(f"{dataset.root_dir}: none of its {len(dataset)} images has a prediction; run the model first")
    if len(given) < len(dataset):
        warnings.warn(
            f"the metric is of {len(given)} of {len(dataset)} pictures: the others have no prediction", stacklevel=2
        )
    metric = MeanAveragePrecision(dataset.names, rules="voc2007")
    for place in sorted(given):
        metric.update([_in_picture(given[place], place, dataset.size_of(place))], [dataset.objects[place]])
    classes = metric.per_class()
    figures = {"mAP": metric.compute()}
    figures |= {name: classes[name]["AP"] if name in classes else float("nan") for name in dataset.names}
    return {"metrics": figures} | ({} if iteration is None else {"iteration": iteration})


def _in_picture(found: Any, place: int, size: tuple[int, int]) -> Detections:
    """Return what was found in an image, in its own pixels; classes from 0 on."""
    names = ("boxes", "labels", "scores", "img_width", "img_height")
    missing = [name for name in names if not isinstance(found, Mapping) or name not in found]
    if missing:
        raise InputError(f"the prediction of image {place} has no {', '.join(missing)}; pass what postprocess returned")
    moved = Found(found).resize(size)
    boxes, labels, scores = (as_array(moved[name], name) for name in ("boxes", "labels", "scores"))
    return Detections(boxes.reshape(-1, 4).astype(np.float64), scores, labels.astype(np.int64) - 1)
