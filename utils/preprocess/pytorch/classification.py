"""torchvision's preprocessing of image classifiers, without torch."""

from __future__ import annotations

from collections.abc import Sequence

from utils.preprocess.image.classification import Array, Channels, ImagePreprocessor, ImageSource, Shape
from utils.preprocess.image.modes import CROP, MEAN, RESIZE, STD
from utils.preprocess.image.resizing import torchvision_start

__all__ = ["preprocess"]


def preprocess(
    image_path: ImageSource | Sequence[ImageSource],
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
    """Convert images to a model's input like ``Resize``, ``CenterCrop``, ``ToTensor`` and ``Normalize``.

    In float32, the result equals that of ``torchvision.transforms`` on RGB PIL images bit by bit; in float16, it is the
    float32 result rounded once. Images of other modes are first converted by :mod:`utils.preprocess.image.images`. In a
    loop, :class:`~utils.preprocess.image.classification.ImagePreprocessor` checks the arguments only once. Raises
    ConfigError if the dtype, way to decode or interpolation is unknown, a shape, mean or std is invalid, or ``out``
    does not fit, and DataError if the list is empty, or an element has another type or cannot be decoded.

    Args:
        image_path: a path, a PIL image, or a list of either.
        dtype: ``"float16"`` or ``"float32"``.
        resize_shape: length of the resized image's short side in pixels, or its ``(height, width)``.
        crop_shape: side of the square cut from the centre in pixels, or its ``(height, width)``.
        out: an array of the result's shape and dtype, or a slice of one, to write into. After an error its content is
            undefined.
        decode: ``"exact"``, or one of two faster ways that change samples of photographs by some of 255 levels:
            ``"fused"`` resizes only the crop (by at most 2; usually by 1 in one pixel of a thousand); ``"reduced"``
            also decodes large JPEG files at a part of their size (by up to 7, on average by 0.2).
        mean: subtracted from samples in 0..1: three numbers, one per RGB channel, or one for all.
        std: divided by afterwards, likewise.
        interpolation: the filter to resize with: ``"bilinear"``, ``"bicubic"``, ``"nearest"``, ``"box"``,
            ``"hamming"`` or ``"lanczos"``; all but ``"nearest"`` antialias.

    Returns an N x 3 x H x W array of ``dtype``, in RGB order: ``out``, or a new C-contiguous one.
    """
    shapes = (resize_shape, crop_shape)
    run = ImagePreprocessor(
        dtype, *shapes, torchvision_start, decode=decode, mean=mean, std=std, interpolation=interpolation
    )
    return run(image_path, out)
