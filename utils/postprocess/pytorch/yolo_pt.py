"""The historical face of YOLO's postprocessing: what the detectors' scripts import, in numpy.

Tensors of torch in give tensors out. Arrays in give a :class:`~utils.torch_array.TorchArray`: an array that torch's
functions take too, since those scripts put an engine's arrays in and go on with torch.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import Array, InputError
from utils.coco_classes import NAMES
from utils.postprocess.pytorch.yolo_boxes import box_iou, scale_boxes, xywh2xyxy, xyxy2xywh
from utils.postprocess.pytorch.yolo_console import LOGGER, TQDM_BAR_FORMAT, colorstr, increment_path, print_args
from utils.postprocess.pytorch.yolo_decode import Choice, first_of, kept, table
from utils.torch_array import as_array, like

if TYPE_CHECKING:
    from utils.metrics.detection.yolo_pt import ap_per_class

__all__ = [
    "CLASSES",
    "CLASSES_ANIMAL",
    "LOGGER",
    "TQDM_BAR_FORMAT",
    "ap_per_class",
    "box_iou",
    "colorstr",
    "increment_path",
    "postprocess",
    "print_args",
    "scale_boxes",
    "xywh2xyxy",
    "xyxy2xywh",
]

CLASSES = NAMES
"""The 80 classes of COCO."""

CLASSES_ANIMAL = NAMES[NAMES.index("bird") : NAMES.index("giraffe") + 1]
"""The ten of them that are animals."""


def __getattr__(name: str) -> object:
    """Import the metric when a script asks for it: those that only show answers do without."""
    if name != "ap_per_class":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from utils.metrics.detection.yolo_pt import ap_per_class

    return ap_per_class


def postprocess(
    prediction: Any,
    padding_shape: Any,
    conf_thres: float = 0.25,
    iou_thres: float = 0.45,
    classes: Sequence[int] | int | None = None,
    agnostic: bool = False,
    multi_label: bool = False,
    labels: Sequence[Any] = (),
    max_det: int = 300,
    nm: int = 0,
    image: Any = None,
    image0_shapes: Sequence[Sequence[int]] = [],  # the older default; it is only read
    class_name: Mapping[int, str] | Sequence[str] | None = CLASSES,
    card_num: int = 0,
    max_nms: int = 30000,
) -> list[Any]:
    """Return the objects that a YOLO model found in each image.

    A box counts with its best class, or with every class above the threshold; its score is the class's, times the
    object's where the layout has one. The surest ``max_nms`` pairs take part in the suppression: of boxes of a class
    that overlap the surest stays. The layouts are those of :func:`~utils.postprocess.pytorch.yolo_decode.table`.

    Args:
        prediction: the model's output, an array or a tensor, or a list of outputs, whose first is taken.
        padding_shape: how many images of the batch are real, as ``preprocess`` says; what follows them is dropped.
            ``None``: all. Of a tuple the first number counts.
        conf_thres: scores count above it. iou_thres: of two boxes that overlap by more than this one goes.
        classes: the numbers of the classes to look for, or the number of one; ``None``: all.
        agnostic: boxes of different classes compete too.
        multi_label: a box may count with several classes.
        labels: per image m x 5 objects that are known: class, centre x, centre y, width, height in pixels of the
            input; they take part with score 1. May be empty.
        max_det: objects per image at most.
        nm: mask coefficients at the end of each row of the prediction; they go with the boxes.
        image: what went into the model, N x 3 x H x W. With it the answers are for people, without for a metric.
        image0_shapes: height and width of each real image, as ``preprocess`` says; needed with ``image``.
        class_name: the names of the classes; ``None``: their numbers, as text.
        card_num: not used: which card computed makes no difference here.
        max_nms: pairs of box and class that take part in the suppression at most.

    Returns:
        Without ``image`` one n x (6 + nm) float32 per real image, the surest first: left, top, right, bottom in
        pixels of the input, confidence, class, mask coefficients. With it one dict per real picture: the boxes by the
        name of the class, each ``[left, top, right, bottom]`` in pixels of the original image, floats; an empty list
        where no image has any.

    Raises:
        ConfigError: an argument out of its range.
        InputError: the prediction has no layout that is known, or does not go with the images.
    """
    choice = Choice(conf_thres, iou_thres, classes, agnostic, multi_label, max_det, nm, max_nms)
    rows, layout = table(prediction, nm, len(class_name) if class_name is not None else 0)
    count = _real(padding_shape, len(rows))
    known = _labels(labels, count)
    found = [kept(one, layout, choice, own) for one, own in zip(rows[:count], known, strict=True)]
    if image is None:
        return [like(one, first_of(prediction)) for one in found]
    return _shown(found, as_array(image, "image").shape, image0_shapes, class_name)


def _labels(given: Sequence[Any], pictures: int) -> Sequence[Any]:
    """Return what is known of each image."""
    if len(given) not in (0, pictures):
        raise InputError(f"labels are given for {len(given)} images, and there are {pictures}")
    return given if len(given) else [None] * pictures


def _real(given: Any, pictures: int) -> int:
    """Return how many images of a batch are real."""
    first = given[0] if isinstance(given, (list, tuple)) and given else given
    try:
        count = pictures if first is None else operator.index(first)
    except TypeError as error:
        raise InputError(f"padding_shape {given!r} is no number of images; pass what preprocess gave") from error
    if not 0 <= count <= pictures:
        raise InputError(
            f"padding_shape says that {count} images are real, and the prediction is for {pictures}; pass the whole "
            "output of the model"
        )
    return count


def _shown(
    found: Sequence[Array],
    size: tuple[int, ...],
    shapes: Sequence[Sequence[int]] | None,
    names: Mapping[int, str] | Sequence[str] | None,
) -> list[dict[str, list[list[float]]]]:
    """Return boxes in pixels of the original images by the names of their classes."""
    shapes = () if shapes is None else shapes
    if len(size) < 2 or len(shapes) < len(found):
        raise InputError(
            f"{len(found)} images in an input of shape {size} have {len(shapes)} shapes; pass image and "
            "image0_shapes as preprocess gave them"
        )
    answers: list[dict[str, list[list[float]]]] = []
    for rows, shape in zip(found, shapes, strict=False):
        boxes = scale_boxes(size[-2:], rows[:, :4].astype(np.float64), shape)
        answer: dict[str, list[list[float]]] = {}
        for label, box in zip(rows[:, 5].astype(int).tolist(), boxes.tolist(), strict=True):
            answer.setdefault(_name(label, names), []).append(box)
        answers.append(answer)
    return answers if any(answers) else []


def _name(label: int, names: Mapping[int, str] | Sequence[str] | None) -> str:
    """Return the name of a class; its number where there is none."""
    if names is None:
        return str(label)
    is_there = label in names if isinstance(names, Mapping) else label < len(names)
    if not is_there:
        LOGGER.warning("class %d has no name: class_name has %d of them; its number is shown", label, len(names))
    return str(names[label]) if is_there else str(label)
