"""paddle.vision.transforms' preprocessing of image classifiers with its PIL backend, without paddle.

PaddleClas deploys with a different convention (OpenCV's bilinear filter, which does not antialias, on a rounded size):
the pixels of a downscaled image differ between the two, and the model's metric may differ too.
"""

from __future__ import annotations

from collections.abc import Sequence

from utils.preprocess.image.classification import Array, Channels, ImagePreprocessor, ImageSource, Shape
from utils.preprocess.image.modes import CROP, MEAN, RESIZE, STD
from utils.preprocess.image.resizing import paddle_start

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
    """Convert images to a model's input like Paddle's ``Resize``, ``CenterCrop``, ``ToTensor`` and ``Normalize``.

    In float32, the result equals that of ``paddle.vision.transforms`` on RGB PIL images bit by bit; in float16, it is
    the float32 result rounded once. It differs from the PyTorch preprocessing only if an image smaller than the crop
    needs an odd number of padding pixels.

    See :func:`utils.preprocess.pytorch.classification.preprocess` for arguments, result and errors.
    """
    run = ImagePreprocessor(
        dtype, resize_shape, crop_shape, paddle_start, decode=decode, mean=mean, std=std, interpolation=interpolation
    )
    return run(image_path, out)
