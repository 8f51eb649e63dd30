"""Images with key points of objects: COCO's JSON of key points, and images without any."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError
from utils.datasets.base import ListDataset, check_exists
from utils.datasets.image.boxes import IMAGES, LABEL_FILES, load_boxes
from utils.datasets.image.coco import annotation_files, entries, found_in, is_length, load_coco, read_json
from utils.datasets.image.objects import BoxedImages, Found, shown

COCO = "coco"
FORMATS = (COCO, IMAGES)
"""Layouts of data."""

POINT_NAMES, SKELETON = "point_names", "skeleton"
"""Keys of notes: the names of the points, and pairs of indices of points that are connected."""


class Posed(NamedTuple):
    """A sample: an image, and the objects in it whose points are wanted.

    Attributes:
        image: its path.
        boxes: N x 4 float64: left, top, right and bottom of the objects that have labelled points and are no crowds;
            ``None``: unknown, so that a model of cropped objects takes the whole image for one.
    """

    image: Path
    boxes: Array | None = None


class PosedImages(ListDataset):
    """Images, with the points of their objects if known: targets are :class:`.Objects` with ``points``."""

    def __init__(self, images: BoxedImages) -> None:
        self.images = images
        targets = images.targets
        samples = [
            Posed(path, None if targets is None else _evaluated(targets[place]))
            for place, path in enumerate(images.samples)
        ]
        super().__init__(
            samples, targets, names=images.names, files=images.files, rejected=images.rejected, notes=images.notes
        )

    def fingerprint(self) -> str:
        """Return the hash of the images and their objects."""
        return self.images.fingerprint()


def load_keypoints(path: Path, form: str | None = None) -> PosedImages:
    """Load images, and the key points of their objects if known.

    - ``coco``: a ``.json`` file in COCO's format of key points, a folder with one of :data:`.LABEL_FILES`, or COCO's
      layout ``annotations/person_keypoints_val2017.json``;
    - ``images``: any other folder, or one image.

    An annotation has ``keypoints``: x, y and a visibility for each point, which is 0 for a point that is not labelled;
    their number is that of the category's names of ``keypoints``. An annotation without labelled points has only a box.

    Raises:
        DataError: the path has no usable data, or categories have different points.
        ConfigError: the format is unknown.
    """
    if form is not None and form not in FORMATS:
        raise ConfigError(f"unknown data format {form!r}; use one of: {', '.join(FORMATS)}")
    check_exists(path)
    files = [] if form == IMAGES else _files(path)
    if len(files) > 1:
        raise DataError(f"{path} contains several data sets: {', '.join(map(str, files))}; pass the path of one")
    if not files and form == COCO:
        raise DataError(
            f"{path}: no JSON file of key points; pass the path of one, such as person_keypoints_val2017.json"
        )
    if not files:
        return PosedImages(load_boxes(path, IMAGES))
    content = read_json(files[0])
    names, skeleton = points_of(content, files[0])
    gathered = load_coco(files[0], None, content, partial(_posed, len(names)))
    gathered.ids |= {POINT_NAMES: names, SKELETON: skeleton}
    found = gathered.dataset()
    return PosedImages(found)


def _files(path: Path) -> list[Path]:
    """Return the JSON files for a path."""
    if path.is_file():
        return [path] if path.suffix.lower() == ".json" else []
    listed = next((path / name for name in LABEL_FILES if (path / name).is_file()), None)
    return [listed] if listed is not None else list(annotation_files(path, "person_keypoints"))


def _evaluated(target: Any) -> Array:
    """Return the boxes of an image's objects that have labelled points and are no crowds."""
    if target.points is None:
        return np.zeros((0, 4))
    wanted = ~target.crowd & ~np.isnan(target.points[..., 0]).all(axis=1)
    boxes: Array = target.boxes[wanted]
    return boxes


def points_of(content: Mapping[str, Any], file: Path) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
    """Return the names of the points, and the connected pairs, of a file's categories, which all must have the same."""
    found: dict[tuple[str, ...], tuple[tuple[int, int], ...]] = {}
    for where, entry in entries(content, "categories", file):
        names, pairs = entry.get("keypoints"), entry.get("skeleton") or []
        if names is None:
            continue
        if not isinstance(names, list) or not names or not all(isinstance(one, str) for one in names):
            raise DataError(f"{file}: {where}: keypoints {shown(names)} is not a list of names; write one per point")
        if not isinstance(pairs, list) or not all(_is_pair(one, len(names)) for one in pairs):
            raise DataError(
                f"{file}: {where}: skeleton {shown(pairs)} must be pairs of numbers of points from 1 to {len(names)}"
            )
        found.setdefault(tuple(names), tuple((one[0] - 1, one[1] - 1) for one in pairs))
    if len(found) > 1:
        lists = " and ".join(shown(list(names)) for names in found)
        raise DataError(f"{file}: categories have different key points, {lists}; evaluate them separately")
    if found:
        return next(iter(found.items()))
    counts = {len(one) // 3 for _, entry in entries(content, "annotations", file)
              if isinstance(one := entry.get("keypoints"), list)}  # fmt: skip
    if len(counts) != 1:
        raise DataError(f"{file}: no category has a list of keypoints; write their names, such as in COCO's files")
    return tuple(map(str, range(counts.pop()))), ()


def _is_pair(value: Any, count: int) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(one) is int and 1 <= one <= count for one in value)


def _posed(count: int, entry: Mapping[str, Any], places: Mapping[Any, int]) -> Found:
    """Read an annotation with ``count`` points. Raises DataError if it is invalid."""
    found, values = found_in(entry, places), entry.get("keypoints")
    if values is None:
        return found._replace(points=((float("nan"),) * 2,) * count)
    if not isinstance(values, list) or len(values) != 3 * count or not all(map(is_length, values)):
        raise DataError(f"keypoints {shown(values)} must be x, y and visibility of {count} points")
    if any(one not in (0, 1, 2) for one in values[2::3]):
        raise DataError(f"keypoints {shown(values)}: a visibility must be 0 (not labelled), 1 or 2")
    stated = entry.get("num_keypoints")
    none = stated == 0  # such an object is not evaluated, whatever its list says, as in COCO's evaluation
    points = tuple(
        (float("nan"),) * 2 if none or not seen else (float(x), float(y))
        for x, y, seen in zip(values[::3], values[1::3], values[2::3], strict=True)
    )
    return found._replace(points=points)
