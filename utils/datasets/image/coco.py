"""Read the parts of COCO's JSON that detection needs, and find its images."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from engine import DataError
from tecoinfer_modelzoo.text import one_line
from utils.datasets.image.objects import CATEGORY_IDS, IMAGE_IDS, Found, Gathered, shown
from utils.datasets.text.tables import content_of, is_text

LISTED_TWICE = "images listed under several ids: {} (each counts as an image)"

REPEATED = "annotations with the id of another one: {} (each counts as an object)"

_Entry = tuple[str, Mapping[str, Any]]


def load_coco(
    file: Path,
    folder: Path | None = None,
    content: Mapping[str, Any] | None = None,
    read: Callable[[Mapping[str, Any], Mapping[Any, int]], Found] | None = None,
) -> Gathered:
    """Read images and objects from a JSON file in COCO's format:

    - ``images``: ``{"id": 1, "file_name": "a.png"}``; ``width`` and ``height`` are compared with the file's;
    - ``categories``: ``{"id": 1, "name": "cat"}``; classes are numbered in the order of the ids;
    - ``annotations``: ``{"image_id": 1, "category_id": 1, "bbox": [left, top, width, height]}``, the box in pixels,
      ``"iscrowd": 1`` for a box of many objects, and ``area``, by which COCO classifies objects as small to large.

    Other keys are ignored. Images are numbered in the order of their ids, as in pycocotools. An image with an invalid
    annotation is rejected, because an evaluation without the object would give another result. Raises DataError if the
    file is not in this format.

    Without ``folder``, that of the images is found by :func:`images_root`; ``content`` is the parsed file, if known;
    ``read`` reads an annotation that has more than a box, in place of :func:`found_in`.
    """
    content = read_json(file) if content is None else content
    names, places = categories_of(content, file)
    gathered = Gathered(file, names)
    images, dropped = images_of(content, file, gathered)
    objects: dict[Any, list[Found]] = {key: [] for key in images}
    bad: dict[Any, str] = {}
    ids: set[Any] = set()
    for where, entry in entries(content, "annotations", file, gathered):
        owner = entry.get("image_id")
        if is_id(owner) and owner in dropped:
            continue
        if not is_id(owner) or owner not in images:
            gathered.reject(file, f"{where}: image_id {shown(owner)}: no image has this id")
            continue
        try:
            objects[owner].append((read or found_in)(entry, places))
        except DataError as error:
            bad.setdefault(owner, f"{where}: {error}")
        key = entry.get("id")
        gathered.count_warning(REPEATED, int(is_id(key) and key in ids))
        ids |= {key} if is_id(key) else set()
    root = folder or images_root(file, [str(entry["file_name"]) for entry in images.values()])
    files = [images[key]["file_name"] for key in images]
    gathered.count_warning(LISTED_TWICE, len(files) - len(set(files)))
    order = sorted(images, key=by_kind)
    numbers = {key: number for number, key in enumerate(order)}
    gathered.ids = {IMAGE_IDS: tuple(order), CATEGORY_IDS: tuple(places)}
    for key in images:
        path = Path(os.path.normpath(root / images[key]["file_name"]))
        if key in bad:
            gathered.reject(path, bad[key])
        else:
            gathered.add(path, objects[key], _size(images[key]), number=numbers[key])
    return gathered


def images_root(file: Path, names: list[str]) -> Path:
    """Return the folder of the images: the first of these that has the first image, else the file's own.

    For ``annotations/instances_val2017.json`` these are its own folder, and ``val2017/``, ``images/val2017/`` and
    ``images/`` next to the folder ``annotations``.
    """
    split = file.stem.rpartition("_")[2]
    above = file.parent.parent if file.parent.name == "annotations" else file.parent
    folders = [file.parent, above / split, above / "images" / split, above / "images", file.parent / "images"]
    first = names[:1]
    return next((folder for folder in folders if any(os.path.isfile(folder / name) for name in first)), file.parent)


def read_json(file: Path) -> Mapping[str, Any]:
    """Return the object in a JSON file; raise DataError if it cannot be read, or its content is not an object."""
    try:
        content = json.loads(content_of(file))
    except (ValueError, RecursionError) as error:
        reason = one_line(error)
        raise DataError(f"{file} is not JSON ({reason}); write images, annotations and categories") from error
    if not isinstance(content, dict):
        raise DataError(f"{file} contains a {type(content).__name__}; expected an object with images and categories")
    return content


def entries(content: Mapping[str, Any], key: str, file: Path, gathered: Gathered | None = None) -> list[_Entry]:
    """Return the objects of a list, each with its position for error messages.

    Items that are not objects are rejected in ``gathered``. Raises DataError if the list is missing, or an item is not
    an object and ``gathered`` is ``None``.
    """
    found = content.get(key)
    if not isinstance(found, list):
        raise DataError(f"{file}: {key!r} is {'missing' if found is None else 'not a list'}; write a list of objects")
    entries: list[_Entry] = []
    for index, entry in enumerate(found):
        if isinstance(entry, dict):
            entries.append((f"{key}[{index}]", entry))
        elif gathered is None:
            raise DataError(f"{file}: {key}[{index}] is not an object; write one in COCO's format")
        else:
            gathered.reject(file, f"{key}[{index}] is {shown(entry)}, not an object")
    return entries


def is_id(value: object) -> bool:
    """Return whether a value is a valid id."""
    return isinstance(value, (int, str)) and not isinstance(value, bool)


def categories_of(content: Mapping[str, Any], file: Path) -> tuple[tuple[str, ...], dict[Any, int]]:
    """Return the names of the classes, and the index of every category id in them."""
    found: dict[Any, str] = {}
    taken: set[str] = set()
    for at, entry in entries(content, "categories", file):
        where, key, name = f"{file}: {at}", entry.get("id"), entry.get("name")
        if not is_id(key):
            raise DataError(f"{where}: id {shown(key)} is not an id; write an integer")
        if key in found:
            raise DataError(f"{where}: id {shown(key)} occurs twice; give every category a different id")
        if not isinstance(name, str) or name in taken or not is_text(name):
            problem = "already used" if isinstance(name, str) and name in taken else "not a text"
            raise DataError(f"{where}: name {shown(name)} is {problem}; choose another name")
        found[key] = name
        taken.add(name)
    order = sorted(found, key=by_kind)
    return tuple(found[key] for key in order), {key: place for place, key in enumerate(order)}


def by_kind(key: int | str) -> tuple[bool, int | str]:
    """Return the sort key of an id: numbers before texts."""
    return isinstance(key, str), key


def images_of(
    content: Mapping[str, Any], file: Path, gathered: Gathered
) -> tuple[dict[Any, Mapping[str, Any]], set[Any]]:
    """Return the usable images by their id, and the other ids; images with the same id are ambiguous and not used."""
    found: dict[Any, Mapping[str, Any]] = {}
    dropped: set[Any] = set()
    for where, entry in entries(content, "images", file, gathered):
        key, name = entry.get("id"), entry.get("file_name")
        if not is_id(key):
            gathered.reject(file, f"{where}: id {shown(key)} is not an id")
        elif key in found or key in dropped:
            gathered.reject(file, f"{where}: id {shown(key)} occurs twice: neither image is used")
            dropped.add(key)
            found.pop(key, None)
        elif not isinstance(name, str) or not name or "\0" in name or not is_text(name):
            gathered.reject(file, f"{where}: file_name {shown(name)} is not a path")
            dropped.add(key)
        elif leaves(file.parent, name):
            gathered.reject(file, f"{where}: file_name {shown(name)} leaves the data folder {file.parent}")
            dropped.add(key)
        else:
            found[key] = entry
    return found, dropped


def leaves(root: Path, name: str) -> bool:
    """Return whether a path relative to a folder leads out of it."""
    top = os.path.join(os.path.abspath(root), "")
    return not os.path.abspath(os.path.join(top, name)).startswith(top)


def found_in(entry: Mapping[str, Any], places: Mapping[Any, int]) -> Found:
    """Read an annotation; ``places`` maps category ids to classes. Raises DataError if the annotation is invalid."""
    category, box, area, crowd = (entry.get(key) for key in ("category_id", "bbox", "area", "iscrowd"))
    if not is_id(category) or category not in places:
        raise DataError(f"category_id {shown(category)}: no category has this id")
    if not isinstance(box, list) or len(box) != 4 or not all(map(is_length, box)) or min(box[2:]) < 0:
        raise DataError(f"bbox {shown(box)} is not [left, top, width, height] in pixels")
    if area is not None and not (is_length(area) and area >= 0):
        raise DataError(f"area {shown(area)} is not a number of square pixels; remove it if it is unknown")
    if crowd not in (None, 0, 1):
        raise DataError(f"iscrowd {shown(crowd)} must be 0 or 1")
    left, top, width, height = map(float, box)
    stated = None if area is None else float(area)
    return Found((left, top, left + width, top + height), places[category], bool(crowd), stated)


def is_length(value: Any) -> bool:
    """Return whether a value is a valid coordinate or length in pixels."""
    return type(value) in (int, float) and abs(value) < 1e9 and math.isfinite(value)


def _size(entry: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return width and height in an image's entry."""
    sides = entry.get("width"), entry.get("height")
    return (float(sides[0]), float(sides[1])) if all(is_length(s) and s > 0 for s in sides) else None  # type: ignore[arg-type,operator]


def annotation_files(root: Path, kind: str = "instances") -> Iterator[Path]:
    """Yield the files of a kind in COCO's folder ``annotations``; if some are for validation, only these."""
    found = sorted((root / "annotations").glob(f"{kind}*.json"))
    held_out = [file for file in found if "val" in file.stem]
    yield from held_out or found
