"""The historical face of SSD's data: Pascal VOC as a map-style data set that torch's ``DataLoader`` takes."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo import expanded
from utils.datasets.image.objects import BoxedPictures, Objects
from utils.datasets.image.voc import NAMES, load_voc, voc_years
from utils.preprocess.image.images import open_image, upright_size
from utils.preprocess.image.letterbox import letterbox
from utils.preprocess.pytorch.ssd import STRETCHED
from utils.torch_array import of_the_script

__all__ = ["Sample", "VOCDataset", "collate_fn"]


class Sample(NamedTuple):
    """One image as a model takes it.

    Attributes:
        image: 3 x S x S uint8, RGB, stretched to a square; ``None`` for an image that cannot be decoded.
        target: what is in it: ``boxes`` N x 4 (left, top, right, bottom in its own pixels), ``labels``
            N from 1 on, ``difficult`` N booleans.
        image_id: its place in the data set.
        side: S, of every image.
    """

    image: Array | None
    target: dict[str, Array]
    image_id: int
    side: int


class VOCDataset:
    """The images of a split of Pascal VOC, by their places.

    Args:
        root_dir: a folder such as ``VOC2007`` with ``JPEGImages``, ``Annotations`` and ``ImageSets/Main``; or
            ``VOCdevkit``, or what holds it, where one year in it has the list.
        datashape: side of the squares that images are stretched to, in pixels, as a number or as text.
        image_set: the list in ``ImageSets/Main`` without its ``.txt``.

    Attributes:
        class_names: of the labels: the background's, then the classes'. VOC's own classes are in VOC's order; a data
            set with others numbers its names in alphabetical order, and a warning says so.
        names: the same without the background. objects: of each image.

    A bad entry of the list costs its image: what was left out is counted and named in a warning.

    Raises:
        DataError: there is no such folder or list, or no image of it can be used.
        ConfigError: a datashape that is no length.
    """

    def __init__(
        self, root_dir: str | os.PathLike[str], datashape: str | int = "320", image_set: str = "test", **_: object
    ) -> None:
        self.root_dir, self.image_set = expanded(root_dir), image_set
        self.side = _side(datashape)
        self.dataset = _load(self.root_dir, image_set)
        self.objects: list[Objects] = list(self.dataset.targets or ())
        self.names = self.objects[0].categories
        self.class_names = ("__background__", *self.names)
        self.ids = [path.stem for path in self.dataset.samples]
        if self.names != NAMES:
            numbered = ", ".join(f"{place + 1} {name}" for place, name in enumerate(self.names))
            warnings.warn(f"{root_dir}: its classes are not VOC's; labels are {numbered}", stacklevel=2)
        if self.dataset.rejected:
            first = self.dataset.rejected[0]
            warnings.warn(
                f"{root_dir}: {len(self.dataset.rejected)} images are left out, the first: {first.path}: "
                f"{first.reason}",
                stacklevel=2,
            )

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Sample:
        """Return an image; one that cannot be decoded has no image, and a warning names it."""
        place = range(len(self))[index]  # a negative place counts from the end; IndexError ends a loop
        try:
            picture = open_image(self.dataset.samples[place])
        except DataError as error:
            warnings.warn(f"left out: {error}", stacklevel=2)
            return Sample(None, self.get_annotation(place), place, self.side)
        levels, _ = letterbox(picture, (self.side, self.side), STRETCHED)
        return Sample(np.ascontiguousarray(levels.transpose(2, 0, 1)), self.get_annotation(place), place, self.side)

    def get_annotation(self, index: int) -> dict[str, Array]:
        """Return what is in an image (:attr:`Sample.target`)."""
        found = self.objects[index]
        return {"boxes": found.boxes.astype(np.float32), "labels": found.classes + 1, "difficult": found.crowd.copy()}

    def size_of(self, index: int) -> tuple[int, int]:
        """Return width and height of an image in pixels, from the head of its file.

        Raises:
            DataError: the file is gone or no image.
        """
        return upright_size(self.dataset.samples[index])


def collate_fn(batch: Sequence[Sample]) -> tuple[Any, list[dict[str, Array]], Any]:
    """Return a batch: N x 3 x S x S uint8, targets, and the images' places, N int64.

    Images and places are torch tensors where the script has imported torch, else arrays. Images without an image
    are left out; where none is left, a grey one without a place stands for them, so that a model has something to run.
    """
    real = [sample for sample in batch if sample.image is not None]
    pictures = [sample.image for sample in real]
    if not pictures:
        pictures = [np.full((3, batch[0].side, batch[0].side), 127, np.uint8)]
    places = np.array([sample.image_id for sample in real], np.int64)
    return of_the_script(np.stack(pictures)), [sample.target for sample in real], of_the_script(places)  # type: ignore[arg-type]


def _side(datashape: str | int) -> int:
    try:
        side = int(datashape)
    except (TypeError, ValueError):
        side = 0
    if side < 1:
        raise ConfigError(f"datashape {datashape!r} is no length; pass the side of the model's input in pixels, as 320")
    return side


def _load(root: Path, image_set: str) -> BoxedPictures:
    years = voc_years(root) if root.is_dir() and not (root / "ImageSets").is_dir() else ()
    years = [year for year in years if (year / "ImageSets" / "Main" / f"{image_set}.txt").is_file()]
    if len(years) > 1:
        raise DataError(f"{root} holds {', '.join(year.name for year in years)}; give one of them: {years[0]}")
    root = years[0] if years else root
    folder = root / "ImageSets" / "Main"
    listed = folder / f"{image_set}.txt"
    if not root.is_dir():
        raise DataError(f"data path {root} does not exist or is no folder; give VOC2007, with JPEGImages in it")
    if not listed.is_file():
        others = ", ".join(sorted(file.stem for file in folder.glob("*.txt") if "_" not in file.stem)) or "none"
        raise DataError(f"{listed} does not exist; image_set is the name of a list there ({others})")
    return load_voc(listed).dataset()
