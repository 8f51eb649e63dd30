"""COCO's instance segmentations as the class of every pixel."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, DataError
from tecoinfer_modelzoo.files import not_a_file_reason
from utils.datasets.base import Rejected
from utils.datasets.image.coco import categories_of, entries, images_of, images_root, is_id, read_json
from utils.datasets.image.mask_codes import IGNORED
from utils.datasets.image.objects import Gathered, shown
from utils.datasets.image.regions import of_polygon, of_runs

OVERLAPS = ("ignore", "last", "smallest")
"""Class of a pixel in several regions: none, that of the later annotation, or that of the smaller region."""

UNLISTED = ("refuse", "background", "ignore")
"""Treatment of regions whose category the model does not have."""


@dataclass(frozen=True)
class Regions:
    """The regions of one image; class 0 is the uncovered rest, category ``i`` is class ``i + 1``.

    Attributes:
        file: the JSON file.
        regions: per annotation its position in the file, its class, and its ``segmentation``.
        declared: height and width of the image in the JSON; 0 if missing.
        categories: names of the categories.
        overlap: one of :data:`OVERLAPS`. unlisted: one of :data:`UNLISTED`.
    """

    file: Path
    regions: tuple[tuple[str, int, Any], ...]
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
        """Return the class of every pixel, H x W int16; :data:`IGNORED` for overlaps if ``overlap`` is ``ignore``.

        Raises DataError if the declared size is wrong, or a region is invalid; the message names the entry.
        """
        if self.declared != size and all(self.declared):
            raise DataError(
                f"{self.file.name} says {self.declared[1]}x{self.declared[0]} pixels, the image has "
                f"{size[1]}x{size[0]}; correct its width and height, or replace the image"
            )
        masks: Iterable[tuple[int, Array]]
        masks = ((label, region_of(where, segmentation, size)) for where, label, segmentation in self.regions)
        if self.overlap == "smallest":
            masks = sorted(masks, key=lambda one: -int(np.count_nonzero(one[1])))  # at equal size the later wins
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
    """Return the images with their regions of COCO's JSON of instances, in the order of the file, and rejected entries.

    The format (cocodataset.org, "Data format") has ``images``, ``categories`` and ``annotations``. Each annotation's
    ``segmentation`` is the union of a list of polygons, ``[[x, y, x, y, ...], ...]``, or run lengths, ``{"counts": list
    or text, "size": [height, width]}``. Crowds (``iscrowd``) count as their category. Raises DataError if the file is
    not in this format. An annotation without an image rejects only itself, one without a category its image.

    Args:
        images: folder of the images; ``None``: found by :func:`~utils.datasets.image.coco.images_root`.
        overlap: class of a pixel in several regions: ``ignore`` (not counted, as in torchvision's reference), ``last``
            (of the last annotation in the file), or ``smallest`` (of the smallest region).
        unlisted: one of :data:`UNLISTED`, for the task, which has the model's classes.
    """
    content = read_json(file)
    names, places = categories_of(content, file)
    gathered = Gathered(file, names)
    listed, dropped = images_of(content, file, gathered)
    regions: dict[Any, list[tuple[str, int, Any]]] = {key: [] for key in listed}
    broken: dict[Any, str] = {}
    for where, entry in entries(content, "annotations", file, gathered):
        owner, category = entry.get("image_id"), entry.get("category_id")
        if not is_id(owner) or owner not in listed:
            if not is_id(owner) or owner not in dropped:
                gathered.reject(file, f"{where}: image_id {shown(owner)}: no image has this id")
        elif not is_id(category) or category not in places:
            broken.setdefault(owner, f"{where}: category_id {shown(category)}: no category has this id")
        else:
            regions[owner].append((where, places[category] + 1, entry.get("segmentation")))
    root = images or images_root(file, [str(entry["file_name"]) for entry in listed.values()])
    samples = []
    for key, entry in listed.items():
        path = Path(os.path.normpath(root / entry["file_name"]))
        declared = _length(entry, "height"), _length(entry, "width")
        reason = broken.get(key) or (
            "" if os.path.isfile(path) else f"it {not_a_file_reason(path)} but is listed in {file.name}"
        )
        if reason:
            gathered.reject(path, reason)
        else:
            samples.append((path, Regions(file, tuple(regions[key]), declared, names, overlap, unlisted)))
    return samples, gathered.rejected


def _length(entry: Mapping[str, Any], key: str) -> int:
    found = entry.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


def region_of(where: str, segmentation: Any, size: tuple[int, int]) -> Array:
    """Return the region of an annotation, H x W booleans. Raises DataError, with the given place, if it is invalid."""
    try:
        if isinstance(segmentation, dict):
            counts, declared = segmentation.get("counts"), segmentation.get("size")
            if not isinstance(counts, (list, str)):
                raise DataError("its RLE has no counts; write a list of runs, or COCO's text")
            if not isinstance(declared, list) or declared != list(size):
                fix = f"but the image {list(size)} (height, width); correct it"
                raise DataError(f"its RLE has size {declared!r}, {fix}")
            return of_runs(counts, *size)
        if isinstance(segmentation, list) and segmentation and all(isinstance(one, list) for one in segmentation):
            union: Array = np.logical_or.reduce([of_polygon(one, *size) for one in segmentation])
            return union
    except DataError as error:
        raise DataError(f"{where}: {error}") from error
    raise DataError(f"{where}: its segmentation must be a list of polygons or an RLE; correct it")
