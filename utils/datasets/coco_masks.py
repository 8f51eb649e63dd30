"""COCO's instances as the class of every pixel."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, DataError
from utils.datasets import boxes
from utils.datasets.base import Rejected
from utils.datasets.mask_codes import IGNORED
from utils.datasets.regions import of_polygon, of_runs

OVERLAPS = ("ignore", "last", "smallest")
"""Which class a pixel has that lies in several regions: none, the later annotation's, or the smaller region's."""

UNLISTED = ("refuse", "background", "ignore")
"""What becomes of regions whose category the model does not know."""


@dataclass(frozen=True)
class Regions:
    """The regions of one picture; class 0 is what none of them covers, category ``i`` is class ``i + 1``.

    Attributes:
        file: the JSON file.
        entries: for each annotation where it stands, its class, and its ``segmentation``.
        declared: height and width of the picture as the file has them; 0 where it has none.
        categories: names of the categories.
        overlap: one of :data:`OVERLAPS`. unlisted: one of :data:`UNLISTED`.
    """

    file: Path
    entries: tuple[tuple[str, int, Any], ...]
    declared: tuple[int, int]
    categories: tuple[str, ...]
    overlap: str
    unlisted: str

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return ("background", *self.categories)

    @property
    def files(self) -> tuple[Path, ...]:
        """The JSON file."""
        return (self.file,)

    def read(self, size: tuple[int, int]) -> Array:
        """Return the class of every pixel, H x W int16; :data:`IGNORED` where ``overlap`` says so.

        Raises:
            DataError: the file has another size for the picture, or a region is none; the text names the entry.
        """
        if self.declared != size and all(self.declared):
            raise DataError(
                f"{self.file.name} says {self.declared[1]}x{self.declared[0]} pixels, the picture has "
                f"{size[1]}x{size[0]}; correct its width and height, or replace the picture"
            )
        masks = [(label, _mask(where, segmentation, size)) for where, label, segmentation in self.entries]
        if self.overlap == "smallest":
            masks.sort(key=lambda one: -int(np.count_nonzero(one[1])))  # of equal ones the later stays on top
        found = np.zeros(size, np.int16)
        covered = np.zeros(size, np.int32)
        for label, mask in masks:
            found[mask] = label
            covered += mask
        if self.overlap == "ignore":
            found[covered > 1] = IGNORED
        return found


def load_coco(
    file: Path, images: Path | None = None, *, overlap: str = "ignore", unlisted: str = "refuse"
) -> tuple[list[tuple[Path, Regions]], list[Rejected]]:
    """Load COCO's JSON of instances (cocodataset.org, "Data format"): ``images``, ``categories``, ``annotations``.

    Each annotation's ``segmentation`` is a list of polygons, ``[[x, y, x, y, ...], ...]``, whose union counts, or run
    lengths, ``{"counts": list or text, "size": [height, width]}``. Crowds (``iscrowd``) count as their category: single
    objects do not matter here.

    Args:
        file: the JSON file.
        images: folder of the pictures; ``None``: that of the file; or, where the file lies in ``annotations/``, that of
            its split beside it (``annotations/instances_val2017.json`` and ``val2017/``).
        overlap: the class of a pixel in several regions: ``ignore`` (it counts for nothing, as in torchvision's
            reference), ``last`` (that of the annotation that comes last in the file), or ``smallest`` (that of the
            smallest region).
        unlisted: for the task, which knows the model's classes.

    Returns:
        Pictures with their regions in the order of the file, and what cannot be a sample.

    Raises:
        DataError: the file is not as above; an annotation that belongs to no picture only rejects itself, and one of no
            category its picture.
    """
    content = boxes._json(file)
    names, places = boxes._categories(content, file)
    root = images or _pictures_of(file)
    entries: dict[Any, list[tuple[str, int, Any]]] = {}
    pictures: dict[Any, tuple[Path, tuple[int, int]]] = {}
    for where, entry in boxes._entries(content, "images", file):
        key = boxes._identifier(entry, where)
        pictures[key] = (_path(entry, root, where), (_length(entry, "height"), _length(entry, "width")))
        entries[key] = []
    rejected = []
    broken: dict[Any, str] = {}
    for where, entry in boxes._entries(content, "annotations", file):
        owner, category = entry.get("image_id"), entry.get("category_id")
        if not isinstance(owner, (int, str)) or owner not in entries:
            rejected.append(Rejected(Path(where), f"image_id {owner!r}: no image has this id"))
        elif not isinstance(category, (int, str)) or category not in places:
            broken.setdefault(owner, f"{where}: category_id {category!r}: no category has this id")
        else:
            entries[owner].append((where, places[category] + 1, entry.get("segmentation")))
    samples = []
    for key, (path, declared) in pictures.items():
        reason = broken.get(key) or ("" if os.path.isfile(path) else f"it does not exist but is listed in {file.name}")
        if reason:
            rejected.append(Rejected(path, reason))
        else:
            samples.append((path, Regions(file, tuple(entries[key]), declared, names, overlap, unlisted)))
    return samples, rejected


def _pictures_of(file: Path) -> Path:
    """Return the folder of the pictures that a file lists."""
    split = file.parent.parent / file.stem.rpartition("_")[2]
    return split if file.parent.name == "annotations" and split.is_dir() else file.parent


def _path(entry: Mapping[str, Any], root: Path, where: str) -> Path:
    """Return a picture's path, which lies below the root."""
    name = entry.get("file_name")
    if not isinstance(name, str) or not name or "\0" in name:
        raise DataError(f"{where}: file_name {name!r} is no path; write one relative to {root}")
    path = root / name
    if not path.is_relative_to(root) or ".." in path.relative_to(root).parts:
        raise DataError(f"{where}: file_name {name!r} leaves the data folder {root}; write a path within it")
    return path


def _length(entry: Mapping[str, Any], key: str) -> int:
    found = entry.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


def _mask(where: str, segmentation: Any, size: tuple[int, int]) -> Array:
    """Return an annotation's region, H x W booleans."""
    try:
        if isinstance(segmentation, dict):
            return _of_code(segmentation, size)
        if isinstance(segmentation, list) and segmentation and all(isinstance(one, list) for one in segmentation):
            union: Array = np.logical_or.reduce([of_polygon(one, *size) for one in segmentation])
            return union
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
    raise DataError(f"{where}: its segmentation is neither a list of polygons nor an RLE; correct it")


def _of_code(code: Mapping[str, Any], size: tuple[int, int]) -> Array:
    counts, declared = code.get("counts"), code.get("size")
    if not isinstance(counts, (list, str)):
        raise DataError("counts of its RLE are missing; write a list of runs, or COCO's text")
    if not isinstance(declared, list) or declared != list(size):
        raise DataError(f"its RLE is of size {declared!r}, and the picture of {list(size)} (height, width); correct it")
    return of_runs(counts, *size)
