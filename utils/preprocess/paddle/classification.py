"""A classifier's preprocessing as paddle.vision.transforms does it with its PIL backend, without importing paddle.

PaddleClas deploys with another convention (OpenCV's bilinear filter, which does not antialias, on a rounded size). It
is not this one: the pixels of a shrunk picture differ between the two, and a model's metric may too.
"""

from __future__ import annotations

from collections.abc import Sequence

from utils.preprocess.image.classification import MEAN, STD, Array, Channels, Picture, Shape, preprocess_pictures
from utils.preprocess.image.modes import CROP, RESIZE

__all__ = ["preprocess"]


def preprocess(
    image_path: Picture | Sequence[Picture],
    dtype: str = "float16",
    resize_shape: Shape = RESIZE,
    crop_shape: Shape = CROP,
    *,
    out: Array | None = None,
    decode: str = "exact",
    mean: Channels = MEAN,
    std: Channels = STD,
    interpolation: str = "bilinear",
) -> Array:
    """Turn pictures into a model's input, as Paddle's ``Resize``, ``CenterCrop``, ``ToTensor`` and ``Normalize`` would.

    Equal bit by bit to ``paddle.vision.transforms`` on RGB PIL images in float32; float16 is that, rounded once. It
    differs from the PyTorch preprocessing only where a picture smaller than the crop needs an odd number of padding
    pixels.

    Args:
        image_path: a path, a PIL image, or a list of either.
        dtype: ``"float16"`` or ``"float32"``.
        resize_shape: length of the resized picture's short side in pixels, or its ``(height, width)``.
        crop_shape: side of the square cut from the centre in pixels, or its ``(height, width)``.
        out: an array of the result's shape and dtype, or a slice of one, to write into. After an error its content is
            undefined.
        decode: ``"exact"``; or, with samples that differ on real photographs, of 255 levels: ``"fused"`` resizes only
            what the crop keeps (by at most 2; usually by 1 in one pixel of a thousand); ``"reduced"`` also decodes
            large JPEG files at a part of their size (by up to 7, on average by 0.2).
        mean: what is subtracted from samples in 0..1: three numbers, one per RGB channel, or one for all.
        std: what they are then divided by, likewise.
        interpolation: the filter to resize with: ``"bilinear"``, ``"bicubic"``, ``"nearest"``, ``"box"``,
            ``"hamming"`` or ``"lanczos"``; all but ``"nearest"`` antialias.

    Returns:
        An N x 3 x H x W array of ``dtype``, in RGB order: ``out``, or a new C-contiguous one.

    Raises:
        ConfigError: an unknown dtype, way to decode or interpolation, an impossible shape, mean or std, or an ``out``
            that does not fit.
        DataError: an empty list, an element of another type, or a picture that cannot be decoded.
    """
    return preprocess_pictures(
        image_path,
        dtype,
        resize_shape,
        crop_shape,
        _crop_start,
        out=out,
        decode=decode,
        mean=mean,
        std=std,
        interpolation=interpolation,
    )


def _crop_start(length: int, crop: int) -> int:
    """Return paddle's center_crop offset; a negative half pixel too is rounded to even."""
    return round((length - crop) / 2)
