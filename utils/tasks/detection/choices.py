"""Export settings of a detector by flag: preprocessing of images, and format of boxes, classes and scores.

The value in use is the flag's, else the stored one (metadata ``detection``, a JSON object by flag), else the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError
from utils.outputs import DEFAULT, LOGITS
from utils.postprocess.image.box_forms import BOX_FORMATS, BOX_UNITS, COCO91, NMS, SCORE_FORMS, BoxForm
from utils.postprocess.image.layouts import NOTE
from utils.preprocess.image.letterbox import FILL, FILTERS, RESIZES, ROUNDINGS, Placement
from utils.preprocess.image.modes import MEAN, STD
from utils.tasks import ExportSetting, Flag, Model, Options, str2bool
from utils.tasks.detection.heads import least_score, most, note, overlap

FIT = "fit"
"""Value of ``resize`` if the export stored ``fit`` (:mod:`utils.preprocess.image.fits`) and the flag is not given."""

CAFFE = (123.68 / 255, 116.779 / 255, 103.939 / 255)

Numbers = tuple[float, ...]

PIXEL_VALUES: dict[str, tuple[Numbers, Numbers]] = {
    "0..1": ((0.0,) * 3, (1.0,) * 3),
    "0..255": ((0.0,) * 3, (1 / 255,) * 3),
    "-1..1": ((0.5,) * 3, (0.5,) * 3),
    "imagenet": (MEAN, STD),
    "caffe": (CAFFE, (1 / 255,) * 3),
}
"""Normalisation of pixels in 0..1: mean and standard deviation of red, green and blue."""

STORED = "stored"
"""Value of ``pixel_values``: the stored mean and standard deviation, per channel of the input."""


def class_offset(text: str) -> int | str:
    """Read a whole number, or ``coco91``."""
    return text if text == COCO91 else int(text)


def _level(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 255


def _offset(value: Any) -> bool:
    return value == COCO91 or (isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 1000)


def _one_of(names: tuple[Any, ...], value: Any) -> bool:
    return type(value) in {type(name) for name in names} and value in names


class Kind(NamedTuple):
    """Values of a flag: the default, a predicate of valid values, their description, and the choices if there are
    any."""

    usual: Any
    takes: Any
    words: str
    names: tuple[str, ...] | None = None


def _named(*names: Any) -> Kind:
    words = "one of " + ", ".join(str(name).lower() for name in names)
    return Kind(names[0], partial(_one_of, names), words, names if isinstance(names[0], str) else None)


KINDS: Mapping[str, Kind] = {
    "resize": _named(*RESIZES),
    "fill": Kind(FILL, _level, "a whole number from 0 to 255"),
    "enlarge": _named(True, False),
    "rounding": _named(*ROUNDINGS),
    "interpolation": _named(*FILTERS),
    "channel_order": _named("RGB", "BGR"),
    "pixel_values": _named(STORED, *PIXEL_VALUES),
    "box_format": _named(*BOX_FORMATS),
    "box_units": _named(*BOX_UNITS),
    "class_offset": Kind(0, _offset, "a whole number, or coco91"),
    "score_form": _named(*SCORE_FORMS),
    "nms": _named(*NMS),
}


def chosen(model: Model, options: Options) -> dict[str, Any]:
    """Return the values in use by flag. Raises ModelError if a stored value is invalid."""
    stored = note(model)
    found = {}
    for key, kind in KINDS.items():
        value = getattr(options, key, None)
        if value is None and key in stored:
            value = stored[key]
            if not kind.takes(value):
                raise model.unusable(NOTE, f"{key} {value!r} must be {kind.words}")
        if value is None and key == "score_form":
            value = _scores_of(model)
        found[key] = kind.usual if value is None else value
    if FIT in stored and getattr(options, "resize", None) is None:
        found["resize"] = FIT
    if model.inputs and model.inputs[0].dtype.kind in "iu" and getattr(options, "pixel_values", None) is None:
        found["pixel_values"] = "0..255"  # the range of integer inputs
    return found


def _scores_of(model: Model) -> str | None:
    """Return ``logit`` if the output ``scores`` is a layer's sum without an activation; ``None``: unknown."""
    names = [spec.name for spec in model.outputs]
    if "scores" not in names:
        return None
    form = model.forms.of(names.index("scores"))
    return "logit" if form.kind == LOGITS and form.source != DEFAULT else None


