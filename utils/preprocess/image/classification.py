"""Preprocessing of image classifiers, shared by PyTorch and PaddlePaddle, which differ in the offset of the crop.

Both frameworks resize with one of Pillow's filters, divide by 255, subtract a mean and divide by a standard deviation
in float32. float32 is computed in these steps. float16 is looked up in a table of 256 such values per channel, each
rounded once, because NumPy's conversion of a whole image is slower than the look-up.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache, lru_cache, partial
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from engine import DTYPES, ConfigError, DataError
from utils.preprocess.image.images import Decoded, decode_image
from utils.preprocess.image.kernels import can_resize, resize_into
from utils.preprocess.image.modes import CROP, DECODES, INTERPOLATIONS, MEAN, RESIZE, STD, channel_numbers
from utils.preprocess.image.resizing import CropStart, Part, part_of, resize_part, torchvision_start

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
ImageSource: TypeAlias = "str | os.PathLike[str] | Image.Image"
Shape: TypeAlias = "int | Sequence[int]"
Channels: TypeAlias = "float | Sequence[float]"
"""One number per RGB channel, or one for all three."""

_Numbers: TypeAlias = tuple[float, ...]

_FILTERS = {name: Image.Resampling[name.upper()] for name in INTERPOLATIONS}

_SCALES = 64
"""Maximum number of pairs of mean and standard deviation whose tables are cached."""

_REDUCED_MARGIN = 2
"""Minimum size of a JPEG decoded at a reduced scale, in resized sides; with 1 it differs by up to 26 levels."""

_BLOCK_BYTES = 1 << 17
"""Samples normalised at once: small images share NumPy's overhead, and the block stays in the CPU's cache."""

_FREED_BYTES = 1 << 23
"""Bytes allocated and freed once so that glibc's malloc keeps twice as much; its bound is 32 MiB."""


