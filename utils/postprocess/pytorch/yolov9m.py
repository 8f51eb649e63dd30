"""Historical interface of YOLOv9's postprocessing and of its metric."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, MutableSequence, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from engine import Array, DataError, InputError
from tecoinfer_modelzoo.text import one_line, shape_text
from utils.datasets.image.yolo import mapping_of
from utils.postprocess.pytorch.yolo_boxes import scale_boxes, xywh2xyxy
from utils.postprocess.pytorch.yolo_decode import PLAIN, Selection, first_of, kept
from utils.torch_array import as_array, like

__all__ = ["Answer", "Config", "Metrics", "Stat", "get_metrics", "get_stats", "postprocess"]

Config: TypeAlias = "str | os.PathLike[str] | Mapping[str, Any] | None"
"""A data set's YAML file, or its content: ``names``, a list or a mapping from numbers, and ``nc``, their number;
``None``: as many classes as the model has, with COCO's names if these are 80."""

CANDIDATES = 30_000
"""Maximum pairs of box and class in an image's suppression, by score."""

SLACK = 1e-2
"""Tolerance for probabilities outside 0..1."""


class Answer(list[dict[str, Any]]):
    """Objects of one image, highest score first; printed with one line for each.

    Each is a mapping: ``label``, ``score`` and ``box``: left, top, right, bottom in pixels of the image.
    """

    def __str__(self) -> str:
        if not self:
            return "no object"
        return "\n".join(
            f"{place + 1}: {one['label']} {one['score']:.2f} at ({', '.join(f'{edge:.1f}' for edge in one['box'])})"
            for place, one in enumerate(self)
        )


class Stat(NamedTuple):
    """One image's data for the metric; N detections, M objects, T thresholds of overlap.

    Attributes:
        correct: N x T booleans: whether a detection is right. conf: N scores. pcls: N classes. tcls: M classes.
    """

    correct: Array
    conf: Array
    pcls: Array
    tcls: Array


class Metrics(NamedTuple):
    """Metric of a data set; arrays have an entry per class with objects, in ascending order.

    Attributes:
        tp, fp: right and wrong detections at the confidence with the highest mean F1, at the first threshold.
        p, r, f1: precision, recall and F1 there. mp, mr: their means over classes.
        map50, ap50: average precision at the first threshold: its mean, and per class.
        map: mean over classes and thresholds.
        nt: number of objects of every class of the data set.
    """

    tp: Array
    fp: Array
    p: Array
    r: Array
    f1: Array
    mp: float
    mr: float
    map50: float
    ap50: Array
    map: float
    nt: Array


def postprocess(
    images: Any,
    preds: Any,
    data_config: Config,
    targets: Any = None,
    source_image: Any = None,
    conf_thres: float = 0.001,
    iou_thres: float = 0.7,
    max_det: int = 300,
    device: Any = "cpu",
) -> tuple[Any, Any]:
    """Return targets in pixels and the objects of each image.

    Every pair of box and class with a sufficient score is a candidate; with ``source_image``, only a box's best class.
    Of candidates of a class that overlap more than ``iou_thres`` the one with the highest score is kept. Raises
    InputError if outputs, images or targets have other shapes, ConfigError if a threshold is invalid, and DataError if
    ``data_config`` cannot be read.

    Args:
        images: the model's input, N x 3 x H x W; only its size is used.
        preds: the model's output N x (4 + C) x A: centre, width and height in pixels of the input, and class scores; or
            a list of outputs, of which that is the first.
        data_config: the classes (:data:`Config`).
        targets: n x 6: image, class, and centre, width and height of boxes relative to the input; ``None``: not known.
        source_image: the one image of ``images``: H x W (x C) pixels or a PIL image.
        conf_thres: minimum score, 0 to 1. iou_thres: 0 to 1. max_det: maximum objects in an image.
        device: accepted for scripts of the original zoo and not used.

    Returns the targets with boxes in pixels of the input (``None`` for ``None``), and per image n x 6: left, top,
    right, bottom in pixels of the input, score and class, highest score first; tensors for tensors. With
    ``source_image`` the second is the :class:`Answer` for that image, in its own pixels.
    """
    given = first_of(preds)
    output, size = as_array(given, "the output"), _size_of(images)
    names = _names_for(output, data_config)
    low, high = np.nanmin(output[:, 4:], initial=0.0), np.nanmax(output[:, 4:], initial=0.0)
    if low < -SLACK or high > 1 + SLACK:  # float16 may round a probability to a little over 1
        raise InputError(
            f"class scores go from {low:g} to {high:g}: they are not probabilities; export the model with its sigmoid, "
            "and pass N x (4 + C) x A"
        )
    several = source_image is None and len(names) > 1
    selection = Selection(conf_thres, iou_thres, None, False, several, max_det, 0, CANDIDATES)
    found = [kept(one.T, PLAIN, selection) for one in output]
    moved = None if targets is None else _in_pixels(targets, size)
    if source_image is not None:
        return moved, _answer(found, source_image, size, names)
    return moved, [like(one, given, images) for one in found]


