"""Images with objects: the common result of all loaders, and their warnings."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, DataError
from tecoinfer_modelzoo.files import check_regular, not_a_file_reason, size_and_time, text_of
from tecoinfer_modelzoo.text import shown_value
from utils.datasets.base import ListDataset, Rejected
from utils.datasets.folders import NOT_AN_IMAGE, is_image
from utils.datasets.sharding import rank_and_size
from utils.preprocess.image.images import upright_size

CATEGORIES, COUNTS = "categories", "objects"
"""Keys of notes: the names of the classes, and the number of objects of each, including crowds."""

IMAGE_IDS, CATEGORY_IDS = "image_ids", "category_ids"
"""Keys of notes: the ids of images by their ``number``, and of categories by their index."""

SLACK = 1.0
"""Pixels by which a box may exceed its image without a warning, because annotations are rounded."""

_LONGEST_LINE = 100_000
OTHER_SIZE = "images of another size than annotated: {} (boxes are taken in pixels of the upright image)"


class Objects(NamedTuple):
    """The objects of one image, its ground truth.

    Attributes:
        boxes: N x 4 float64: left, top, right, bottom in pixels of the upright image, measured at pixel edges: a whole
            image is 0, 0, width, height. N may be 0.
        classes: N int64: indices into ``categories``.
        crowd: N booleans: the box is a group, or too difficult. A detection of it is neither right nor wrong.
        categories: the names of the classes, the same for all images; empty if classes are only numbered.
        areas: N float64: areas in the annotation, in square pixels; ``None``: those of the boxes.
        number: the image's position in the order of equal scores.
        points: N x K x 2 float64: x and y of keypoints, NaN if not labelled; ``None``: no keypoints.
        masks: of the objects (:class:`utils.postprocess.image.instances.Mask`); ``None``: not known.
    """

    boxes: Array
    classes: Array
    crowd: Array
    categories: tuple[str, ...]
    areas: Array | None = None
    number: int = 0
    points: Array | None = None
    masks: Sequence[Any] | None = None


class Found(NamedTuple):
    """One object: its box (left, top, right, bottom), class, whether it is a crowd, its area, keypoints and region."""

    box: tuple[float, float, float, float]
    label: int
    crowd: bool = False
    area: float | None = None
    points: tuple[tuple[float, float], ...] | None = None
    region: Any = None


class BoxedImages(ListDataset):
    """Image files, whose paths are the samples, with their objects if known."""

    def __init__(
        self,
        images: Sequence[Path],
        objects: Sequence[Objects] | None,
        source: Path,
        rejected: Sequence[Rejected],
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        names = [str(path) for path in images]
        super().__init__(images, objects, names=names, files=[source], rejected=rejected, notes=notes)

    def fingerprint(self) -> str:
        """Return a hash of the images' relative paths, sizes and times (not content), and of all objects."""
        root = self.files[0] if self.files[0].is_dir() else self.files[0].parent
        digest = hashlib.sha256()
        for path in self.samples:
            digest.update(repr((os.path.relpath(path, root), *size_and_time(path))).encode())
        for found in self.targets or ():
            areas = None if found.areas is None else found.areas.tolist()
            columns = (found.boxes.tolist(), found.classes.tolist(), found.crowd.tolist(), areas)
            digest.update(repr(columns).encode())
            if found.points is not None:
                digest.update(repr(found.points.tolist()).encode())
        digest.update(repr(self.targets[0].categories if self.targets else ()).encode())
        return digest.hexdigest()


