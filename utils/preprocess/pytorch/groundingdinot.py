"""Historical interface of Grounding DINO's preprocessing: images and a caption."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from engine import Array, ConfigError, InputError, declared_shapes
from utils.preprocess.image.images import upright_size
from utils.preprocess.pytorch.classification import preprocess as normalised
from utils.preprocess.text.captions import encoded
from utils.torch_array import as_array, like

__all__ = ["last_read", "preprocess"]

_read: list[tuple[int, int]] = []
"""Height and width of the files read by the last call."""


def last_read() -> list[tuple[int, int]]:
    """Return height and width in pixels of the image files that the last :func:`preprocess` read, in order."""
    return list(_read)


class _Usual(int):
    """Type of the default size, to distinguish it from the same number given by a caller."""


SIZE = _Usual(320)


def preprocess(
    images: Any, tokenizer: Any, caption: str, half: bool = False, resize_shape: int = SIZE
) -> tuple[Any, Any, Any, Any]:
    """Return the four inputs of a grounding detector.

    Args:
        images: a path or a PIL image, or a list of these, which are stretched to the square and normalised with
            ImageNet's mean and standard deviation; or N x 3 x H x W floats, array or tensor, which are already
            normalised and only stretched.
        tokenizer: the result of ``get_tokenlizer``, or a fast tokenizer of transformers.
        caption: the classes to look for: ``"cat . dog ."``.
        half: return images as float16 instead of float32.
        resize_shape: side of the square in pixels; by default the ``input_size`` of the script's open engine, and 320
            without an engine.

    Returns images N x 3 x S x S, and ``input_ids``, ``token_type_ids`` and ``attention_mask``, each N x L int64, the
    same for every image. L is the number of the caption's tokens (195 for COCO's 80 classes), or the engine's length if
    that is larger; all three are 0 at padding. Tensors for tensors, else arrays. Raises ConfigError if the size is not
    positive, or the caption is too long for the engine, InputError if the images have another shape or type, or the
    caption is empty, and DataError if an image cannot be read.
    """
    side = _side() if isinstance(resize_shape, _Usual) else resize_shape
    if not isinstance(side, (int, np.integer)) or side < 1:
        raise ConfigError(f"resize_shape {side!r} must be the side of a square in pixels, such as 800")
    dtype = "float16" if half else "float32"
    _read.clear()
    if _is_image(images) or (isinstance(images, (list, tuple)) and all(map(_is_image, images))):
        pixels = normalised(images, dtype, (side, side), (side, side))
        files = images if isinstance(images, (list, tuple)) else [images]
        if not any(isinstance(file, Image.Image) for file in files):
            _read.extend(upright_size(path)[::-1] for path in files)
    else:
        pixels = _stretched(as_array(images, "images"), int(side)).astype(dtype)
    texts = [np.tile(row, (len(pixels), 1)) for row in _padded(encoded(tokenizer, caption))]
    first, second, third, fourth = (like(array, images) for array in (pixels, *texts))
    return first, second, third, fourth


def _is_image(image: object) -> bool:
    return isinstance(image, (str, os.PathLike, Image.Image))


def _side() -> int:
    """Return the side of the images of the open engine, or the default."""
    shape = next((shape for shape in declared_shapes() if len(shape) == 4), ())
    height, width = shape[2:] or (None, None)
    if height is None or width is None:
        return int(SIZE)
    if height != width:
        raise ConfigError(f"the engine takes images of {height}x{width}; this preprocessing makes squares")
    return height


def _padded(rows: Sequence[Array]) -> list[Array]:
    """Return the tokens padded to the length of the open engine; unchanged without one."""
    length = next((shape[1] for shape in declared_shapes() if len(shape) == 2), None)
    if length is None:
        return list(rows)
    if len(rows[0]) > length:
        raise ConfigError(
            f"the caption has {len(rows[0])} tokens, the engine's input_size has {length}; "
            f"open the engine for {len(rows[0])} or ask for fewer classes"
        )
    return [np.pad(row, (0, length - len(row))) for row in rows]


def _stretched(images: Array, side: int) -> Array:
    """Return N x 3 x side x side float32, averaged when images shrink, as Pillow does with files."""
    if images.ndim != 4 or images.shape[1] != 3 or images.dtype.kind != "f" or 0 in images.shape:
        raise InputError(
            f"images are {images.dtype} of shape {images.shape}; pass a path, or normalised floats N x 3 x H x W"
        )
    planes = images.astype(np.float32, copy=False)
    if planes.shape[2:] == (side, side):
        return planes
    found = np.empty((*planes.shape[:2], side, side), np.float32)
    for place in np.ndindex(*planes.shape[:2]):
        found[place] = Image.fromarray(planes[place]).resize((side, side), Image.Resampling.BILINEAR)
    return found
