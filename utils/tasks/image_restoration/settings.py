"""Settings of image restoration by flags and metadata, and levels of images as a model's numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from PIL import Image

from engine import Array, ConfigError, InputError, TensorSpec, channels_last
from tecoinfer_modelzoo.text import shape_text
from utils.datasets.image.restored import DEGRADATIONS, Degradation
from utils.metrics.images.quality import KINDS
from utils.preprocess.image.forms import ImageForm, image_form
from utils.tasks import ExportSetting, Flag, Model, Options, str2bool
from utils.tasks.common.checks import setting_in_use
from utils.tasks.common.image_input import SIZE_FLAG

NOTE = "restoration"
"""Key of the metadata: a JSON object of keys of :data:`USUAL`."""

RANGES = {"0..1": (0.0, 1.0), "-1..1": (-1.0, 2.0), "0..255": (0.0, 255.0)}
"""Ranges of a model's numbers: the lowest one, and the distance to the highest."""

ORDERS = ("RGB", "BGR", "Y")
"""``Y``: one channel, the luma of Pillow's full-range YCbCr; both chroma channels are enlarged by a bicubic filter."""

OUTPUTS = ("image", "residual", "noise")
"""``residual`` is added to the input (enlarged by a bicubic filter to the output's size), ``noise`` is subtracted."""

USUAL: dict[str, Any] = {
    "pixel_values": "0..1",
    "channel_order": None,
    "output": "image",
    "scale": 0,
    "multiple": 1,
    "tile_overlap": 16,
    "degradation": None,
    "noise_sigma": 25.0,
    "y_channel": False,
    "crop_border": 0,
}
"""Defaults. ``scale``: height of the output per height of the input; 0: by the model's shapes. ``multiple``: the sides
of an input without a size are filled up to multiples of this. The others are flags."""

_ONE_OF: dict[str, tuple[Any, ...]] = {
    "pixel_values": tuple(RANGES),
    "channel_order": (None, *ORDERS),
    "output": OUTPUTS,
}
_ONE_OF |= {"degradation": (None, *DEGRADATIONS), "y_channel": (True, False)}
_LEAST = {"scale": 0, "multiple": 1, "tile_overlap": 0, "noise_sigma": 0, "crop_border": 0}

FLAGS = (
    SIZE_FLAG,
    Flag("--tile_overlap", "least overlap of the tiles of an image larger than the input, in pixels of the input "
         f"(default: as stored, or {USUAL['tile_overlap']})", None, int),
    Flag("--pixel_values", "range of the model's numbers (default: as stored, or 0..1)", None, choices=tuple(RANGES)),
    Flag("--channel_order", "channels of the model (default: as stored, or RGB, and Y for one channel)", None,
         choices=ORDERS),
    Flag("--output", "what the model computes (default: as stored, or image)", None, choices=OUTPUTS),
    Flag("--scale", "height of the original per height of the degraded image (default: as stored, or by the model's "
         "shapes)", None, int),
    Flag("--degradation", "how degraded images are generated where only originals are given (default: as stored, or by "
         "the scale)", None, choices=DEGRADATIONS, scripts=("valid",)),
    Flag("--noise_sigma", "standard deviation of --degradation noise, in levels of 0..255 (default: as stored, or 25)",
         None, float, scripts=("valid",)),
    Flag("--noise_seed", "seed of --degradation noise", 0, int, scripts=("valid",)),
    Flag("--metric", "the metric of record; the other one is reported too", KINDS[0], choices=KINDS,
         scripts=("valid",)),
    Flag("--y_channel", "compare the Y channel, as papers of super-resolution do (default: as stored, or false)", None,
         str2bool, nargs="?", scripts=("valid",)),
    Flag("--crop_border", "pixels at each edge that are not compared (default: as stored, or 0)", None, int,
         scripts=("valid",)),
)  # fmt: skip


def now(key: str, model: Model, options: Options) -> Any:
    """Return the value in use of a key of :data:`USUAL` (:func:`.setting_in_use`)."""
    allowed = _ONE_OF.get(key)
    what = f"a number of at least {_LEAST[key]}" if allowed is None else "one of " + ", ".join(map(str, allowed))
    return setting_in_use(key, model, options, NOTE, USUAL, _valid, what)


def _valid(key: str, value: Any) -> bool:
    if key in _ONE_OF:
        return value in _ONE_OF[key]
    kinds = (int, float) if key == "noise_sigma" else (int,)
    return isinstance(value, kinds) and not isinstance(value, bool) and value >= _LEAST[key]


def order_of(model: Model, options: Options) -> str:
    """Return the channels of the model: by the flag, the metadata, or their number.
    Raises ConfigError if their number is another one."""
    form = form_of(model)
    order = str(now("channel_order", model, options) or ("Y" if form.channels == 1 else "RGB"))
    if (order == "Y") != (form.channels == 1):
        raise ConfigError(
            f"{model.ckpt}: its input has {form.channels} channel{'' if form.channels == 1 else 's'}, which are not "
            f"{order}; pass --channel_order {'Y' if form.channels == 1 else 'RGB or BGR'}"
        )
    return order


