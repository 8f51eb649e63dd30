"""From images to a model's inputs, and from its outputs to maps of the images' sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from engine import Array, DataError, InputError, channels_last
from tecoinfer_modelzoo.text import shape_text
from utils.datasets.image.dense_maps import MappedImage, TruthFile
from utils.postprocess.image.class_maps import View
from utils.preprocess.image.forms import ImageForm, image_form
from utils.preprocess.image.images import open_image
from utils.preprocess.image.lines import PIXEL_VALUES
from utils.preprocess.pytorch.classification import preprocess
from utils.tasks import Model, Options
from utils.tasks.dense_regression import settings


class DenseMap(NamedTuple):
    """A prediction: a number for every pixel of the (left) image, and the confidence or ``None``, H x W float32."""

    values: Array
    confidence: Array | None


class Context(NamedTuple):
    """Context of a sample."""

    view: View  # placement of the image in the input
    truth: Array | None = None  # H x W float32, 0 where it is unknown


def prepared(
    sample: MappedImage, model: Model, options: Options, given: tuple[int, int] | None
) -> tuple[list[Array], Context]:
    """Return a sample's images as the model's inputs, without the batch, and its context.

    Args:
        sample: images and true values. model, options: of the run. given: height and width by ``--input_size``.

    Raises:
        DataError: a file cannot be read, or the sizes of images and true values differ.
    """
    images = [open_image(path) for path in sample.images]
    left = images[0]
    for path, image in zip(sample.images, images, strict=True):
        if image.size != left.size:
            raise DataError(
                f"{path}: {image.width} x {image.height} pixels, and the left image has {left.width} x {left.height}; "
                "give rectified images of one size"
            )
    size = left.height, left.width
    truth = None if sample.truth is None else _truth(sample.truth, size, model, options)
    form = image_form(model.inputs[0], model.ckpt, model.dtype)
    height, width = given or form.size
    if height is None or width is None:
        multiple = settings.now("multiple", model, options)
        tall, wide = (-(-side // multiple) * multiple for side in size)
        view = View(size, (0, 0), size, (tall, wide))
    else:
        view = View(size, (0, 0), (height, width), (height, width))
    arrays = [_input(image, form, view, model, options) for image in images]
    return arrays[:: 1 if settings.now("view_order", model, options) == "left_right" else -1], Context(view, truth)


def _truth(file: TruthFile, size: tuple[int, int], model: Model, options: Options) -> Array:
    truth, (least, most) = file.read(), settings.range_of(model, options)
    if truth.shape != size:
        raise DataError(
            f"{file.path}: {truth.shape[1]} x {truth.shape[0]} values for an image of {size[1]} x {size[0]} pixels; "
            "give true values of the image's size"
        )
    if not ((truth > 0) & (truth >= least) & (truth <= (most or np.inf))).any():
        raise DataError(f"{file.path}: no value is known between --least and --most; check --value_scale")
    return truth


def _input(image: Image.Image, form: ImageForm, view: View, model: Model, options: Options) -> Array:
    """Return an image as one of the model's inputs, without the batch."""
    notes, values = model.stored.image, settings.now("pixel_values", model, options)
    mean, std = (notes.mean, notes.std) if values is None else PIXEL_VALUES[values]
    how: dict[str, Any] = {**form.scale(mean, std, model.ckpt), "interpolation": notes.interpolation}
    (ready,) = form.opened([image])
    if settings.now("channel_order", model, options) == "BGR" and ready.mode == "RGB":
        ready = Image.merge("RGB", ready.split()[::-1])
    array = preprocess(ready, "float32", view.extent, view.extent, **how)
    room = [(0, whole - part) for whole, part in zip(view.canvas, view.extent, strict=True)]
    found: Array = form.given(np.pad(array, [(0, 0), (0, 0), *room], mode="edge"))[0]
    return found


def maps_of(output: Any, count: int, model: Model) -> Array:
    """Return an output as N x h x w float32. Raises InputError if it is not one number per pixel of N images."""
    found = np.asarray(output, np.float32)
    if found.ndim == 4 and 1 in (found.shape[1], found.shape[3]):
        found = found[:, 0] if found.shape[1] == 1 else found[..., 0]
    if found.ndim != 3 or len(found) != count:
        raise InputError(
            f"{model.ckpt}: its output {shape_text(np.shape(output))} for {count} images is not one number per pixel: "
            "N x 1 x h x w, N x h x w x 1 or N x h x w"
        )
    return found


def views_of(contexts: Sequence[Context], model: Model) -> list[View]:
    """Return the placement of the images in the input of their batch, which is padded to the largest image or plan."""
    shape = model.inputs[0].shape
    first = 1 if channels_last(shape) else 2
    canvas = []
    for axis in (0, 1):
        longest = max(context.view.canvas[axis] for context in contexts)
        planned = [size for size in model.sizes(0, first + axis) if size >= longest]
        canvas.append(min(planned, default=longest))
    return [context.view._replace(canvas=(canvas[0], canvas[1])) for context in contexts]
