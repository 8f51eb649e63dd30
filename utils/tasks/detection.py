"""Object detection: boxes, classes and scores in pictures; the metric is COCO's mAP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, ConfigError, ModelError, channels_last
from utils.datasets.base import Dataset
from utils.postprocess.image.box_forms import BoxForm
from utils.postprocess.image.layouts import NOTE
from utils.postprocess.image.nms import Detections
from utils.preprocess.image.forms import PictureForm, picture_form
from utils.preprocess.image.images import open_image
from utils.preprocess.image.letterbox import Geometry, letterbox
from utils.tasks.base import Artifact, Flag, Hinter, Options, Saver, Task, str2bool
from utils.tasks.detection_choices import CHOICES, FIT, FLAGS as CHOSEN, check, chosen, laying, normalised
from utils.tasks.detection_data import DATA_FLAGS, DATA_HELP, load, metric
from utils.tasks.detection_heads import IOU, MOST, OTHERS_SCORE, SCORES, detections, note
from utils.tasks.detection_inputs import fitted_inputs
from utils.tasks.model import Model
from utils.tasks.picture_input import report_form
from utils.tasks.prepared import Prepared
from utils.tasks.templates.squares import TEMPLATE

SHOWN = 10
"""Objects that the answer's line names; the JSON has all."""


def prepare(samples: Sequence[Path], model: Model, options: Options, *, out: Array | None = None) -> Prepared:
    """Letterbox the pictures into the model's input, or put them there as its export stored (``fit``).

    Flags or the export say how they lie there, and their range of values and order of channels
    (:mod:`utils.tasks.detection_choices`). Their geometry is the context.

    Args:
        samples: paths of pictures.
        model: its first input is N x 3 x H x W, or N x H x W x 3.
        options: ``input_size``, where it is given, is H and W.
        out: an array of N x 3 x H x W to write into.

    Raises:
        DataError: a picture cannot be read.
        ConfigError: the input's size is not known.
    """
    found = chosen(model, options)
    normalise = partial(normalised, found=found, model=model)
    if found["resize"] == FIT:
        return fitted_inputs(samples, model, _known_size(model, options), note(model)[FIT], normalise, out)
    size, placed, form = _size(model, options), laying(found), _form(model)
    dtype = model.dtype if form.plain else "float32"
    result = np.empty((len(samples), 3, *size), dtype) if out is None or not form.plain else out
    contexts = []
    for place, path in zip(result, samples, strict=True):
        picture, geometry = letterbox(open_image(path), size, placed)
        place[...] = normalise(picture.transpose(2, 0, 1))
        contexts.append(geometry)
    return Prepared([result if form.plain else form.given(result)], contexts)


def decode(outputs: Any, contexts: Sequence[Geometry], model: Model, options: Options) -> list[Detections]:
    """Return what was found in each picture, in its own pixels, the surest first.

    What the outputs mean is their layout's matter (docs/detection_layouts.md): the one ``--layout`` says, else the one
    the export stored, else the one their names and shapes tell. Every pair of box and class with a score of at least
    ``--score_threshold`` is a candidate; of candidates of a class that overlap by more than ``--iou_threshold`` the
    best stays, unless the layout's are final; at most ``--max_detections`` come back. What has NaN as its score or in
    its box is no candidate.

    Raises:
        InputError: the outputs do not have the layout's shapes, or no known layout.
        ModelError: the outputs may have several layouts.
    """
    found = chosen(model, options)
    form = BoxForm(*(found[key] for key in BoxForm._fields))
    return detections(outputs, contexts, model, options, _known_size(model, options), form, found["nms"])


def show(sample: Path, prediction: Detections, model: Model, options: Options) -> Artifact:
    """Return the objects in words and as data, and the picture with their boxes drawn."""
    names = model.stored.labels
    if names is not None and max(prediction.classes.tolist(), default=-1) >= len(names):
        raise ModelError(
            f"{model.ckpt}: stores {len(names)} labels and found class {prediction.classes.max()}; "
            "export it with all labels"
        )
    answer = [
        {
            "label": names[label] if names else str(label),
            "score": round(score, 4),
            "box": [round(edge, 2) for edge in box],
        }
        for box, score, label in zip(*(column.tolist() for column in prediction), strict=True)
    ]
    return Artifact(_in_words(answer), answer, partial(_save_drawn, sample, answer))


def _in_words(answer: Sequence[Mapping[str, Any]]) -> str:
    parts = [
        f"{one['label']} {one['score']:.2f} at {','.join(str(round(edge)) for edge in one['box'])}"
        for one in answer[:SHOWN]
    ]
    rest = [f"and {len(answer) - SHOWN} more"] if len(answer) > SHOWN else []
    head = f"{len(answer)} object{'' if len(answer) == 1 else 's'}"
    return f"{head}: {'; '.join(parts + rest)}" if parts else head


def _save_drawn(sample: Path, answer: Sequence[Mapping[str, Any]], folder: Path) -> Path:
    from utils.draw import save_drawn
    from utils.postprocess.image.drawn_boxes import draw_boxes

    return save_drawn(sample, [_in_words(answer)], folder, draw_boxes(open_image(sample), answer))