def _size_of(images: Any) -> tuple[int, int]:
    shape = tuple(images.shape) if hasattr(images, "shape") else ()
    if len(shape) != 4:
        raise InputError(f"images are {shape_text(shape)}; pass the model's input, N x 3 x H x W")
    return int(shape[2]), int(shape[3])


def _names_for(output: Array, data_config: Config) -> Sequence[str]:
    """Return the class names, and check that the output has as many classes."""
    if output.ndim != 3 or output.shape[1] < 5 or output.dtype.kind != "f":
        raise InputError(
            f"the output is {shape_text(output.shape)} of {output.dtype}; pass floats N x (4 + C) x A: centre, width, "
            "height and class scores for A boxes"
        )
    classes = output.shape[1] - 4
    names = names_of(data_config, classes)
    if len(names) != classes:
        raise InputError(
            f"the output is {shape_text(output.shape)}, so of {classes} classes, but data_config "
            f"{_called(data_config)} has {len(names)}; pass the model's own"
        )
    return names


def _in_pixels(targets: Any, size: tuple[int, int]) -> Any:
    rows = as_array(targets, "targets")
    if rows.ndim != 2 or rows.shape[1] != 6:
        raise InputError(f"targets are {shape_text(rows.shape)}; pass n x 6: image, class, centre, width and height")
    height, width = size
    return like((rows * np.array([1, 1, width, height, width, height])).astype(np.float32), targets)


def _answer(found: Sequence[Array], source_image: Any, size: tuple[int, int], names: Sequence[str]) -> Answer:
    if len(found) != 1:
        raise InputError(f"source_image is one image, but the output is for {len(found)}; pass them one by one")
    if hasattr(source_image, "width"):
        width, height = source_image.width, source_image.height
    else:
        height, width = as_array(source_image, "source_image").shape[:2]
    boxes = scale_boxes(size, found[0][:, :4].astype(np.float64), (height, width))
    rows = zip(boxes.tolist(), found[0][:, 4].tolist(), found[0][:, 5].astype(np.int64).tolist(), strict=True)
    return Answer({"label": names[label], "score": score, "box": box} for box, score, label in rows)


def get_stats(
    images: Any,
    preds: Sequence[Any],
    paths: Sequence[Any],
    shapes: Sequence[Any],
    stats: MutableSequence[Any],
    targets: Any,
    niou: int,
    iouv: Any,
    seen: int,
    device: Any = "cpu",
) -> tuple[MutableSequence[Any], int]:
    """Compare a batch's detections with its objects, in pixels of the images; return ``stats`` and the new ``seen``.

    In descending order of scores, each detection is matched to the free object of its class with the largest overlap,
    if that is at least the threshold: COCO's rule (:func:`utils.metrics.detection.matching.match_coco`), for each
    threshold separately. Raises InputError if there are fewer predictions than shapes, or thresholds are not in 0.50,
    0.55, ..., 0.95.

    Args:
        images: the model's input; only its size is used.
        preds: per image n x 6, from :func:`postprocess`. paths: of the images.
        shapes: per image ``((h0, w0), ((rh, rw), (pw, ph)))``: its original height and width in pixels, their scale
            factors, and the position of the image in the input, in pixels.
        stats: of earlier batches; a :class:`Stat` per image is added.
        targets: n x 6, boxes in pixels of the input. niou: number of thresholds. iouv: thresholds of overlap.
        seen: number of earlier images. device: not used.
    """
    if len(preds) < len(shapes):
        raise InputError(f"{len(preds)} predictions for {len(shapes)} images; pass one for each")
    bits = _thresholds(iouv, niou)
    size, rows = _size_of(images), as_array(targets, "targets").reshape(-1, 6).astype(np.float64)
    for place, shape in enumerate(shapes):
        mine = rows[rows[:, 0] == place]
        found = as_array(preds[place], "a prediction").reshape(-1, 6).astype(np.float64)
        found = found[np.argsort(-found[:, 4], kind="stable")]
        boxes, objects = (
            np.asarray(scale_boxes(size, part, *shape)) for part in (found[:, :4].copy(), xywh2xyxy(mine[:, 2:]))
        )
        labels = mine[:, 1].astype(np.int64)
        correct = _right(boxes, found[:, 5].astype(np.int64), objects, labels, bits)
        stats.append(Stat(correct, found[:, 4], found[:, 5], mine[:, 1]))
    return stats, seen + len(shapes)


