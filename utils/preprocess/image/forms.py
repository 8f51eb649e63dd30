"""Layout, channels and dtype of a model's image input."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, TensorSpec, channels_last

COUNTS = (1, 3)
"""Numbers of channels: grey, or red, green and blue."""

LEVELS = {"mean": (0.0,) * 3, "std": (1 / 255,) * 3}
"""Mean and standard deviation that keep samples as levels, 0 to 255."""


class ImageForm(NamedTuple):
    """Form of an image input.

    Attributes:
        size: height and width; ``None`` if open.
        last: N x H x W x C, as in TensorFlow; else N x C x H x W.
        channels: one of :data:`COUNTS`.
        dtype: of the input.
        either: whether the shape fits both layouts.
    """

    size: tuple[int | None, int | None]
    last: bool
    channels: int
    dtype: np.dtype[Any]
    either: bool = False

    @property
    def plain(self) -> bool:
        """Whether it is the form of preprocessed images: N x 3 x H x W float32 or float16."""
        return not self.last and self.channels == 3 and self.dtype.kind == "f" and self.dtype.itemsize < 8

    @property
    def takes_levels(self) -> bool:
        """Whether it takes integers: levels, 0 to 255."""
        return self.dtype.kind in "iu"

    def scale(self, mean: Sequence[float], std: Sequence[float], where: object) -> dict[str, tuple[float, ...]]:
        """Return ``mean`` and ``std``, per channel or one for all, as keyword arguments of ``preprocess``.

        Raises ConfigError, with the model ``where``, if the input is grey, and ``mean`` has three channels.
        """
        if self.takes_levels:
            return dict(LEVELS)
        if self.channels == 1 and len(mean) != 1:
            raise ConfigError(
                f"{where}: its input has 1 channel (grey), and its mean and std are not known; store one "
                'of each with the export: metadata \'preprocess\', {"mean": [0.5], "std": [0.5]}'
            )
        return {"mean": tuple(mean), "std": tuple(std)}

    def opened(self, images: Sequence[Any]) -> Sequence[Any]:
        """Return images for ``preprocess``, converted to grey if the input is grey (Pillow's ITU-R 601)."""
        if self.channels == 3:
            return images
        from utils.preprocess.image.images import open_image

        loaded = [open_image(one) if isinstance(one, (str, os.PathLike)) else one for one in images]
        return [image.convert("L") for image in loaded]

    def given(self, planes: Array) -> Array:
        """Return N x 3 x H x W float32 in this form; for a grey input, the first of three equal planes."""
        found = planes[:, : self.channels]
        if self.last:
            found = found.transpose(0, 2, 3, 1)
        return np.ascontiguousarray(np.rint(found) if self.takes_levels else found, self.dtype)

    def convert(self, preprocess: Callable[..., Array], images: Sequence[Any], out: Array | None = None) -> Array:
        """Return images in this form; ``preprocess`` makes N x 3 x H x W float32, and ``out`` is not used."""
        return self.given(preprocess(self.opened(images)))

    @property
    def line(self) -> str:
        """Description of an input that is not plain, for warnings; empty if it is plain."""
        parts = ["its channels come last (N x H x W x C): images are transposed"] if self.last else []
        parts += ["its shape fits channels first and last, and first is used"] if self.either else []
        parts += ["it has 1 channel: images are converted to grey"] if self.channels == 1 else []
        parts += [f"it takes {self.dtype}: levels 0 to 255, without a mean"] if self.takes_levels else []
        return "; ".join(parts)


def image_form(spec: TensorSpec, where: object, dtype: str | None = None) -> ImageForm:
    """Return the form of an image input, of its own dtype or the given one.

    Channels are the dimension of size 1 or 3: the second one, unless only the last one has such a size. If neither has
    a size, the second one is three channels. Raises ConfigError if the input's shape or dtype cannot hold images.
    """
    shape, kind = spec.shape, np.dtype(dtype or spec.dtype)
    shown = "[" + ", ".join("N" if size is None else str(size) for size in shape) + "]"
    last = channels_last(shape)
    channels = shape[3 if last else 1] if len(shape) == 4 else 0
    if channels not in (None, *COUNTS):
        raise ConfigError(
            f"{where}: its input {spec.name!r} is {shown}; images need N x C x H x W or N x H x W x C, with C 1 or 3"
        )
    if kind.kind not in "fiu" or (kind.kind != "f" and np.iinfo(kind).max < 255):
        raise ConfigError(
            f"{where}: its input {spec.name!r} takes {kind}, which cannot hold an image; export it with a float or "
            "uint8 input, and convert it in the graph"
        )
    height, width = shape[1:3] if last else shape[2:]
    return ImageForm((height, width), last, channels or 3, kind, shape[1] in COUNTS and shape[3] in COUNTS)
