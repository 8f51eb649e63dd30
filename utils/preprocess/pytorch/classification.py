"""A classifier's preprocessing as torchvision does it, without importing torch."""

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
    """Turn pictures into a model's input, as ``Resize``, ``CenterCrop``, ``ToTensor`` and ``Normalize`` would.

    Equal bit by bit to ``torchvision.transforms`` on RGB PIL images in float32; float16 is that, rounded once. Every
    other mode is first made upright RGB by :mod:`utils.preprocess.image.images`.

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
    """Return torchvision's center_crop offset: padding floors the first half, cropping rounds half to even."""
    return -((crop - length) // 2) if crop > length else round((length - crop) / 2)