def _thresholds(iouv: Any, niou: int) -> Array:
    """Return the indices of thresholds among those of the matching."""
    from utils.metrics.detection.matching import IOU_THRESHOLDS

    wanted = as_array(iouv, "iouv").astype(np.float64).reshape(-1)
    apart = np.abs(wanted[:, None] - np.array(IOU_THRESHOLDS))
    if not len(wanted) or len(wanted) != int(niou) or apart.min(axis=1).max() > 1e-6:
        raise InputError(
            f"niou {niou} and iouv {one_line(wanted.round(3).tolist())}: pass thresholds out of 0.50, 0.55, ..., 0.95, "
            "as torch.linspace(0.5, 0.95, 10), and how many there are"
        )
    return np.asarray(apart.argmin(axis=1))


def _right(boxes: Array, classes: Array, objects: Array, labels: Array, bits: Array) -> Array:
    """Return, N x T, which detections, in descending order of scores, find an object."""
    from utils.metrics.detection.matching import SIZES, match_coco, shares

    right = np.zeros(len(boxes), np.uint16)
    for label in np.unique(labels):
        mine, real = np.flatnonzero(classes == label), np.flatnonzero(labels == label)
        if len(mine):
            crowd = np.zeros(len(real), bool)
            counted = np.ones((len(SIZES), len(real)), bool)
            ignored = np.zeros((len(mine), len(SIZES)), np.uint16)
            right[mine] = match_coco(shares(boxes[mine], objects[real], crowd), crowd, counted, ignored)[0][:, 0]
    return ((right[:, None] >> bits.astype(np.uint16)) & 1).astype(bool)


def get_metrics(stats: Iterable[Any], data_config: Config) -> Metrics:
    """Return the metric of all images (:class:`Metrics`), from a :class:`Stat` per image of :func:`get_stats`.

    Average precision is COCO's, the mean of the maximum precisions at 101 recalls or higher ones, as is the matching of
    :func:`get_stats`; the figures equal those of the zoo's own metric (:func:`.ap_per_class`). Raises DataError if the
    images have no object, or ``data_config`` cannot be read.
    """
    from utils.metrics.detection.yolo_pt import ap_per_class

    rows = [Stat(*(as_array(column, "stats") for column in one)) for one in stats]
    objects = np.concatenate([np.empty(0), *(one.tcls for one in rows)]).astype(np.int64)
    if not len(objects):
        raise DataError(f"{len(rows)} images have no objects; check their labels")
    names = names_of(data_config, int(objects.max()) + 1)
    if objects.max() >= len(names):
        raise DataError(
            f"the labels have class {objects.max()}, but data_config {_called(data_config)} has {len(names)}"
        )
    correct, conf, predicted, _ = (np.concatenate(column) for column in zip(*rows, strict=True))
    tp, fp, p, r, f1, ap, _ = ap_per_class(correct, conf, predicted, objects)
    counts = np.bincount(objects, minlength=len(names))
    means = float(p.mean()), float(r.mean()), float(ap[:, 0].mean())
    return Metrics(tp, fp, p, r, f1, *means, ap[:, 0], float(ap.mean()), counts)


def names_of(data_config: Config, classes: int) -> Sequence[str]:
    """Return the class names of a data set, at least ``classes`` of them if ``data_config`` is ``None``.

    Raises DataError if it cannot be read, or its names and their number differ.
    """
    if data_config is None:
        from utils.coco_classes import NAMES

        return NAMES if classes == len(NAMES) else [str(place) for place in range(classes)]
    if not isinstance(data_config, (str, os.PathLike, Mapping)):
        raise DataError(
            f"data_config {one_line(repr(data_config))} is neither a YAML file nor a mapping with names and nc"
        )
    content = data_config if isinstance(data_config, Mapping) else _content(Path(data_config))
    names, count = content.get("names"), content.get("nc")
    if isinstance(names, Mapping) and sorted(map(str, names)) == sorted(map(str, range(len(names)))):
        by_number = {str(key): name for key, name in names.items()}
        names = [by_number[str(place)] for place in range(len(names))]
    if names is None and isinstance(count, int) and count > 0:
        names = list(range(count))
    if not isinstance(names, (list, tuple)) or not names:
        raise DataError(f"{_called(data_config)}: write names, a list of class names or a mapping from 0, 1, ...")
    if count is not None and count != len(names):
        raise DataError(f"{_called(data_config)}: nc is {count} and there are {len(names)} names; correct one of them")
    return [str(name) for name in names]


def _content(file: Path) -> Mapping[str, Any]:
    """Return the content of a YAML file, cached by its time of modification."""
    try:
        return _read(file, file.stat().st_mtime_ns)
    except OSError as error:
        raise DataError(f"data_config {file}: {error.strerror}; pass the YAML file with names and nc") from error


@lru_cache(maxsize=8)
def _read(file: Path, changed: int) -> Mapping[str, Any]:
    return mapping_of(file, f"data_config {file}", "names and nc")


def _called(data_config: Config) -> str:
    return str(data_config) if isinstance(data_config, (str, os.PathLike)) else "passed as a mapping"
