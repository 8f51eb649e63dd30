"""Images with the objects in them: what loaders of any layout hand over, and how they tell of what is wrong."""

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
from tecoinfer_modelzoo.files import no_file, text_of
from tecoinfer_modelzoo.text import shown_value
from utils.datasets.base import ListDataset, Rejected
from utils.datasets.folders import NOT_A_PICTURE, is_picture
from utils.datasets.sharding import rank_and_size
from utils.preprocess.image.images import upright_size

CATEGORIES, COUNTS = "categories", "objects"
"""Notes of a data set: the names of its classes, and how many objects there are of each, crowds too."""

IMAGE_IDS, CATEGORY_IDS = "image_ids", "category_ids"
"""Notes of a data set with ids of its own: of its images by their ``number``, of its categories by their place."""

SLACK = 1.0
"""Pixels by which a box may reach out of its image unremarked: annotations are rounded."""


OTHER_SIZE = "images of another size than annotated: {} (boxes are taken in pixels of the upright image)"


class Objects(NamedTuple):
    """The objects of one image, what is right for it.

    Attributes:
        boxes: N x 4 float64: left, top, right, bottom in pixels of the upright image, edges and not centres of
            pixels: a whole image is 0, 0, width, height. N may be 0.
        classes: N int64: places in ``categories``.
        crowd: N booleans: the box holds many objects that nobody told apart, or is too difficult to judge by. Finding
            it is neither right nor wrong.
        categories: the names of the classes, which all images of a data set share; empty where they are only
            numbered, as the model's.
        areas: N float64: what the annotation states, in square pixels; ``None``: the boxes' own.
        number: the image's place in the order in which equal scores count.
        points: N x K x 2 float64: x and y of points of each object, NaN where one is not labelled; ``None``: none are.
    """

    boxes: Array
    classes: Array
    crowd: Array
    categories: tuple[str, ...]
    areas: Array | None = None
    number: int = 0
    points: Array | None = None


class Found(NamedTuple):
    """One object as a loader reads it: its box (left, top, right, bottom), class, whether a crowd, its area, points."""

    box: tuple[float, float, float, float]
    label: int
    crowd: bool = False
    area: float | None = None
    points: tuple[tuple[float, float], ...] | None = None