class ImagePreprocessor:
    """Resizes, crops and normalises images into one N x 3 x H x W array.

    Arguments are checked once, when the object is made; it can be called from several threads and pickled. Raises
    ConfigError if the dtype, way to decode or interpolation is unknown, or a shape, mean or std is invalid.

    Args:
        dtype, resize_shape, crop_shape, decode, mean, std, interpolation: see
            :func:`utils.preprocess.pytorch.classification.preprocess`. The differences of ``decode`` from ``"exact"``,
            in levels of 1/255 before normalisation, are those of nine photographs of scikit-image and scikit-learn, at
            seven sizes from 500 x 375, with ``bilinear``. ``"fused"``: one pixel in a thousand differs, by 1 level; one
            in seven, by at most 2, if Pillow resizes the part's rows and columns in the other order (as of a 333 x 500
            image). ``"reduced"``: in addition, a JPEG file is decoded at 1/2, 1/4 or 1/8 of its size if both sides stay
            at least twice as long as resized; it differs by up to 7 levels, on average by 0.2.
        crop_start: the framework's rule for the first pixel of the crop.
    """

    def __init__(
        self,
        dtype: str = "float16",
        resize_shape: Shape = RESIZE,
        crop_shape: Shape = CROP,
        crop_start: CropStart = torchvision_start,
        *,
        decode: str = "exact",
        mean: Channels = MEAN,
        std: Channels = STD,
        interpolation: str = "bilinear",
    ) -> None:
        resize, crop = _lengths(resize_shape, "resize_shape"), _lengths(crop_shape, "crop_shape")
        _check_names(dtype, decode, interpolation)
        self.dtype, self.crop = np.dtype(dtype), (crop[0], crop[-1])
        self.at_least = max(resize) * _REDUCED_MARGIN if decode == "reduced" else None
        fused, self.resample = decode != "exact", _FILTERS[interpolation]
        self.part = partial(part_of, resize=resize, crop=self.crop, crop_start=crop_start, fused=fused)
        self.mean, self.std = _channels(mean, "mean"), _channels(std, "std")
        _check_range(self.mean, self.std, dtype)

    def __call__(self, images: ImageSource | Sequence[ImageSource], out: Array | None = None) -> Array:
        """Return the images (a path, a PIL image, or a sequence of either) as one array.

        With ``out``, an array of the result's shape and dtype to write into, no other memory of its size is allocated.
        Raises ConfigError if ``out`` does not fit, and DataError if the sequence is empty, or an element has another
        type or cannot be decoded.
        """
        batch = _listed(images)
        _keep_freed_memory()
        result = _output(out, (len(batch), 3, *self.crop), self.dtype)
        if can_resize(self.resample) and result[0].flags.c_contiguous:
            table = _table(self.mean, self.std, self.dtype)
            for row, (index, image) in zip(result, enumerate(batch), strict=True):
                decoded, part = self._decoded(image, index)
                resize_into(decoded.image, part, self.resample, row, table)
            return result
        self._by_blocks(batch, result)
        return result

    def _by_blocks(self, batch: Sequence[ImageSource], result: Array) -> None:
        """Fill the result with Pillow and NumPy, a block of images at a time."""
        together = max(1, _BLOCK_BYTES // (3 * self.crop[0] * self.crop[1]))
        block = np.empty((min(together, len(batch)), 3, *self.crop), np.uint8)
        for first in range(0, len(batch), len(block)):
            part = batch[first : first + len(block)]
            for planes, (index, image) in zip(block, enumerate(part, first), strict=False):
                decoded, wanted = self._decoded(image, index)
                _fill(planes, resize_part(decoded.image, wanted, self.resample))
            _normalise(block[: len(part)], result[first : first + len(part)], self.mean, self.std)

    def _decoded(self, image: ImageSource, index: int) -> tuple[Decoded, Part]:
        """Return an image of the batch, and the part of it to resize."""
        name = f"image {index}" if isinstance(image, Image.Image) else str(image)
        decoded = decode_image(image, name, self.at_least)
        return decoded, self.part(decoded, name=name)


@cache
def _keep_freed_memory() -> None:
    """Make malloc keep the memory of one image for the next.

    glibc returns the end of its heap to the system when more than a threshold of it is free, and every page allocated
    again costs a page fault: up to 0.5 ms for an image of 500 x 375. Freeing a large block raises the threshold to
    twice its size (mallopt(3), M_MMAP_THRESHOLD). The block's pages are never touched.
    """
    np.empty(_FREED_BYTES, np.uint8)


def _listed(images: ImageSource | Sequence[ImageSource]) -> Sequence[ImageSource]:
    """Return the batch as a sequence with at least one element."""
    if isinstance(images, (str, os.PathLike, Image.Image)):
        return [images]
    if not isinstance(images, Sequence):
        raise DataError(f"cannot preprocess a {type(images).__name__}; pass a path, a PIL image, or a list of either")
    if not images:
        raise DataError("cannot preprocess an empty list; pass at least one path or PIL image")
    return images


def _output(out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return ``out`` if it fits, or a new array if it is ``None``."""
    if out is None:
        return np.empty(shape, dtype)
    if not isinstance(out, np.ndarray):
        raise ConfigError(f"out is a {type(out).__name__}; pass a NumPy array of shape {shape} and dtype {dtype}")
    if out.shape != shape or out.dtype != dtype:
        raise ConfigError(f"out has shape {out.shape} and dtype {out.dtype}; pass one of shape {shape} and {dtype}")
    if not out.flags.writeable:
        raise ConfigError(f"out of shape {shape} is read-only; pass an array that may be written to")
    return out


def _fill(planes: Array, image: Image.Image) -> None:
    """Copy an image's samples into a 3 x H x W uint8 array; grey is copied to all three planes."""
    if image.mode == "L":
        planes[...] = np.asarray(image)
        return
    _, height, width = planes.shape
    # "RGB;L" stores the red, green and blue samples of a row one after another, so the copy moves rows, not samples
    rows = np.frombuffer(image.tobytes("raw", "RGB;L"), np.uint8).reshape(height, 3, width)
    planes[...] = rows.transpose(1, 0, 2)


def _normalise(block: Array, out: Array, mean: _Numbers, std: _Numbers) -> None:
    """Write (samples / 255 - mean) / std of N x 3 x H x W uint8 samples into a float array of that shape."""
    if out.dtype == np.float16:
        for channel, values in enumerate(_table(mean, std, out.dtype)):
            # uint8 indices need no clipping; mode="clip" avoids the copy of `out` that the default makes
            np.take(values, block[:, channel], out=out[:, channel], mode="clip")
        return
    middle, spread = _statistics(mean, std)
    np.divide(block, np.float32(255), out=out, dtype=np.float32)
    np.subtract(out, middle, out=out)
    np.divide(out, spread, out=out)


@lru_cache(_SCALES)
def _statistics(mean: _Numbers, std: _Numbers) -> tuple[Array, Array]:
    """Return mean and standard deviation as 3 x 1 x 1 float32, or 1 x 1 x 1 for all channels."""
    middle, spread = (np.array(values, np.float32).reshape(-1, 1, 1) for values in (mean, std))
    return middle, spread


@lru_cache(_SCALES)
def _table(mean: _Numbers, std: _Numbers, dtype: np.dtype[Any]) -> Array:
    """Return the normalised value of every sample, 3 x 256: computed in float32, then rounded once for float16."""
    samples = np.broadcast_to(np.arange(256, dtype=np.uint8), (3, 1, 256))
    table = np.empty((1, 3, 1, 256), np.float32)
    _normalise(samples[None], table, mean, std)
    return table.reshape(3, 256).astype(dtype)


def _channels(values: Channels, name: str) -> _Numbers:
    """Return a mean or standard deviation as one number, or as three."""
    if values is MEAN or values is STD:  # the check takes 1 us, a hundredth of a small image
        return values
    numbers = channel_numbers(values, name)
    if numbers is None or len(numbers) not in (1, 3):
        positive = " above 0" if name == "std" else ""
        raise ConfigError(f"{name}={values!r} must be three numbers{positive}, one per RGB channel, or one for all")
    return numbers


@lru_cache(_SCALES)
def _check_range(mean: _Numbers, std: _Numbers, dtype: str) -> None:
    """Raise ConfigError if normalised samples exceed the range of ``dtype``, as with a standard deviation of 0."""
    middle, spread = _statistics(mean, std)
    with np.errstate(all="ignore"):
        largest = max(float(np.abs((np.float32(end) - middle) / spread).max()) for end in (0, 1))
    if not largest <= float(np.finfo(dtype).max):  # NaN too
        raise ConfigError(f"mean={mean} and std={std} make samples that {dtype} cannot hold; pass a larger std")


def _check_names(dtype: str, decode: str, interpolation: str) -> None:
    named = (("dtype", dtype, DTYPES), ("decode", decode, DECODES), ("interpolation", interpolation, INTERPOLATIONS))
    for kind, name, known in named:
        if name not in known:
            raise ConfigError(f"unknown {kind} {name!r}; use one of: {', '.join(known)}")


def _lengths(shape: Shape, name: str) -> tuple[int, ...]:
    """Return one or two positive lengths in pixels."""
    lengths = (
        (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape) if isinstance(shape, (list, tuple)) else ()
    )
    whole = all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n >= 1 for n in lengths)
    if len(lengths) not in (1, 2) or not whole:
        what = "a positive whole number of pixels, or a (height, width) pair of them"
        raise ConfigError(f"{name}={shape!r} must be {what}")
    return tuple(int(length) for length in lengths)
