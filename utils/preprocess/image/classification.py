"""What PyTorch's and Paddle's classification preprocessing share: everything but where the crop begins.

Both frameworks resize with one of Pillow's filters, divide by 255, and subtract a mean and divide by a standard
deviation in float32. float32 is computed so, and float16 looked up in a table of 256 such values per channel, each
rounded once: NumPy's own rounding of a picture takes longer than the look-up.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from engine import DTYPES, ConfigError, DataError
from utils.preprocess.image.images import Decoded, decode_file, decode_image
from utils.preprocess.image.modes import DECODES, INTERPOLATIONS, MEAN as MEAN, STD as STD, channel_numbers
from utils.preprocess.image.resizing import CropStart, resize_and_crop

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Picture: TypeAlias = "str | os.PathLike[str] | Image.Image"
Shape: TypeAlias = "int | Sequence[int]"
Channels: TypeAlias = "float | Sequence[float]"
"""A number per RGB channel, or one for all three."""

_Numbers: TypeAlias = tuple[float, ...]

_FILTERS = {name: Image.Resampling[name.upper()] for name in INTERPOLATIONS}

_SCALES = 64
"""Pairs of mean and standard deviation whose tables are kept."""

_REDUCED_MARGIN = 2
"""How many times the resized side a JPEG at a reduced scale keeps; at 1 a picture differs by up to 26 levels."""

_BLOCK_BYTES = 1 << 17
"""Samples normalised at once: small pictures share NumPy's overhead, and the block stays in the cache."""

_FREED_BYTES = 1 << 23
"""What is allocated and freed once to teach glibc's malloc to keep twice as much; less than its bound of 32 MiB."""