def now(key: str, model: Model, options: Options) -> Any:
    """Return the value in use of one flag."""
    return chosen(model, options)[key]


def check(options: Options) -> None:
    """Raise ConfigError if the value of a flag is invalid."""
    for key, kind in KINDS.items():
        value = getattr(options, key, None)
        if value is not None and not kind.takes(value):
            raise ConfigError(f"--{key} {value} must be {kind.words}")


def laying(found: Mapping[str, Any]) -> Placement:
    """Return the placement of images in the input."""
    return Placement(*(found[key] for key in Placement._fields))


def box_form(found: Mapping[str, Any]) -> BoxForm:
    """Return the format of boxes, scores and classes."""
    return BoxForm(*(found[key] for key in BoxForm._fields))


def normalised(planes: Array, found: Mapping[str, Any], model: Model) -> Array:
    """Return 3 x height x width RGB levels, 0 to 255, normalised for the model, float32.
    A stored mean is in the order of the input's channels; named ones are in RGB order."""
    name = found["pixel_values"]
    notes = model.stored.image
    mean, std = (notes.mean, notes.std) if name == STORED else PIXEL_VALUES[name]
    if found["channel_order"] == "BGR":
        planes = planes[::-1]
        mean, std = (mean, std) if name == STORED else (mean[::-1], std[::-1])
    middle, spread = (np.array(values, np.float32).reshape(-1, 1, 1) for values in (mean, std))
    array: Array = (planes / np.float32(255) - middle) / spread
    return array


def _flag(key: str, text: str, type_: Any = None) -> Flag:
    kind = KINDS[key]
    usual = str(kind.usual).lower() if isinstance(kind.usual, bool) else kind.usual
    nargs = "?" if type_ is str2bool else None
    return Flag(f"--{key}", f"{text} (default: as stored, or {usual})", None, type_, kind.names, nargs)


FLAGS = (
    _flag("nms", "non-maximum suppression per class, over all classes, or none"),
    _flag("resize", "letterbox centred, letterbox in the left upper corner, or stretched"),
    _flag("fill", "grey level of the padding", int),
    _flag("enlarge", "enlarge images that are smaller than the input", str2bool),
    _flag("rounding", "rounding of the image's scaled sides to whole pixels"),
    _flag("interpolation", "filter of resizing; opencv is bilinear without antialiasing"),
    _flag("channel_order", "order of the input's channels"),
    _flag("pixel_values", "range of the input, or named mean and standard deviation"),
    _flag("box_format", "corners, corner and size, centre and size, or corners with y first"),
    _flag("box_units", "boxes in pixels of the input, or in shares of it"),
    _flag("class_offset", "the model's class of label 0: 1 after a background; or coco91", class_offset),
    _flag("score_form", "form of the scores; twice: a sigmoid was applied to probabilities"),
)
"""Flags whose correct values depend on the model."""


def _choice(flag: str, stage: str, *values: Any, fine: bool = False) -> ExportSetting:
    return ExportSetting(f"--{flag}", values, stage, partial(now, flag), fine)


CHOICES: tuple[ExportSetting, ...] = (
    _choice("box_format", "decode", *BOX_FORMATS),
    _choice("box_units", "decode", *BOX_UNITS),
    _choice("class_offset", "decode", 0, 1, -1, COCO91),
    _choice("score_form", "decode", *SCORE_FORMS),
    _choice("nms", "decode", *NMS, fine=True),
    _choice("resize", "prepare", *RESIZES),
    _choice("channel_order", "prepare", "RGB", "BGR"),
    _choice("pixel_values", "prepare", *PIXEL_VALUES),
    _choice("enlarge", "prepare", True, False, fine=True),
    ExportSetting("--iou_threshold", (0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7), "decode", overlap, fine=True),
    _choice("fill", "prepare", 114, 0, 128, 255, fine=True),
    _choice("interpolation", "prepare", "bilinear", "opencv", "bicubic", "nearest", fine=True),
    _choice("rounding", "prepare", *ROUNDINGS, fine=True),
    ExportSetting("--score_threshold", (0.001, 0.01, 0.05, 0.1, 0.25, 0.3, 0.5), "decode", least_score, fine=True),
    ExportSetting("--max_detections", (100, 300, 1000), "decode", most, fine=True),
)
"""Settings that are often wrong after an export, cheap and likely ones first."""
