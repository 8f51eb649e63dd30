"""Classes and key points that a network is built for: COCO's, or those of a data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from engine import DataError
from utils.coco_classes import NAMES
from utils.datasets.base import check_exists
from utils.datasets.image.coco import categories_of, read_json
from utils.datasets.image.coco_keypoints import points_of


class Categories(NamedTuple):
    """Classes in the order of a model's outputs, and the names and connected pairs of the points of their objects."""

    labels: tuple[str, ...] = ()
    points: tuple[str, ...] = ()
    skeleton: tuple[tuple[int, int], ...] = ()


PERSONS = Categories(
    labels=("person",),
    points=(
        "nose", "left_eye", "right_eye", "left_ear", "right_ear", "left_shoulder", "right_shoulder", "left_elbow",
        "right_elbow", "left_wrist", "right_wrist", "left_hip", "right_hip", "left_knee", "right_knee", "left_ankle",
        "right_ankle",
    ),
    skeleton=(
        (15, 13), (13, 11), (16, 14), (14, 12), (11, 12), (5, 11), (6, 12), (5, 6), (5, 7), (6, 8), (7, 9), (8, 10),
        (1, 2), (0, 1), (0, 2), (1, 3), (2, 4), (3, 5), (4, 6),
    ),
)  # fmt: skip
"""COCO's person, its 17 key points, and the lines between them (person_keypoints_val2017.json; indices from 0)."""

OBJECTS = Categories(labels=NAMES)
"""COCO's 80 classes."""


def keypoint_categories(file: Path | None) -> Categories:
    """Return the classes and points of a JSON file in COCO's format of key points; ``None``: :data:`PERSONS`.

    Its images are not needed. Raises DataError if it is invalid, has no class, or its classes have different points.
    """
    if file is None:
        return PERSONS
    content = _content(file)
    return Categories(_labels(content, file), *points_of(content, file))


def instance_categories(file: Path | None) -> Categories:
    """Return the classes of a JSON file in COCO's format; ``None``: :data:`OBJECTS`.

    Its images are not needed. Raises DataError if it is invalid or has no class.
    """
    return OBJECTS if file is None else Categories(_labels(_content(file), file))


def _content(file: Path) -> Mapping[str, Any]:
    check_exists(file)
    return read_json(file)


def _labels(content: Mapping[str, Any], file: Path) -> tuple[str, ...]:
    labels, _ = categories_of(content, file)
    if not labels:
        raise DataError(f"{file}: 'categories' is empty; write the classes of the weights")
    return labels
