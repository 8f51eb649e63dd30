"""Pictures with the objects in them: the part of COCO's JSON that detection needs, folders, and single pictures."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, DataError
from utils.datasets.base import Rejected
from utils.datasets.objects import BoxedPictures, Objects
from utils.datasets.folders import NOT_A_PICTURE, flat_folder, is_picture, single_picture

LABEL_FILES = ("val.json", "instances.json", "annotations.json")
"""A folder that holds a file of one of these names is read through it."""


def load_boxes(path: Path) -> BoxedPictures:
    """Load pictures, and their objects where they are known.

    A ``.json`` file holds an object with

    - ``images``: ``{"id": 1, "file_name": "a.png"}``; the paths start from the folder of the file;
    - ``categories``: ``{"id": 1, "name": "cat"}``; classes are numbered in the order of the ids;
    - ``annotations``: ``{"image_id": 1, "category_id": 1, "bbox": [left, top, width, height]}``, the box in pixels, and
      ``"iscrowd": 1`` where it stands for many objects. Other keys are passed over.

    This is what COCO publishes (cocodataset.org, "Data format"), so its files can be read as they are. A folder that
    holds a file of :data:`LABEL_FILES` is read through it; any other folder, or one picture, has no targets. Samples
    are paths. Listed pictures that do not exist are in ``rejected``, with their objects.

    Raises:
        DataError: nothing usable at the path, or a file that is not as above; the text names the entry.
    """
    if not path.exists():
        raise DataError(f"data path {path} does not exist; check the path")
    if path.is_dir():
        listed = next((path / name for name in LABEL_FILES if (path / name).is_file()), None)
        return _plain(path) if listed is None else _listed(listed)
    return _listed(path) if path.suffix.lower() == ".json" else _plain(path)


def _plain(path: Path) -> BoxedPictures:
    """Return pictures without targets."""
    found = flat_folder(path) if path.is_dir() else single_picture(path)
    paths = [sample.path for sample in found]
    rejected = [Rejected(one.path, one.reason) for one in found.rejected]
    return BoxedPictures(paths, None, path, rejected)


def _listed(file: Path) -> BoxedPictures:
    """Return the pictures of a JSON file with their objects."""
    content = _json(file)
    names, places = _categories(content, file)
    pictures = _pictures(content, file)
    objects: dict[Any, list[tuple[list[float], int, bool]]] = {key: [] for key in pictures}
    for where, entry in _entries(content, "annotations", file):
        owner = _known(entry, "image_id", pictures, "no image has this id", where)
        place = places[_known(entry, "category_id", places, "no category has this id", where)]
        objects[owner].append((_box(entry, where), place, bool(entry.get("iscrowd", 0))))
    rejected, usable = [], []
    for key, path in pictures.items():
        reason = _unusable(path, file)
        if reason:
            rejected.append(Rejected(path, reason))
        else:
            usable.append(key)
    if not usable:
        if not rejected:
            raise DataError(f"{file} lists no image; list at least one")
        raise DataError(
            f"{file}: none of its {len(pictures)} images can be used, "
            f"the first: {rejected[0].path}: {rejected[0].reason}; check the paths"
        )
    paths = [pictures[key] for key in usable]
    targets = [_objects(objects[key], names) for key in usable]
    return BoxedPictures(paths, targets, file, rejected)


def _json(file: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(file.read_bytes())
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}; check the path") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} is not JSON ({error}); write images, annotations and categories") from error
    if not isinstance(content, dict):
        raise DataError(f"{file} holds a {type(content).__name__}; it must be an object with images and categories")
    return content


def _entries(content: Mapping[str, Any], key: str, file: Path) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the objects of a list, each with where it stands, for errors."""
    found = content.get(key)
    if not isinstance(found, list):
        raise DataError(f"{file}: {key!r} is {'missing' if found is None else 'not a list'}; write a list of objects")
    entries = [(f"{file}: {key}[{index}]", entry) for index, entry in enumerate(found)]
    wrong = next((where for where, entry in entries if not isinstance(entry, dict)), None)
    if wrong is not None:
        raise DataError(f"{wrong} is not an object; write one as COCO has it")
    return entries


def _identifier(entry: Mapping[str, Any], where: str) -> int | str:
    found = entry.get("id")
    if isinstance(found, bool) or not isinstance(found, (int, str)):
        raise DataError(f"{where}: id {found!r} is no id; write a whole number")
    return found


def _categories(content: Mapping[str, Any], file: Path) -> tuple[tuple[str, ...], dict[int | str, int]]:
    """Return the names of the classes and the place of every category id among them."""
    found: dict[int | str, str] = {}
    for where, entry in _entries(content, "categories", file):
        key, name = _identifier(entry, where), entry.get("name")
        if key in found:
            raise DataError(f"{where}: id {key!r} stands twice; give every category an id of its own")
        if not isinstance(name, str) or name in found.values():
            raise DataError(
                f"{where}: name {name!r} is {'taken' if isinstance(name, str) else 'no text'}; write another"
            )
        found[key] = name
    order = sorted(found, key=lambda key: (isinstance(key, str), key))
    return tuple(found[key] for key in order), {key: place for place, key in enumerate(order)}


def _pictures(content: Mapping[str, Any], file: Path) -> dict[int | str, Path]:
    """Return the path of every picture by its id, in the file's order."""
    root = os.path.join(os.path.abspath(file.parent), "")
    found: dict[int | str, Path] = {}
    for where, entry in _entries(content, "images", file):
        key, name = _identifier(entry, where), entry.get("file_name")
        if key in found:
            raise DataError(f"{where}: id {key!r} stands twice; give every image an id of its own")
        if not isinstance(name, str) or not name:
            raise DataError(f"{where}: file_name {name!r} is no path; write one relative to {file.parent}")
        path = Path(os.path.normpath(file.parent / name))
        if not os.path.abspath(path).startswith(root):
            raise DataError(f"{where}: file_name {name!r} leaves the data folder {file.parent}; write a path within it")
        found[key] = path
    return found


def _known(entry: Mapping[str, Any], key: str, known: Mapping[Any, Any], problem: str, where: str) -> Any:
    found = entry.get(key)
    if isinstance(found, bool) or not isinstance(found, (int, str)) or found not in known:
        raise DataError(f"{where}: {key} {found!r}: {problem}; add it, or correct the annotation")
    return found


def _box(entry: Mapping[str, Any], where: str) -> list[float]:
    """Return left, top, right and bottom of an annotation."""
    box = entry.get("bbox")
    fine = isinstance(box, list) and len(box) == 4 and all(type(n) in (int, float) and math.isfinite(n) for n in box)
    if not fine or not isinstance(box, list) or box[2] < 0 or box[3] < 0:
        raise DataError(f"{where}: bbox {box!r} is not [left, top, width, height] in pixels; correct it")
    left, top, width, height = map(float, box)
    return [left, top, left + width, top + height]


def _unusable(path: Path, file: Path) -> str:
    """Say why a listed picture cannot be a sample; empty where it can."""
    if not is_picture(path.name):
        return NOT_A_PICTURE
    return "" if path.is_file() else f"it does not exist but is listed in {file.name}"


def _objects(found: Sequence[tuple[list[float], int, bool]], names: tuple[str, ...]) -> Objects:
    boxes = np.array([box for box, _, _ in found], np.float64).reshape(-1, 4)
    return Objects(
        boxes, np.array([c for _, c, _ in found], np.int64), np.array([crowd for _, _, crowd in found], bool), names
    )
