"""How a model's input holds pictures: where its channels are, how many there are, and in which dtype."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, TensorSpec, channels_last

COUNTS = (1, 3)
"""Channels that pictures have: grey, or red, green and blue."""

LEVELS = {"mean": (0.0,) * 3, "std": (1 / 255,) * 3}
"""What leaves samples as levels, 0 to 255."""


class PictureForm(NamedTuple):
    """How an input holds pictures.

    Attributes:
        size: height and width; ``None`` where they are open.
        last: N x H x W x C, as TensorFlow has it; else N x C x H x W.
        channels: one of :data:`COUNTS`.
        dtype: of the input.
        either: whether the shape may be read both ways.
    """

    size: tuple[int | None, int | None]
    last: bool
    channels: int
    dtype: np.dtype[Any]
    either: bool = False

    @property
    def plain(self) -> bool:
        """Whether it is what preprocessing makes: N x 3 x H x W float32 or float16."""
        return not self.last and self.channels == 3 and self.dtype.kind == "f" and self.dtype.itemsize < 8

    @property
    def takes_levels(self) -> bool:
        """Whether it takes levels, 0 to 255, as whole numbers."""
        return self.dtype.kind in "iu"

    def scale(self, mean: Sequence[float], std: Sequence[float], where: object) -> dict[str, tuple[float, ...]]:
        """Return the mean and standard deviation in use, as keywords of ``preprocess``.

        Args:
            mean, std: the stored or usual ones, per channel or one for all. where: the model, for messages.

        Raises:
            ConfigError: the input is grey, and they are those of three channels.
        """
        if self.takes_levels:
            return dict(LEVELS)
        if self.channels == 1 and len(mean) != 1:
            raise ConfigError(
                f"{where}: its input has 1 channel (grey), and which mean and std it takes is not known; store one "
                'of each with the export: metadata \'preprocess\', {"mean": [0.5], "std": [0.5]}'
            )
        return {"mean": tuple(mean), "std": tuple(std)}

    def opened(self, pictures: Sequence[Any]) -> Sequence[Any]:
        """Return pictures for ``preprocess``; grey ones where the input is grey, by ITU-R 601 as Pillow does it."""
        if self.channels == 3:
            return pictures
        from utils.preprocess.image.images import open_image

        images = [open_image(one) if isinstance(one, (str, os.PathLike)) else one for one in pictures]
        return [image.convert("L") for image in images]

    def given(self, planes: Array) -> Array:
        """Return N x 3 x H x W float32 in this form; of a grey input the planes are alike, and the first is taken."""
        found = planes[:, : self.channels]
        if self.last:
            found = found.transpose(0, 2, 3, 1)
        return np.ascontiguousarray(np.rint(found) if self.takes_levels else found, self.dtype)

    @property
    def line(self) -> str:
        """What the input is where it is not plain, for people; empty where it is."""
        parts = ["its channels come last (N x H x W x C): pictures are transposed"] if self.last else []
        parts += ["it may be read with channels first or last, and first is taken"] if self.either else []
        parts += ["it has 1 channel: pictures are made grey"] if self.channels == 1 else []
        parts += [f"it takes {self.dtype}: levels 0 to 255, without a mean"] if self.takes_levels else []
        return "; ".join(parts)


def picture_form(spec: TensorSpec, where: object, dtype: str | None = None) -> PictureForm:
    """Return how an input holds pictures.

    Channels are the dimension of size 1 or 3: the second one, unless only the last one may be it. Where neither has a
    size, they are the second one, of three.

    Args:
        spec: the input. where: the model, for messages. dtype: that samples are to have; ``None``: the input's.

    Raises:
        ConfigError: the input takes no pictures by its shape or its dtype.
    """
    shape, kind = spec.shape, np.dtype(dtype or spec.dtype)
    shown = "[" + ", ".join("N" if size is None else str(size) for size in shape) + "]"
    last = channels_last(shape)
    channels = shape[3 if last else 1] if len(shape) == 4 else 0
    if channels not in (None, *COUNTS):
        raise ConfigError(
            f"{where}: its input {spec.name!r} is {shown}; pictures need N x C x H x W or N x H x W x C, with C 1 or 3"
        )
    if kind.kind not in "fiu" or (kind.kind != "f" and np.iinfo(kind).max < 255):
        raise ConfigError(
            f"{where}: its input {spec.name!r} takes {kind}, which no picture is given in; export it with a float or "
            "uint8 input, and convert it in the graph"
        )
    height, width = shape[1:3] if last else shape[2:]
    return PictureForm((height, width), last, channels or 3, kind, shape[1] in COUNTS and shape[3] in COUNTS)