def _size(model: Model, options: Options) -> tuple[int, int]:
    """Return height and width of the model's input."""
    given = _given(options)
    if given is not None:
        return given
    height, width = _form(model).size
    if height is None or width is None:
        raise ConfigError(f"{model.ckpt}: its input may have any height and width; say which with --input_size")
    return height, width


def _form(model: Model) -> PictureForm:
    """Return how the model's first input holds pictures.

    Raises:
        ConfigError: it takes no pictures of three channels.
    """
    form = picture_form(model.inputs[0], model.ckpt, model.dtype)
    if form.channels != 3:
        shape = list(model.inputs[0].shape)
        raise ConfigError(f"{model.ckpt}: its input is {shape}; detection needs N x 3 x H x W or N x H x W x 3")
    return form


def _given(options: Options) -> tuple[int, int] | None:
    """Return height and width as ``--input_size`` says them."""
    given = options.input_size
    if given is None:
        return None
    sides = [given] if isinstance(given, int) else list(given)
    return sides[0], sides[-1]


def _known_size(model: Model, options: Options) -> tuple[int, int] | None:
    """Return height and width of the model's input where they are the same for every batch."""
    shape = model.inputs[0].shape if model.inputs else ()
    height, width = (shape[1:3] if channels_last(shape) else shape[2:]) if len(shape) == 4 else (None, None)
    return _given(options) or (None if height is None or width is None else (height, width))


def _input_size(options: Options) -> tuple[tuple[int | None, ...], ...] | None:
    given = _given(options)
    return None if given is None else ((None, 3, *given),)


def _check(options: Options) -> None:
    check(options)
    for flag in ("score_threshold", "iou_threshold"):
        given = getattr(options, flag)
        if given is not None and not 0 <= given <= 1:
            raise ConfigError(f"--{flag} {given} must be from 0 to 1")
    if options.max_detections is not None and options.max_detections < 1:
        raise ConfigError(f"--max_detections {options.max_detections} must be at least 1")
    given = _given(options)
    if given is not None and (
        min(given) < 1 or (not isinstance(options.input_size, int) and len(options.input_size) > 2)
    ):
        raise ConfigError(f"--input_size {options.input_size} must be one or two positive numbers: height and width")


FLAGS = (
    Flag(
        "--score_threshold",
        f"detections below this score are dropped (default: {SCORES['valid']} for valid, else {OTHERS_SCORE})",
        type=float,
    ),
    Flag(
        "--iou_threshold",
        f"of two boxes of a class that overlap more than this, the surer one stays (default: what is stored, or {IOU})",
        type=float,
    ),
    Flag("--max_detections", f"most detections in a picture (default: what is stored, or {MOST})", None, int),
    Flag("--layout", "what the outputs mean (default: what is stored, or what they look like)", None, metavar="NAME"),
    Flag("--best_class", "a box is found as its best class only", False, str2bool, nargs="?"),
    *CHOSEN,
    Flag("--input_size", "height (and width) of the input in pixels (default: the model's own)", None, int, nargs="+"),
    *DATA_FLAGS,
)


def answers(file: Path, dataset: Dataset, model: Model, options: Options) -> Sequence[Detections | None]:
    """Read the source framework's detections (:func:`~utils.tasks.detection_results.read_box_results`)."""
    from utils.tasks.detection_results import read_box_results

    return read_box_results(file, dataset, model.stored.labels)


def agreement(one: Detections, other: Detections) -> float:
    """Say how far two sets of detections agree (:func:`utils.metrics.detection_agreement.agreement`)."""
    from utils.metrics.detection_agreement import agreement as agreed

    return agreed(one, other)


def saver(path: Path, dataset: Dataset, model: Model, options: Options) -> Saver:
    """Return what writes COCO's results format (:class:`~utils.tasks.detection_results.BoxResults`)."""
    from utils.tasks.detection_results import BoxResults

    return BoxResults(path, dataset, model.stored.labels)


def hinter(model: Model, options: Options) -> Hinter:
    """Return what looks for boxes and classes of another form (:mod:`utils.tasks.detection_hints`)."""
    from utils.tasks.detection_hints import DetectionHinter

    return DetectionHinter(model, options, _known_size(model, options))


DETECTION = Task(
    name="detection",
    domain="detection",
    load=load,
    prepare=prepare,
    decode=decode,
    metric=metric,
    show=show,
    setup=report_form,
    pictures=True,
    input_size=_input_size,
    check=_check,
    flags=FLAGS,
    template=TEMPLATE,
    first=True,
    data_help=DATA_HELP,
    choices=CHOICES,
    stored_under=NOTE,
    answers=answers,
    agreement=agreement,
    hinter=hinter,
    saver=saver,
    saves="what was found as a JSON file in COCO's results format",
)
"""Detection with any layout of outputs that utils/postprocess/image/layouts has; others replace ``decode``."""
