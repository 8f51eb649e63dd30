"""Lists of pairs as Labeled Faces in the Wild has them: ``pairs.txt`` and ``pairsDevTest.txt``, beside the images.

The format is that of http://vis-www.cs.umass.edu/lfw/README.txt: ``name n1 n2`` is a pair of one person's images,
``name1 n1 name2 n2`` one of two people, and image n of a person is ``name/name_000n.jpg``.
"""

from __future__ import annotations

import os
import re
import unicodedata
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine import Array, DataError
from tecoinfer_modelzoo.files import utf8_text
from utils.datasets.base import Rejected
from utils.datasets.folders import is_picture
from utils.datasets.image.face_pairs import FOLDS, NO_FOLD, FacePairs, Listed
from utils.datasets.sharding import rank_and_size

LISTS = ("pairs.txt", "pairsDevTest.txt")
"""A folder that holds a file of one of these names is read through it, the first one found."""

PICTURES = ("lfw", "lfw_funneled", "lfw-funneled", "lfw-deepfunneled", "lfw_deepfunneled", "images", "pictures")
"""Folders beside a list that may hold its people's folders."""

FORMS = "'name n1 n2' (one person) or 'name1 n1 name2 n2' (two people)"

_NUMBER = r"(?:.*_)?0*([0-9]{1,9})"


class Line(NamedTuple):
    """A pair as the list has it: number of the line, its place among the pairs, and two people with a number each."""

    number: int
    place: int
    people: tuple[str, str]
    pictures: tuple[int, int]


@dataclass
class _People:
    """The images of people, found by name and number; a person's folder is listed once."""

    root: Path
    found: dict[str, dict[int, Path]] = field(default_factory=dict)
    _folders: dict[str, Path] | None = None

    def picture(self, name: str, number: int) -> Path:
        """Return an image; raise LookupError with what is missing."""
        if name not in self.found:
            self.found[name] = self._listed(name)
        path = self.found[name].get(number)
        if path is not None:
            return path
        if not self.found[name]:
            raise LookupError(f"person {name!r} has no folder of images in {self.root}")
        raise LookupError(f"person {name!r} has no image {number} ({name}_{number:04d}.jpg) in {self.root / name}")

    def _listed(self, name: str) -> dict[int, Path]:
        """Return a person's images by number: ``NAME_0001.jpg``, else ``1.jpg``, of any kind of image."""
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            return {}
        folder = self.root / name
        folder = folder if os.path.isdir(folder) else self._alike().get(_composed(name), folder)
        try:
            files = sorted(folder.iterdir())
        except OSError:
            return {}
        numbered: dict[int, Path] = {}
        for file in files:
            match = re.fullmatch(_NUMBER, file.stem)
            known = (f"{_composed(name)}_{match[1].zfill(4)}", match[1]) if match else ()
            if match and is_picture(file.name) and _composed(file.stem) in known:
                numbered.setdefault(int(match[1]), file)
        return numbered

    def _alike(self) -> dict[str, Path]:
        """Return the folders by name, accents composed: macOS unpacks names with their accents apart."""
        if self._folders is None:
            self._folders = {_composed(path.name): path for path in self.root.glob("*") if path.is_dir()}
        return self._folders


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def load_pairs(file: Path, root: Path | None = None) -> FacePairs:
    """Load the pairs that a list names, in its order.

    A first line ``10 300`` says that there are 10 folds, each of 300 pairs of one person and then 300 of two; one
    number alone says how many of each kind there are, without folds. Where the list has no folds, its people are dealt
    to :data:`.FOLDS` folds, those together whom a pair joins; where all hang together there
    are none, and a warning says so. A line that cannot be used costs its pair and is in ``rejected``; the pairs behind
    it stay in their folds.

    Args:
        file: the list, UTF-8, columns separated by tabs or blanks.
        root: the folder that has a folder for each person; ``None``: the list's, or one of :data:`PICTURES` in it.

    Raises:
        DataError: the file cannot be read, or not a single pair can be used.
    """
    lines = _read(file)
    header = _header(lines)
    rejected: list[Rejected] = []
    found = [
        line for line in _parsed(file, lines[header is not None :], 1 + (header is not None), rejected) if line.people
    ]
    root = _root(file, [line.people[0] for line in found]) if root is None else root
    pictures, people, names, pairs, kept = _resolved(file, _People(root), found, rejected)
    if not kept:
        first = f"; the first of {len(rejected)} reasons: {rejected[0].path}: {rejected[0].reason}" if rejected else ""
        raise DataError(f"{file}: no pair can be used{first}; write lines {FORMS} of the people in {root}")
    places = [line.place for line in kept]
    _tell_of_repeated(file, pairs)
    filled = sum(bool(line.strip()) for line in lines[header is not None :])
    folds = _folds(file, header, places, people[pairs], filled)
    return FacePairs(Listed(pictures, people, names, pairs, folds, rejected), root)


def _read(file: Path) -> list[str]:
    """Return the lines that are not blank at the file's end."""
    return utf8_text(file).replace("\r\n", "\n").replace("\r", "\n").rstrip().split("\n")


def _header(lines: Sequence[str]) -> tuple[int, ...] | None:
    """Return the one or two numbers of the first line; ``None`` where it is a pair already."""
    columns = lines[0].split()
    if 1 <= len(columns) <= 2 and all(re.fullmatch("[0-9]{1,9}", column) for column in columns):
        return tuple(map(int, columns))
    return None