EXPORT_SETTINGS = (
    ExportSetting("--output", OUTPUTS, "decode", partial(now, "output")),
    ExportSetting("--channel_order", ORDERS[:2], "prepare", order_of),
    ExportSetting("--pixel_values", tuple(RANGES), "prepare", partial(now, "pixel_values")),
)
"""Settings that are often wrong after an export."""


def form_of(model: Model) -> ImageForm:
    """Return the image format of the model's first input. Raises ConfigError if it does not fit images."""
    return image_form(model.inputs[0], model.ckpt, model.dtype)


def scale_of(model: Model, options: Options) -> int | None:
    """Return the scale by the flag, the metadata, or sizes or symbols of the model; ``None``: unknown."""
    known = now("scale", model, options)
    if known:
        return int(known)
    tall, high = (_height(one) for one in (model.inputs[0], model.outputs[0]))
    if isinstance(tall, int) and isinstance(high, int):
        return high // tall if high % tall == 0 else None
    return 1 if tall is not None and tall == high else None


def _height(spec: TensorSpec) -> int | str | None:
    """Return the size or symbol of an image's height; ``None``: unknown."""
    axis = 1 if channels_last(spec.shape) else 2
    if len(spec.shape) != 4 or spec.shape[axis] is not None:
        return spec.shape[axis] if len(spec.shape) == 4 else None
    return spec.symbols[axis] if spec.symbols else None


def degradation_of(model: Model, options: Options) -> Degradation:
    """Return how degraded images are generated. Raises ConfigError if the scale is unknown."""
    scale, kind = scale_of(model, options), now("degradation", model, options)
    if scale is None:
        raise ConfigError(
            f"{model.ckpt}: the size of its output is open, so the degraded images cannot be generated; pass --scale, "
            "or pairs of images"
        )
    sigma = float(now("noise_sigma", model, options))
    return Degradation(kind or ("bicubic" if scale > 1 else "noise"), scale, sigma, options.noise_seed)


def planes_of(pixels: Array, order: str) -> Array:
    """Return the channels of an image, H x W x 3 uint8 RGB to C x H x W uint8."""
    if order == "Y":
        return np.asarray(Image.fromarray(pixels).convert("YCbCr"))[None, :, :, 0]
    return pixels[:, :, :: 1 if order == "RGB" else -1].transpose(2, 0, 1)


def to_numbers(planes: Array, values: str) -> Array:
    """Return levels, 0..255, as a model's numbers in float32."""
    low, span = RANGES[values]
    return planes.astype(np.float32) * np.float32(span / 255) + np.float32(low)


def to_levels(numbers: Array, values: str) -> Array:
    """Return a model's numbers as levels in float32, neither rounded nor limited to 0..255."""
    low, span = RANGES[values]
    found: Array = (numbers.astype(np.float32) - np.float32(low)) * np.float32(255 / span)
    return found


def as_image(levels: Array, order: str, low: Array) -> Array:
    """Return levels, C x H x W, as an image, H x W x 3 uint8 RGB; NaN becomes black.

    Args:
        levels: of the channels ``order``. low: the degraded image, whose chroma is used for ``Y``.
    """
    rounded = np.rint(np.nan_to_num(levels, nan=0.0, posinf=255.0, neginf=0.0)).clip(0, 255).astype(np.uint8)
    if order != "Y":
        return np.ascontiguousarray(rounded.transpose(1, 2, 0)[:, :, :: 1 if order == "RGB" else -1])
    size = rounded.shape[2], rounded.shape[1]
    colours = Image.fromarray(low).convert("YCbCr").resize(size, Image.Resampling.BICUBIC)
    bands = (Image.fromarray(rounded[0]), *colours.split()[1:])
    return np.asarray(Image.merge("YCbCr", bands).convert("RGB"))


def maps_of(outputs: Any, tiles: Array, channels: int, model: Model) -> list[Array]:
    """Return the model's first output for each tile, C x H x W.

    Raises InputError if it is not an image of the tile's size times a whole number.
    """
    found = np.asarray(outputs[0] if isinstance(outputs, (list, tuple)) else outputs)
    last = found.ndim == 4 and channels_last(found.shape)
    maps = found.transpose(0, 3, 1, 2) if last else found
    height, width = tiles.shape[-2:]
    fits = maps.ndim == 4 and maps.shape[:2] == (len(tiles), channels)
    scale = maps.shape[2] // height if fits else 0
    if not scale or maps.shape[2:] != (scale * height, scale * width):
        raise InputError(
            f"{model.ckpt}: its output {shape_text(found.shape)} for {len(tiles)} inputs of {channels} x {height} x "
            f"{width} is not an image of the same channels whose sides are those of the input times a whole number"
        )
    return list(maps)
