"""Faces in images, listed in a text file in the format of WIDER FACE, or of RetinaFace with five landmarks each."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from engine import DataError
from tecoinfer_modelzoo.files import text_of
from tecoinfer_modelzoo.text import one_line
from utils.datasets.folders import is_image
from utils.datasets.image.coco import leaves
from utils.datasets.image.objects import Found, Gathered, first_lines, shown
from utils.preprocess.image.images import upright_size

NAMES = ("face",)
"""The only class."""

LISTS = ("label.txt", "labels.txt")
"""Names of RetinaFace's files; those of WIDER FACE end in :data:`ENDING`."""

ENDING = "_bbx_gt.txt"
SPLITS = "wider_face_split"
"""Folder of WIDER FACE's lists, next to the folders of its images."""

POINTS = 5
BOX, FLAGGED, WITH_POINTS = 4, 10, 4 + 3 * POINTS
"""Numbers in a line: left, top, width, height; these and six flags; these and x, y and a flag per landmark."""

INVALID = 7
"""Index of the flag for faces that are not evaluated, because they were too small or too dark to annotate."""

FARTHEST = 1e9
"""Coordinates must be below this, in pixels."""


class Block(NamedTuple):
    """An image of a list: its name, its line number, and the lines below it with their numbers."""

    name: str
    at: int
    rows: list[tuple[int, list[str]]]


def face_lists(path: Path) -> list[Path]:
    """Return the lists of faces for a path: itself, those in a folder, or in its ``wider_face_split``."""
    if path.is_file():
        return [path] if path.suffix.lower() == ".txt" and is_face_list(path) else []
    places = [*sorted(path.glob(f"*{ENDING}")), *(path / name for name in LISTS)]
    places += sorted((path / SPLITS).glob(f"*_val{ENDING}"))
    return [place for place in places if place.is_file() and (place.name.endswith(ENDING) or is_face_list(place))]


def is_face_list(file: Path) -> bool:
    """Return whether a text file starts with the name of an image, after ``#`` or followed by a number."""
    first, second = first_lines(file, 2)
    return is_image(first) and (first.startswith("#") or second.isdigit())


def load_wider(path: Path) -> Gathered:
    """Read images and their faces from a list, or a folder with one.

    WIDER FACE's files (Yang et al. 2016, ``wider_face_split/readme.txt``) have per image a line with its path, one with
    the number of its faces, and one per face: left, top, width and height in pixels, then the flags blur, expression,
    illumination, invalid, occlusion and pose. An image without faces has the number 0, and optionally a line of zeros.
    An invalid face is ``crowd``: detecting it is neither right nor wrong.

    RetinaFace's files have ``# path``, and one line per face: left, top, width and height, and for each of five
    landmarks x, y and a flag; -1 -1 -1 is an unlabelled landmark, and lines of four numbers have none.

    Images are next to the file, in ``images`` there, or in WIDER FACE's own folders. An image with invalid lines is
    rejected. Raises DataError if the file is missing or cannot be read.
    """
    file = path if path.is_file() else next(iter(face_lists(path)), None)
    if file is None:
        raise DataError(f"{path} has no list of faces; pass one such as wider_face_val_bbx_gt.txt or label.txt")
    blocks, has_points = _blocks(file)
    root = _root(file, blocks)
    gathered = Gathered(file, NAMES)
    for block in blocks:
        image = root / block.name
        if leaves(root, block.name):
            gathered.reject(image, f"line {block.at} of {file.name} leaves the data folder {root}")
            continue
        try:
            faces = [_point_face(*row) for row in block.rows] if has_points else _faces(block)
            size = upright_size(image) if os.path.isfile(image) else None
        except (DataError, ValueError) as error:
            gathered.reject(image, str(error))
            continue
        gathered.add(image, faces, size, stated=False)
    return gathered


def _blocks(file: Path) -> tuple[list[Block], bool]:
    """Return the images of a list with their lines, and whether the list is in RetinaFace's format."""
    try:
        lines = text_of(file).splitlines()
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read as text in UTF-8 ({one_line(error)}); pass a list of faces") from error
    blocks: list[Block] = []
    marked = next((line for line in lines if line.strip()), "").startswith("#")
    for number, line in ((number, line.strip()) for number, line in enumerate(lines, start=1) if line.strip()):
        if line.startswith("#") if marked else is_image(line):
            blocks.append(Block(line.removeprefix("#").strip(), number, []))
        elif not blocks:
            raise DataError(f"{file}, line {number}: {shown(line)} is not an image's path; is it a list of faces?")
        else:
            blocks[-1].rows.append((number, line.split()))
    return blocks, marked


def _root(file: Path, blocks: Sequence[Block]) -> Path:
    """Return the folder that paths are relative to: the first that has one of the images."""
    folder = file.parent
    part = file.name.removesuffix(ENDING).rpartition("_")[2]
    places = [folder, folder / "images"]
    places += [one / f"WIDER_{part}" / "images" for one in (folder, folder.parent)]
    names = [block.name for block in blocks[:100]]
    return next((place for place in places if any(os.path.isfile(place / name) for name in names)), folder)


def _faces(block: Block) -> list[Found]:
    """Return the faces of an image in WIDER FACE's format; raise ValueError if a line is invalid."""
    if not block.rows or len(block.rows[0][1]) != 1 or not re.fullmatch("[0-9]{1,9}", block.rows[0][1][0]):
        raise ValueError(f"line {block.at + 1} is not the number of its faces")
    number, rows = block.rows[0][0], block.rows[1:]
    count = int(block.rows[0][1][0])
    if count == 0 and len(rows) == 1 and not any(_numbers(*rows[0], (BOX, FLAGGED))):
        return []
    if len(rows) != count:
        raise ValueError(f"line {number} states {count} faces, but {len(rows)} follow")
    found = []
    for row in rows:
        values = _numbers(*row, (BOX, FLAGGED))
        found.append(Found(_box(row[0], values), 0, len(values) == FLAGGED and values[INVALID] == 1))
    return found


def _point_face(number: int, words: Sequence[str]) -> Found:
    """Return a face in RetinaFace's format; raise ValueError if the line is invalid."""
    values = _numbers(number, words, (BOX, WITH_POINTS, WITH_POINTS + 1))
    triples = [values[place : place + 3] for place in range(BOX, BOX + 3 * POINTS, 3)] if len(values) > BOX else []
    points = tuple((math.nan, math.nan) if x == y == -1 else (x, y) for x, y, _ in triples)
    known = any(not math.isnan(x) for x, _ in points)
    return Found(_box(number, values), 0, points=points if known else None)


def _numbers(number: int, words: Sequence[str], counts: tuple[int, ...]) -> list[float]:
    """Return the numbers of a line; raise ValueError if they are not finite, or not as many as in ``counts``."""
    try:
        values = list(map(float, words))
    except ValueError:
        raise ValueError(f"line {number}: {shown(' '.join(words))} are not numbers") from None
    if len(values) not in counts:
        raise ValueError(f"line {number} has {len(values)} numbers; a face has {' or '.join(map(str, counts))}")
    if not all(abs(value) < FARTHEST for value in values):
        raise ValueError(f"line {number}: a number is NaN, infinite or at least {FARTHEST:g}")
    return values


def _box(number: int, values: Sequence[float]) -> tuple[float, float, float, float]:
    left, top, width, height = values[:BOX]
    if width < 0 or height < 0:
        raise ValueError(f"line {number}: width {width:g} and height {height:g} must not be negative")
    return left, top, left + width, top + height
