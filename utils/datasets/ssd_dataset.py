"""Pascal VOC for existing SSD scripts: a map-style data set for torch's ``DataLoader``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo import expanded
from utils.datasets.image.objects import BoxedImages, Objects
from utils.datasets.image.voc import NAMES, load_voc, voc_years
from utils.preprocess.image.images import open_image, upright_size
from utils.preprocess.image.letterbox import letterbox
from utils.preprocess.pytorch.ssd import STRETCHED
from utils.torch_array import of_the_script

__all__ = ["Sample", "VOCDataset", "collate_fn"]


class Sample(NamedTuple):
    """One image as model input.

    Attributes:
        image: 3 x S x S uint8, RGB, stretched to a square; ``None`` if it cannot be decoded.
        target: its objects: ``boxes`` N x 4 (left, top, right, bottom in pixels of the file), ``labels`` N from 1 on,
            ``difficult`` N booleans.
        image_id: its place in the data set.
        side: S, the same for all images.
    """

    image: Array | None
    target: dict[str, Array]
    image_id: int
    side: int


class VOCDataset:
    """The images of a split of Pascal VOC.

    Images with an invalid entry are skipped with a warning. Raises DataError if the folder or the list is missing, or
    none of its images can be used, and ConfigError if ``datashape`` is not a positive integer.

    Args:
        root_dir: a folder such as ``VOC2007`` with ``JPEGImages``, ``Annotations`` and ``ImageSets/Main``; or
            ``VOCdevkit`` or its parent, if exactly one year in it has the list.
        datashape: side of the square input in pixels, as an integer or as text.
        image_set: name of the list in ``ImageSets/Main`` without ``.txt``.

    Attributes:
        names: of the classes. VOC's own are in VOC's order; others are in alphabetical order, with a warning.
        class_names: names by label: the background, then the classes.
        objects: per image.
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
            warnings.warn(f"{root_dir}: classes differ from VOC's; labels are {numbered}", stacklevel=2)
        if self.dataset.rejected:
            first = self.dataset.rejected[0]
            lost = f"{len(self.dataset.rejected)} images are skipped, the first: {first.path}: {first.reason}"
            warnings.warn(f"{root_dir}: {lost}", stacklevel=2)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> Sample:
        """Return an image; for one that cannot be decoded ``image`` is ``None``, with a warning."""
        place = range(len(self))[index]  # a negative place counts from the end; IndexError ends a loop
        try:
            image = open_image(self.dataset.samples[place])
        except DataError as error:
            warnings.warn(f"skipped: {error}", stacklevel=2)
            return Sample(None, self.get_annotation(place), place, self.side)
        levels, _ = letterbox(image, (self.side, self.side), STRETCHED)
        return Sample(np.ascontiguousarray(levels.transpose(2, 0, 1)), self.get_annotation(place), place, self.side)

    def get_annotation(self, index: int) -> dict[str, Array]:
        """Return the objects of an image (:attr:`Sample.target`)."""
        found = self.objects[index]
        return {"boxes": found.boxes.astype(np.float32), "labels": found.classes + 1, "difficult": found.crowd.copy()}

    def size_of(self, index: int) -> tuple[int, int]:
        """Return width and height of an image in pixels, from the header of its file; DataError if it is unreadable."""
        return upright_size(self.dataset.samples[index])


def collate_fn(batch: Sequence[Sample]) -> tuple[Any, list[dict[str, Array]], Any]:
    """Return a batch: N x 3 x S x S uint8, targets, and the images' places, N int64.

    Images and places are torch tensors if the script has imported torch, else arrays. Samples without an image are
    skipped; if none is left, the batch is one grey image without a place, so that the model still has an input.
    """
    real = [sample for sample in batch if sample.image is not None]
    images = [sample.image for sample in real]
    if not images:
        images = [np.full((3, batch[0].side, batch[0].side), 127, np.uint8)]
    places = np.array([sample.image_id for sample in real], np.int64)
    return of_the_script(np.stack(images)), [sample.target for sample in real], of_the_script(places)  # type: ignore[arg-type]


def _side(datashape: str | int) -> int:
    try:
        side = int(datashape)
    except (TypeError, ValueError):
        side = 0
    if side < 1:
        raise ConfigError(f"datashape {datashape!r} must be the side of the model's input in pixels, such as 320")
    return side


def _load(root: Path, image_set: str) -> BoxedImages:
    years = voc_years(root) if root.is_dir() and not (root / "ImageSets").is_dir() else ()
    years = [year for year in years if (year / "ImageSets" / "Main" / f"{image_set}.txt").is_file()]
    if len(years) > 1:
        raise DataError(f"{root} contains {', '.join(year.name for year in years)}; pass one of them: {years[0]}")
    root = years[0] if years else root
    folder = root / "ImageSets" / "Main"
    listed = folder / f"{image_set}.txt"
    if not root.is_dir():
        raise DataError(f"data path {root} is missing or not a folder; pass VOC2007, the folder with JPEGImages")
    if not listed.is_file():
        others = ", ".join(sorted(file.stem for file in folder.glob("*.txt") if "_" not in file.stem)) or "none"
        raise DataError(f"{listed} does not exist; image_set must be one of the lists there ({others})")
    return load_voc(listed).dataset()
