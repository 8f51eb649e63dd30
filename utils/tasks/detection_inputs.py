"""Pictures put into a detector's input in its framework's own way: what an export stored as ``fit``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, ConfigError
from utils.preprocess.image.fits import Fit, fitted
from utils.preprocess.image.forms import picture_form
from utils.preprocess.image.images import open_image
from utils.preprocess.image.letterbox import Geometry
from utils.tasks.model import Model
from utils.tasks.prepared import Prepared

MASK = "pixel_mask"
"""The input that says which pixels are of the picture, 1 or 0, in DETR's exports."""


def fitted_inputs(
    samples: Sequence[Path],
    model: Model,
    size: tuple[int, int] | None,
    found: Any,
    normalise: Callable[[Array], Array],
    out: Array | None = None,
) -> Prepared:
    """Put pictures into the model's first input, and their outlines into ``pixel_mask`` where it has one.

    What a picture does not cover is 0 after the normalisation.

    Args:
        samples: paths of pictures.
        model: its first input is N x 3 x H x W.
        size: height and width of the input in pixels; ``None`` where they are open.
        found: the stored ``fit``.
        normalise: from 3 x h x w RGB levels, 0 to 255, to what the model takes.
        out: an array of N x 3 x H x W to write into.

    Raises:
        DataError: a picture cannot be read.
        ConfigError: the input's size is open and the fit needs one, or the model has inputs that pictures do not fill.
    """
    other = [spec.name for spec in model.inputs[1:] if spec.name != MASK]
    if other:
        raise ConfigError(f"{model.ckpt}: its input {other[0]!r} is no picture's; run it with a task that fills it")
    spec = model.inputs[0]
    if not picture_form(spec, model.ckpt, model.dtype).plain:
        raise ConfigError(
            f"{model.ckpt}: its input {spec.name!r} is {list(spec.shape)} {model.dtype}; the stored 'fit' puts "
            "pictures into N x 3 x H x W floats only: transpose and convert in the graph, or pass --resize"
        )
    fit, notes = Fit.read(found, model.ckpt), model.stored.picture
    pictures, masks, contexts = list[Array](), list[Array](), list[Geometry]()
    for path in samples:
        pixels, geometry, canvas = fitted(open_image(path), fit, size, notes.interpolation)
        height, width = pixels.shape[1:]
        picture, mask = np.zeros((3, *canvas), model.dtype), np.zeros(canvas, np.int64)
        picture[:, :height, :width] = normalise(pixels)
        mask[:height, :width] = 1
        pictures.append(picture)
        masks.append(mask)
        contexts.append(geometry)
    inputs = [pictures, masks][: len(model.inputs)]
    if size is None:
        return Prepared(inputs, contexts)
    shapes = ((3, *size), size)
    stacked = [np.stack(part) if part else np.empty((0, *shape)) for part, shape in zip(inputs, shapes, strict=False)]
    if out is not None and len(stacked) == 1:
        out[...] = stacked[0]
        return Prepared([out], contexts)
    return Prepared(stacked, contexts)