class BoxedPictures(ListDataset):
    """Image files, and the objects in them where they are known.

    Args:
        images: paths, which are the samples.
        objects: one per image, or ``None``.
        source: the file or the folder they come from.
        rejected: files that cannot be samples.
        notes: what holds for all of them.
    """

    def __init__(
        self,
        pictures: Sequence[Path],
        objects: Sequence[Objects] | None,
        source: Path,
        rejected: Sequence[Rejected],
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        names = [str(path) for path in pictures]
        super().__init__(pictures, objects, names=names, files=[source], rejected=rejected, notes=notes)

    def fingerprint(self) -> str:
        """Return a hash of the images' paths below the source's folder, sizes and times, and of all objects.

        Images are not read: a change that keeps size and time is not seen. The cost is one ``stat`` per image.
        """
        root = self.files[0] if self.files[0].is_dir() else self.files[0].parent
        digest = hashlib.sha256()
        for path in self.samples:
            try:
                info = path.stat()
                digest.update(repr((os.path.relpath(path, root), info.st_size, info.st_mtime_ns)).encode())
            except OSError:
                digest.update(repr((os.path.relpath(path, root), "gone")).encode())
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
    """What a loader has read so far; a bad entry costs its image, and the rest goes on.

    Attributes:
        source: the file or folder that is read.
        names: the classes; empty where they are only numbered.
        images: paths in order. objects: of each image. sizes: width and height.
        numbers: places in the order of equal scores.
        rejected: what cannot be used.
        ids: ids of images and of categories, as notes.
        remarks: how often something was met that is used all the same, in words with ``{}`` for the number.
    """

    source: Path
    names: tuple[str, ...] = ()
    pictures: list[Path] = field(default_factory=list)
    objects: list[list[Found]] = field(default_factory=list)
    sizes: list[tuple[float, float] | None] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    ids: dict[str, Any] = field(default_factory=dict)
    remarks: dict[str, int] = field(default_factory=dict)

    def remark(self, what: str, count: int = 1) -> None:
        """Count something that is worth a line at the end of loading."""
        if count:
            self.remarks[what] = self.remarks.get(what, 0) + count

    def reject(self, path: Path, reason: str) -> None:
        """Note what cannot be used, and why."""
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
        """Take in an image with its objects; one that is not there, or no image, is rejected.

        Args:
            path: the image. objects: what is in it.
            size: its width and height, where they are known.
            stated: they are what the annotation says, and are compared with the file's.
            number: its place where equal scores are counted; ``None``: in the order of adding.
        """
        if not is_picture(path.name):
            self.reject(path, NOT_A_PICTURE)
        elif not os.path.isfile(path):  # Path.is_file raises for a name that is too long
            self.reject(path, f"it {no_file(path)} but is listed in {self.source.name}")
        else:
            self.pictures.append(path)
            self.objects.append(list(objects))
            self.sizes.append(size)
            self.numbers.append(len(self.numbers) if number is None else number)
            if size is not None and stated:
                self.remark(OTHER_SIZE, int(_other_size(path, size)))

    def dataset(self) -> BoxedPictures:
        """Return the data set, and say what was remarked, a line each.

        Raises:
            DataError: no image can be used.
        """
        if not self.pictures:
            if not self.rejected:
                raise DataError(f"{self.source} lists no image; list at least one")
            first = self.rejected[0]
            raise DataError(
                f"{self.source}: none of its images can be used, the first of {len(self.rejected)} reasons: "
                f"{first.path}: {first.reason}; correct the data set"
            )
        targets = [self._target(place) for place in range(len(self.pictures))]
        if rank_and_size()[0] == 0:
            for what, count in self.remarks.items():
                warnings.warn(f"{self.source}: {what.format(count)}", stacklevel=2)
        labels = np.array([found.label for objects in self.objects for found in objects], np.int64)
        counts = np.bincount(labels, minlength=len(self.names)).tolist()
        notes = {CATEGORIES: self.names, COUNTS: counts, **self.ids}
        return BoxedPictures(self.pictures, targets, self.source, self.rejected, notes)

    def _target(self, place: int) -> Objects:
        objects, size = self.objects[place], self.sizes[place]
        boxes = np.array([found.box for found in objects], np.float64).reshape(-1, 4)
        sides = boxes[:, 2:] - boxes[:, :2]
        flat = int(np.count_nonzero((sides <= 0).any(axis=1)))
        self.remark("objects without an area: {} (they count, and nothing can find them)", flat)
        if size is not None:
            over = (boxes < -SLACK) | (boxes > np.array(size * 2) + SLACK)
            beyond = int(np.count_nonzero(over.any(axis=1)))
            self.remark("boxes that reach out of their image: {} (used as they are)", beyond)
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
    """Return the points of objects, N x K x 2, NaN where there are none; ``None`` where no object has any."""
    count = max((len(found.points) for found in objects if found.points is not None), default=0)
    if not count:
        return None
    empty = ((float("nan"), float("nan")),) * count
    return np.array([empty if found.points is None else found.points for found in objects], np.float64)


def _other_size(path: Path, size: tuple[float, float]) -> bool:
    """Say whether an image has another width or height; one that cannot be read is named later, when it is due."""
    try:
        return upright_size(path) != size
    except (DataError, OSError):
        return False


def shown(value: object) -> str:
    """Return a wrong value as a message shows it: on one line, and not all of a long one."""
    return shown_value(value, 60)


def lines_of(file: Path) -> list[str]:
    """Return the lines of a list in UTF-8, bytes that are none replaced.

    Raises:
        DataError: it cannot be read.
    """
    try:
        return text_of(file, errors="replace").splitlines()
    except OSError as error:
        raise DataError(f"{file} cannot be read ({error.strerror}); check the path") from error
