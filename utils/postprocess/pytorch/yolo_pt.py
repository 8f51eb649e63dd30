"""Historical interface of YOLO's postprocessing for scripts, in NumPy.

Torch tensors give tensors. Arrays give a :class:`~utils.torch_array.TorchArray`, an array that torch's functions also
accept, because those scripts pass an engine's arrays and continue with torch.
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
from utils.postprocess.pytorch.yolo_decode import Selection, first_of, kept, table
from utils.torch_array import as_array, like

if TYPE_CHECKING:
    from utils.metrics.detection.yolo_pt import ap_per_class

__all__ = ["CLASSES", "CLASSES_ANIMAL", "LOGGER", "TQDM_BAR_FORMAT", "ap_per_class", "box_iou", "colorstr"]
__all__ += ["increment_path", "postprocess", "print_args", "scale_boxes", "xywh2xyxy", "xyxy2xywh"]

CLASSES = NAMES
"""The 80 classes of COCO."""

CLASSES_ANIMAL = NAMES[NAMES.index("bird") : NAMES.index("giraffe") + 1]
"""The ten animals among them."""


def __getattr__(name: str) -> object:
    """Import the metric on first use; scripts that only show answers do not need it."""
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
    image0_shapes: Sequence[Sequence[int]] = [],  # default of the original; it is not changed
    class_name: Mapping[int, str] | Sequence[str] | None = CLASSES,
    card_num: int = 0,
    max_nms: int = 30000,
) -> list[Any]:
    """Return the objects that a YOLO model found in each image.

    A box counts with its best class, or with every class above the threshold; its score is the class's, times the
    object's if the layout has one. The best ``max_nms`` pairs take part in the suppression: of overlapping boxes of a
    class the one with the highest score is kept. See :func:`~utils.postprocess.pytorch.yolo_decode.table` for the
    layouts. Raises ConfigError if an argument is out of range, and InputError if the prediction fits no layout, or does
    not fit the images.

    Args:
        prediction: the model's output, an array or a tensor, or a list of outputs, whose first is used.
        padding_shape: number of real images in the batch, from ``preprocess``; the others are dropped. ``None``: all.
            The first number of a tuple is used.
        conf_thres: minimum score, exclusive. iou_thres: maximum overlap of two boxes.
        classes: the numbers of the classes to find, or one number; ``None``: all.
        agnostic: boxes of different classes suppress each other.
        multi_label: a box may count with several classes.
        labels: per image m x 5 known objects: class, centre x, centre y, width, height in pixels of the input; they are
            added with score 1. May be empty.
        max_det: maximum objects per image. max_nms: maximum pairs of box and class in the suppression.
        nm: number of mask coefficients at the end of each row of the prediction; they are returned with the boxes.
        image: the model's input, N x 3 x H x W. With it the result is for display, without it for a metric.
        image0_shapes: height and width of each real image, from ``preprocess``; needed with ``image``.
        class_name: names of the classes; ``None``: their numbers, as text. card_num: not used.

    Without ``image`` one n x (6 + nm) float32 per real image, highest score first: left, top, right, bottom in pixels
    of the input, confidence, class, mask coefficients. With it one dict per real image: the boxes by the name of the
    class, each ``[left, top, right, bottom]`` in pixels of the original image, floats; an empty list if no image has
    any.
    """
    selection = Selection(conf_thres, iou_thres, classes, agnostic, multi_label, max_det, nm, max_nms)
    rows, layout = table(prediction, nm, len(class_name) if class_name is not None else 0)
    count = _real(padding_shape, len(rows))
    if len(labels) not in (0, count):
        raise InputError(f"labels are for {len(labels)} images, but there are {count}")
    known = labels if len(labels) else [None] * count
    found = [kept(one, layout, selection, own) for one, own in zip(rows[:count], known, strict=True)]
    if image is None:
        return [like(one, first_of(prediction)) for one in found]
    return _shown(found, as_array(image, "image").shape, image0_shapes, class_name)


def _real(given: Any, images: int) -> int:
    """Return the number of real images in a batch."""
    first = given[0] if isinstance(given, (list, tuple)) and given else given
    try:
        count = images if first is None else operator.index(first)
    except TypeError as error:
        raise InputError(f"padding_shape {given!r} is not a number of images; pass that of preprocess") from error
    if not 0 <= count <= images:
        raise InputError(
            f"padding_shape is {count} images, but the prediction is for {images}; pass the whole output of the model"
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
            "image0_shapes of preprocess"
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
    if names is None:
        return str(label)
    is_there = label in names if isinstance(names, Mapping) else label < len(names)
    if not is_there:
        LOGGER.warning("class %d has no name: class_name has %d of them; its number is shown", label, len(names))
    return str(names[label]) if is_there else str(label)
