"""Images with the regions of their objects: COCO's JSON of instances, and images without any."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from engine import ConfigError, DataError
from utils.datasets.base import ListDataset, check_exists
from utils.datasets.image.boxes import IMAGES, LABEL_FILES, load_boxes
from utils.datasets.image.coco import annotation_files, found_in, load_coco
from utils.datasets.image.coco_masks import region_of
from utils.datasets.image.objects import BoxedImages, Found
from utils.postprocess.image.instances import Mask, compact

COCO = "coco"
FORMATS = (COCO, IMAGES)
"""Layouts of data."""


class Outlined(NamedTuple):
    """A sample: an image, and the regions of its objects in COCO's form, polygons or run lengths; ``None``: unknown."""

    image: Path
    regions: tuple[Any, ...] | None = None

    def masks(self, size: tuple[int, int]) -> tuple[Mask, ...]:
        """Return the masks of the objects in an image of height and width ``size``.
        Raises DataError if a region is invalid, or has another size."""
        regions = enumerate(self.regions or ())
        return tuple(compact(region_of(f"object {place}", one, size)) for place, one in regions)


class OutlinedImages(ListDataset):
    """Images, with the regions of their objects if known: targets are :class:`.Objects`."""

    def __init__(self, images: BoxedImages, regions: list[tuple[Any, ...]] | None) -> None:
        self.images = images
        paths = enumerate(images.samples)
        samples = [Outlined(path, None if regions is None else regions[place]) for place, path in paths]
        super().__init__(
            samples,
            images.targets,
            names=images.names,
            files=images.files,
            rejected=images.rejected,
            notes=images.notes,
        )
        self.regions = regions

    def fingerprint(self) -> str:
        """Return the hash of the images, their objects and regions."""
        from hashlib import sha256

        return sha256(f"{self.images.fingerprint()}{self.regions!r}".encode()).hexdigest()


def load_instances(path: Path, form: str | None = None) -> OutlinedImages:
    """Load images, and the regions of their objects if known.

    - ``coco``: a ``.json`` file in COCO's format of instances; a folder with one of :data:`.LABEL_FILES`; or COCO's own
      layout, ``annotations/instances_val2017.json``;
    - ``images``: any other folder, or one image.

    An annotation has a ``segmentation``: a list of polygons, or run lengths. Without ``area``, the area of an object is
    that of its box.

    Raises:
        DataError: the path has no usable data. ConfigError: the format is unknown.
    """
    if form is not None and form not in FORMATS:
        raise ConfigError(f"unknown data format {form!r}; use one of: {', '.join(FORMATS)}")
    check_exists(path)
    files = [] if form == IMAGES else _files(path)
    if len(files) > 1:
        raise DataError(f"{path} contains several data sets: {', '.join(map(str, files))}; pass the path of one")
    if not files and form == COCO:
        raise DataError(f"{path}: no JSON file of instances; pass the path of one, such as instances_val2017.json")
    if not files:
        return OutlinedImages(load_boxes(path, IMAGES), None)
    gathered = load_coco(files[0], read=_outlined)
    regions = [tuple(found.region for found in objects) for objects in gathered.objects]
    return OutlinedImages(gathered.dataset(), regions)


def _files(path: Path) -> list[Path]:
    """Return the JSON files for a path."""
    if path.is_file():
        return [path] if path.suffix.lower() == ".json" else []
    listed = next((path / name for name in LABEL_FILES if (path / name).is_file()), None)
    return [listed] if listed is not None else list(annotation_files(path))


def _outlined(entry: Mapping[str, Any], places: Mapping[Any, int]) -> Found:
    """Read an annotation with its region, which is decoded when its image is. Raises DataError if it has none."""
    region = entry.get("segmentation")
    if not isinstance(region, (list, dict)) or not region:
        raise DataError(f"segmentation {region!r:.60} must be a list of polygons or an RLE")
    return found_in(entry, places)._replace(region=region)