@dataclass
class Gathered:
    """The images and objects read so far by a loader; a bad entry only rejects its image.

    Attributes:
        names: the classes; empty if they are only numbered.
        images: paths in order. objects: per image. sizes: width and height.
        numbers: positions in the order of equal scores.
        ids: ids of images and of categories, as notes.
        warning_counts: numbers of suspicious entries that are used, by a text with ``{}`` for the number.
    """

    source: Path
    names: tuple[str, ...] = ()
    images: list[Path] = field(default_factory=list)
    objects: list[list[Found]] = field(default_factory=list)
    sizes: list[tuple[float, float] | None] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    ids: dict[str, Any] = field(default_factory=dict)
    warning_counts: dict[str, int] = field(default_factory=dict)

    def count_warning(self, what: str, count: int = 1) -> None:
        """Count a suspicious entry for a warning at the end of loading."""
        if count:
            self.warning_counts[what] = self.warning_counts.get(what, 0) + count

    def reject(self, path: Path, reason: str) -> None:
        """Add an entry that cannot be used."""
        self.rejected.append(Rejected(path, reason))

    def add(
        self,
        path: Path,
        objects: Iterable[Found],
        size: tuple[float, float] | None = None,
        *,
        stated: bool = True,
        number: int | None = None,
    ) -> None:
        """Add an image with its objects; a missing file, or one that is not an image, is rejected.

        ``size`` is its width and height, if known; if it is ``stated`` in the annotation, it is compared with the
        file's. ``number`` is its position in the order of equal scores, by default that of adding.
        """
        if not is_image(path.name):
            self.reject(path, NOT_AN_IMAGE)
        elif not os.path.isfile(path):  # Path.is_file raises if a name is too long
            self.reject(path, f"it {not_a_file_reason(path)} but is listed in {self.source.name}")
        else:
            self.images.append(path)
            self.objects.append(list(objects))
            self.sizes.append(size)
            self.numbers.append(len(self.numbers) if number is None else number)
            if size is not None and stated:
                self.count_warning(OTHER_SIZE, int(_other_size(path, size)))

    def dataset(self) -> BoxedImages:
        """Return the data set, and warn of each kind of suspicious entry; raise DataError if no image can be used."""
        if not self.images:
            if not self.rejected:
                raise DataError(f"{self.source} lists no image; list at least one")
            first = self.rejected[0]
            raise DataError(
                f"{self.source}: none of its images can be used, the first of {len(self.rejected)} reasons: "
                f"{first.path}: {first.reason}; correct the data set"
            )
        targets = [self._target(place) for place in range(len(self.images))]
        if rank_and_size()[0] == 0:
            for what, count in self.warning_counts.items():
                warnings.warn(f"{self.source}: {what.format(count)}", stacklevel=2)
        labels = np.array([found.label for objects in self.objects for found in objects], np.int64)
        counts = np.bincount(labels, minlength=len(self.names)).tolist()
        notes = {CATEGORIES: self.names, COUNTS: counts, **self.ids}
        return BoxedImages(self.images, targets, self.source, self.rejected, notes)

    def _target(self, place: int) -> Objects:
        objects, size = self.objects[place], self.sizes[place]
        boxes = np.array([found.box for found in objects], np.float64).reshape(-1, 4)
        sides = boxes[:, 2:] - boxes[:, :2]
        flat = int(np.count_nonzero((sides <= 0).any(axis=1)))
        self.count_warning("objects without an area: {} (they count, but cannot be found)", flat)
        if size is not None:
            over = (boxes < -SLACK) | (boxes > np.array(size * 2) + SLACK)
            beyond = int(np.count_nonzero(over.any(axis=1)))
            self.count_warning("boxes that exceed their image: {} (used unchanged)", beyond)
        stated = [found.area for found in objects]
        areas = None
        if any(area is not None for area in stated):
            own = sides.prod(axis=1).tolist()
            areas = np.array([mine if area is None else area for area, mine in zip(stated, own, strict=True)])
        return Objects(
            boxes,
            np.array([found.label for found in objects], np.int64),
            np.array([found.crowd for found in objects], bool),
            self.names,
            areas,
            self.numbers[place],
            _points(objects),
        )


def _points(objects: Sequence[Found]) -> Array | None:
    """Return the keypoints of objects, N x K x 2, NaN for objects without; ``None`` if no object has any."""
    count = max((len(found.points) for found in objects if found.points is not None), default=0)
    if not count:
        return None
    empty = ((float("nan"), float("nan")),) * count
    return np.array([empty if found.points is None else found.points for found in objects], np.float64)


def _other_size(path: Path, size: tuple[float, float]) -> bool:
    """Return whether an image has another size; an image that cannot be read is reported later, when it is used."""
    try:
        return upright_size(path) != size
    except (DataError, OSError):
        return False


def shown(value: object) -> str:
    """Return a wrong value for a message, on one line and shortened."""
    return shown_value(value, 60)


def first_lines(file: Path, count: int) -> list[str]:
    """Return the first lines of a text file, stripped; empty texts if it cannot be read."""
    try:
        check_regular(file)
        with file.open(encoding="utf-8-sig", errors="replace") as lines:
            return [lines.readline(_LONGEST_LINE).strip() for _ in range(count)]
    except OSError:
        return [""] * count


def lines_of(file: Path) -> list[str]:
    """Return the lines of a list in UTF-8, invalid bytes replaced. Raises DataError if the file cannot be read."""
    try:
        return text_of(file, errors="replace").splitlines()
    except OSError as error:
        raise DataError(f"{file} cannot be read ({error.strerror}); check the path") from error
