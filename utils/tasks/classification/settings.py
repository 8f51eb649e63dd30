"""Settings of the preprocessing of classifiers by flags and metadata; without them it is what ``preprocess`` says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from engine import Array, ConfigError
from utils.preprocess.image.forms import ImageForm
from utils.preprocess.image.lines import PIXEL_VALUES
from utils.preprocess.image.modes import INTERPOLATIONS, MEAN
from utils.tasks import ExportSetting, Flag, Model, Options
from utils.tasks.common.checks import setting_in_use

NOTE = "classification"
"""Key of the metadata: a JSON object of keys of :data:`USUAL`."""

ORDERS = ("RGB", "BGR")

NORMALISATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    **PIXEL_VALUES,
    "0..255-imagenet": (MEAN, (1 / 255,) * 3),
    "0..255-caffe": ((123.68 / 255, 116.779 / 255, 103.939 / 255), (1 / 255,) * 3),
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616)),
}
"""Ranges of input samples: mean and standard deviation of red, green and blue, for samples in 0..1. The mean of
``0..255-...`` is subtracted from levels. The numbers are those of torchvision, Caffe, CLIP and CIFAR-10."""

SQUASH = "squash"
"""Way to resize: height and width become those of the input, whatever the image's are."""

SHARES = ("0.875", "1", "0.9", "0.95")
"""Usual shares of the resized short side that the central crop shows: 224 of 256, 224 of 224, ..."""

USUAL: dict[str, Any] = {"channel_order": ORDERS[0], "pixel_values": None, "resize": None, "interpolation": None}
"""Defaults; ``None``: by ``preprocess``."""


def resize_way(text: str) -> str:
    """Return the value of ``--resize``: :data:`SQUASH`, or a share. Raises ConfigError for anything else."""
    if _is_way(text):
        return text
    raise ConfigError(f"--resize {text!r} must be {SQUASH}, or a number above 0 and up to 1, such as {SHARES[0]}")


def _is_way(value: Any) -> bool:
    if value == SQUASH:
        return True
    try:
        return isinstance(value, str) and 0.01 <= float(value) <= 1
    except ValueError:
        return False


FLAGS = (
    Flag("--channel_order", "of the model's input (default: as stored, or RGB)", None, choices=ORDERS),
    Flag("--pixel_values", "range of the model's input, or named mean and std (default: as stored)", None,
         choices=tuple(NORMALISATIONS)),
    Flag("--resize", f"share of the resized short side that the central crop shows, such as {SHARES[0]}, or {SQUASH}: "
         "without a crop (default: as stored)", None, metavar="WAY"),
    Flag("--interpolation", "filter to resize with (default: as stored)", None, choices=INTERPOLATIONS),
)  # fmt: skip

_VALID: Mapping[str, Callable[[Any], bool]] = {
    "channel_order": lambda value: value in ORDERS,
    "pixel_values": lambda value: value is None or value in NORMALISATIONS,
    "resize": lambda value: value is None or _is_way(value),
    "interpolation": lambda value: value is None or value in INTERPOLATIONS,
}
_WHAT = {
    "channel_order": "one of " + ", ".join(ORDERS),
    "pixel_values": "one of " + ", ".join(NORMALISATIONS),
    "resize": f"{SQUASH}, or a share as text, such as {SHARES[0]!r}",
    "interpolation": "one of " + ", ".join(INTERPOLATIONS),
}


def now(key: str, model: Model, options: Options) -> Any:
    """Return the value in use of a key of :data:`USUAL`; ``None``: by ``preprocess``."""
    return setting_in_use(key, model, options, NOTE, USUAL, lambda name, value: _VALID[name](value), _WHAT[key])


def _named(key: str, model: Model, options: Options) -> Any:
    """Return the value in use, by name also if it is that of ``preprocess``."""
    value = now(key, model, options)
    if value is None and key == "interpolation":
        return model.stored.image.interpolation
    if value is None and key == "pixel_values":
        stored = model.stored.image.mean, model.stored.image.std
        return next((name for name, one in NORMALISATIONS.items() if one == stored), None)
    return value


EXPORT_SETTINGS = (
    ExportSetting("--channel_order", ORDERS, "prepare", partial(_named, "channel_order")),
    ExportSetting("--pixel_values", tuple(NORMALISATIONS), "prepare", partial(_named, "pixel_values")),
    ExportSetting("--resize", (*SHARES, SQUASH), "prepare", partial(_named, "resize")),
    ExportSetting("--interpolation", INTERPOLATIONS, "prepare", partial(_named, "interpolation"), fine=True),
)
"""Settings that are often wrong after an export."""


def adjusted(how: Mapping[str, Any], model: Model, options: Options, channels: int) -> dict[str, Any]:
    """Return keyword arguments of ``preprocess`` with the settings in use.

    Args:
        how: those of the metadata. channels: of the model's input; a grey one takes the mean of a named normalisation.
    """
    found = dict(how)
    named, way, kind = (now(key, model, options) for key in ("pixel_values", "resize", "interpolation"))
    if named is not None:
        mean, std = NORMALISATIONS[named]
        one = channels == 1
        found |= {"mean": (sum(mean) / 3,) if one else mean, "std": (sum(std) / 3,) if one else std}
    if way is not None:
        height, width = found["crop_shape"]
        found["resize_shape"] = (height, width) if way == SQUASH else round(max(height, width) / float(way))
    if kind is not None:
        found["interpolation"] = kind
    return found


def in_order(
    convert: Callable[..., Array], form: ImageForm | None, model: Model, options: Options
) -> Callable[..., Array]:
    """Return a function from images to arrays whose channels have the order in use; ``form``: of the input."""
    if now("channel_order", model, options) == ORDERS[0] or (form is not None and form.channels == 1):
        return convert
    return partial(_reversed, convert, form is not None and form.last)


def _reversed(convert: Callable[..., Array], last: bool, images: Sequence[Any], out: Array | None = None) -> Array:
    """Return images with blue first; ``last``: the channels are the last axis."""
    found = convert(images, out=out)
    planes = found.transpose(0, 3, 1, 2) if last else found
    planes[:, [0, 2]] = planes[:, [2, 0]]
    return found