def preprocess_pictures(
    pictures: Picture | Sequence[Picture],
    dtype: str,
    resize_shape: Shape,
    crop_shape: Shape,
    crop_start: CropStart,
    *,
    out: Array | None = None,
    decode: str = "exact",
    mean: Channels = MEAN,
    std: Channels = STD,
    interpolation: str = "bilinear",
) -> Array:
    """Resize, crop and normalise pictures straight into one N x 3 x H x W array of ``dtype``.

    Args:
        pictures: a path, a PIL image, or a sequence of either.
        dtype: ``"float16"`` (the float32 result rounded once) or ``"float32"``.
        resize_shape: length of the short side in pixels, or ``(height, width)``.
        crop_shape: side of the square crop in pixels, or ``(height, width)``; a smaller picture is padded with black.
        crop_start: the framework's rule for where the crop begins.
        out: an array of the result's shape and dtype to write into; nothing else of its size is then allocated.
        decode: one of :data:`DECODES`. The differences are from ``"exact"``, in levels of 1/255 before normalising,
            on nine photographs that scikit-image and scikit-learn ship, at seven sizes from 500 x 375, ``bilinear``.

            - ``"exact"``: the frameworks' own pixels, bit by bit.
            - ``"fused"``: only the crop is resized. One pixel in a thousand differs, by 1 level; one in seven, by at
              most 2, where Pillow resizes the part's rows and columns in the other order (a 333 x 500 picture).
            - ``"reduced"``: also, a JPEG file is decoded at 1/2, 1/4 or 1/8 of its size where both sides stay at least
              twice as long as resized. Such a picture differs by up to 7 levels, on average by 0.2.
        mean, std: what is subtracted from samples in 0..1, and what they are then divided by.
        interpolation: one of :data:`INTERPOLATIONS`.

    Raises:
        ConfigError: an unknown dtype, way to decode or interpolation, an impossible shape, mean or std, or an ``out``
            that does not fit.
        DataError: no picture, an element that is neither path nor picture, or one that cannot be decoded.
    """
    resize, lengths = _lengths(resize_shape, "resize_shape"), _lengths(crop_shape, "crop_shape")
    crop = (lengths[0], lengths[-1])
    _check_names(dtype, decode, interpolation)
    resample, fused = _FILTERS[interpolation], decode != "exact"
    scale = _channels(mean, "mean"), _channels(std, "std")
    _check_range(*scale, dtype)
    batch = _listed(pictures)
    _keep_freed_memory()
    result = _output(out, (len(batch), 3, *crop), np.dtype(dtype))
    together = max(1, _BLOCK_BYTES // (3 * crop[0] * crop[1]))
    block = np.empty((min(together, len(batch)), 3, *crop), np.uint8)
    for first in range(0, len(batch), len(block)):
        part = batch[first : first + len(block)]
        for planes, (index, picture) in zip(block, enumerate(part, first), strict=False):
            name = f"picture {index}" if isinstance(picture, Image.Image) else str(picture)
            decoded = _decoded(picture, name, max(resize) * _REDUCED_MARGIN if decode == "reduced" else None)
            image = resize_and_crop(decoded, resize, crop, crop_start, fused=fused, name=name, resample=resample)
            _fill(planes, image)
        _normalise(block[: len(part)], result[first : first + len(part)], *scale)
    return result


@cache
def _keep_freed_memory() -> None:
    """Let malloc keep the memory of one picture for the next.

    glibc gives the end of its heap back to the system as soon as more than a threshold of it is free, and every page
    that comes again costs a fault: up to 0.5 ms for a picture of 500 x 375. A large block that is freed raises the
    threshold to twice its size (mallopt(3), M_MMAP_THRESHOLD). No page of it is ever touched.
    """
    np.empty(_FREED_BYTES, np.uint8)


def _listed(pictures: Picture | Sequence[Picture]) -> Sequence[Picture]:
    """Return the batch as a sequence with at least one element."""
    if isinstance(pictures, (str, os.PathLike, Image.Image)):
        return [pictures]
    if not isinstance(pictures, Sequence):
        raise DataError(f"cannot preprocess a {type(pictures).__name__}; pass a path, a PIL image, or a list of either")
    if not pictures:
        raise DataError("cannot preprocess an empty list; pass at least one path or PIL image")
    return pictures


def _decoded(picture: Picture, name: str, at_least: int | None) -> Decoded:
    if isinstance(picture, (str, os.PathLike)):
        return decode_file(picture, at_least)
    if isinstance(picture, Image.Image):
        return decode_image(picture, name)
    raise DataError(f"cannot preprocess a {type(picture).__name__} in the list; pass paths or PIL images")


def _output(out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return the array to write into: ``out`` if it fits, a new one without it."""
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
    """Copy a picture's samples into a 3 x H x W array of uint8; grey goes into all three planes."""
    if image.mode == "L":
        planes[...] = np.asarray(image)
        return
    _, height, width = planes.shape
    # Pillow packs a row's reds, greens and blues behind each other: the copy then moves rows, not single samples
    rows = np.frombuffer(image.tobytes("raw", "RGB;L"), np.uint8).reshape(height, 3, width)
    planes[...] = rows.transpose(1, 0, 2)


def _normalise(block: Array, out: Array, mean: _Numbers, std: _Numbers) -> None:
    """Write (samples / 255 - mean) / std of N x 3 x H x W uint8 samples into a float array of that shape."""
    if out.dtype == np.float16:
        for channel, values in enumerate(_half_table(mean, std)):
            # mode="clip" never clips a uint8 index here; it spares the copy of `out` that the default makes
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
def _half_table(mean: _Numbers, std: _Numbers) -> Array:
    """Return every sample's normalised value, 3 x 256 float16: in float32 as above, then rounded once."""
    samples = np.broadcast_to(np.arange(256, dtype=np.uint8), (3, 1, 256))
    table = np.empty((1, 3, 1, 256), np.float32)
    _normalise(samples[None], table, mean, std)
    return table.reshape(3, 256).astype(np.float16)


def _channels(values: Channels, name: str) -> _Numbers:
    """Return a mean or standard deviation as one number, or as three."""
    if values is MEAN or values is STD:  # what follows takes 1 us, a hundredth of a small picture
        return values
    numbers = channel_numbers(values, name)
    if numbers is None or len(numbers) not in (1, 3):
        positive = " above 0" if name == "std" else ""
        raise ConfigError(f"{name}={values!r} must be three numbers{positive}, one per RGB channel, or one for all")
    return numbers


@lru_cache(_SCALES)
def _check_range(mean: _Numbers, std: _Numbers, dtype: str) -> None:
    """Refuse what makes samples that ``dtype`` cannot hold, 0 in the standard deviation too."""
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
    if len(lengths) not in (1, 2) or any(
        isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1 for n in lengths
    ):
        raise ConfigError(
            f"{name}={shape!r} must be a positive whole number of pixels, or a (height, width) pair of them"
        )
    return tuple(int(length) for length in lengths)