def _parsed(file: Path, lines: Sequence[str], first: int, rejected: list[Rejected]) -> list[Line]:
    """Return the pairs; every line but a blank one has a place, also one that cannot be read."""
    found, place = [], 0
    for number, text in enumerate(lines, first):
        if not text.strip():
            continue
        columns = [column.strip() for column in text.strip().split("\t")] if "\t" in text else text.split()
        reason = _fault(columns)
        if reason and "\t" not in text and len(columns) > 3:
            reason += "; where a name has blanks, separate the columns by tabs"
        if reason:
            rejected.append(Rejected(Path(f"{file}:{number}"), reason))
        else:
            one = len(columns) == 3
            people = (columns[0], columns[0] if one else columns[2])
            found.append(Line(number, place, people, (int(columns[1]), int(columns[2 if one else 3]))))
        place += 1
    return found


def _fault(columns: Sequence[str]) -> str:
    """Return what is wrong with a line; empty where nothing is."""
    if len(columns) not in (3, 4):
        return f"{len(columns)} columns; write {FORMS}"
    numbers = (columns[1], columns[2] if len(columns) == 3 else columns[3])
    wrong = next((number for number in numbers if not re.fullmatch("[0-9]{1,9}", number)), None)
    if wrong is not None:
        return f"{wrong!r} is no number of an image; write {FORMS}"
    if len(columns) == 4 and columns[0] == columns[2]:
        return f"four columns are of two people, and both are {columns[0]!r}; write '{columns[0]} n1 n2'"
    if len(columns) == 3 and int(numbers[0]) == int(numbers[1]):
        return f"compares image {numbers[0]} of {columns[0]!r} with itself; name two images"
    return ""


def _root(file: Path, people: Sequence[str]) -> Path:
    """Return the folder that holds the first person's that is found, the list's own where there is none."""
    places = [file.parent, *(file.parent / name for name in PICTURES)]
    for person in people[:20]:
        for place in places:
            if (
                "/" not in person and "\0" not in person and os.path.isdir(place / person)
            ):  # Path's own raises for a long name
                return place
    return file.parent


def _resolved(
    file: Path, known: _People, lines: Sequence[Line], rejected: list[Rejected]
) -> tuple[list[Path], Array, list[str], Array, list[Line]]:
    """Return images, their people, the people's names, the pairs P x 2 int32, and the lines of these."""
    pictures: dict[Path, int] = {}
    owners: list[int] = []
    names: dict[str, int] = {}
    pairs: list[tuple[int, int]] = []
    kept: list[Line] = []
    for line in lines:
        try:
            paths = [known.picture(name, number) for name, number in zip(line.people, line.pictures, strict=True)]
        except LookupError as error:
            rejected.append(Rejected(Path(f"{file}:{line.number}"), str(error.args[0])))
            continue
        for path, name in zip(paths, line.people, strict=True):
            if path not in pictures:
                pictures[path] = len(pictures)
                owners.append(names.setdefault(name, len(names)))
        pairs.append((pictures[paths[0]], pictures[paths[1]]))
        kept.append(line)
    return list(pictures), np.array(owners, np.int32), list(names), np.array(pairs, np.int32).reshape(-1, 2), kept


def _folds(file: Path, header: tuple[int, ...] | None, places: Sequence[int], people: Array, lines: int) -> Array:
    """Return the fold of each pair, int16, and say what does not fit.

    Args:
        header: the numbers of the first line. places: of the pairs in the list. people: of each pair, P x 2.
        lines: behind the header, but for blank ones.
    """
    if header is not None:
        wanted = 2 * header[-1] * (header[0] if len(header) == 2 else 1)
        if wanted != lines:
            _tell(f"{file}: its first line says {wanted} pairs, and {lines} lines follow; their place tells their fold")
    if header is not None and len(header) == 2 and header[0] > 1 and header[1]:
        folds: Array = np.minimum(np.array(places) // (2 * header[1]), header[0] - 1).astype(np.int16)
        torn = _in_several(people, folds)
        if torn:
            _tell(f"{file}: {torn} people are in several folds, so accuracy is measured on people its threshold knows")
        return folds
    folds = _by_groups(people)
    if (folds == NO_FOLD).any():
        _tell(f"{file}: its pairs join all people, so no folds of disjoint people can be made of them: no accuracy")
    return folds


def _tell_of_repeated(file: Path, pairs: Array) -> None:
    """Say how many pairs were named before, in either order."""
    again = len(pairs) - len(np.unique(np.sort(pairs, axis=1), axis=0))
    if again:
        _tell(f"{file}: {again} pair{'s' if again > 1 else ''} named before; each counts as often as it is named")


def _in_several(people: Array, folds: Array) -> int:
    """Return how many people are in pairs of several folds."""
    seen = np.unique(np.stack([people.ravel(), np.repeat(folds, 2)], axis=1), axis=0)
    return int((np.unique(seen[:, 0], return_counts=True)[1] > 1).sum())


def _by_groups(people: Array) -> Array:
    """Deal groups of people whom pairs join to folds, the largest first, each to the fold with the fewest pairs."""
    leader = list(range(int(people.max()) + 1))

    def top(person: int) -> int:
        while leader[person] != person:
            leader[person] = leader[leader[person]]
            person = leader[person]
        return person

    for a, b in people.tolist():
        leader[top(a)] = top(b)
    groups, sizes = np.unique([top(a) for a in people[:, 0].tolist()], return_counts=True)
    if len(groups) < 2:
        return np.full(len(people), NO_FOLD, np.int16)
    loads, fold_of = [0] * min(FOLDS, len(groups)), {}
    for place in np.argsort(-sizes, kind="stable").tolist():
        lightest = loads.index(min(loads))
        loads[lightest] += int(sizes[place])
        fold_of[int(groups[place])] = lightest
    return np.array([fold_of[top(a)] for a in people[:, 0].tolist()], np.int16)


def _tell(text: str) -> None:
    if rank_and_size()[0] == 0:
        warnings.warn(text, stacklevel=2)
