"""Lists of pairs in the format of Labeled Faces in the Wild: ``pairs.txt`` and ``pairsDevTest.txt``.

The format (http://vis-www.cs.umass.edu/lfw/README.txt): ``name n1 n2`` is a pair of images of one person,
``name1 n1 name2 n2`` of two persons, and image n of a person is ``name/name_000n.jpg``.
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
from utils.datasets.base import Rejected, root_of
from utils.datasets.folders import is_image
from utils.datasets.image.face_pairs import FOLDS, NO_FOLD, FacePairs, Listed
from utils.datasets.sharding import rank_and_size

LISTS = ("pairs.txt", "pairsDevTest.txt")
"""A folder that has a file with one of these names is loaded through it; the first name takes precedence."""

IMAGES = ("lfw", "lfw_funneled", "lfw-funneled", "lfw-deepfunneled", "lfw_deepfunneled", "images", "pictures")
"""Folders next to a list that may have the persons' folders."""

FORMS = "'name n1 n2' (one person) or 'name1 n1 name2 n2' (two persons)"

_NUMBER = r"(?:.*_)?0*([0-9]{1,9})"


class Line(NamedTuple):
    """A pair of the list: line number, index among the pairs, and two persons with an image number each."""

    number: int
    place: int
    people: tuple[str, str]
    images: tuple[int, int]


@dataclass
class _People:
    """The images of persons by name and number; each person's folder is listed once."""

    root: Path
    found: dict[str, dict[int, Path]] = field(default_factory=dict)
    _folders: dict[str, Path] | None = None

    def image(self, name: str, number: int) -> Path:
        """Return an image; raise LookupError if it is missing."""
        if name not in self.found:
            self.found[name] = self._listed(name)
        path = self.found[name].get(number)
        if path is not None:
            return path
        if not self.found[name]:
            raise LookupError(f"person {name!r} has no folder of images in {self.root}")
        raise LookupError(f"person {name!r} has no image {number} ({name}_{number:04d}.jpg) in {self.root / name}")

    def _listed(self, name: str) -> dict[int, Path]:
        """Return a person's images by number: ``NAME_0001.jpg``, else ``1.jpg``, with any image extension."""
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
            if match and is_image(file.name) and _composed(file.stem) in known:
                numbered.setdefault(int(match[1]), file)
        return numbered

    def _alike(self) -> dict[str, Path]:
        """Return the folders by NFC-normalised name: macOS unpacks names with decomposed accents."""
        if self._folders is None:
            self._folders = {_composed(path.name): path for path in self.root.glob("*") if path.is_dir()}
        return self._folders


def _composed(name: str) -> str:
    return unicodedata.normalize("NFC", name)


def load_pairs(file: Path, root: Path | None = None) -> FacePairs:
    """Load the pairs of a list, in its order.

    A first line ``10 300`` means 10 folds, each of 300 pairs of one person followed by 300 of two; a single number is
    the number of pairs of each kind, without folds. Without folds in the list, its persons are distributed to
    :data:`.FOLDS` folds, keeping those together that share a pair; if all persons are connected, the list has no folds,
    with a warning. Invalid lines are in ``rejected``; the folds of other lines do not change. Raises DataError if the
    file cannot be read, or no pair can be used.

    Args:
        file: the list, UTF-8, columns separated by tabs or spaces.
        root: the folder with a subfolder per person; ``None``: the list's, or one of :data:`IMAGES` in it.
    """
    lines = utf8_text(file).replace("\r\n", "\n").replace("\r", "\n").rstrip().split("\n")
    header = _header(lines)
    rejected: list[Rejected] = []
    skipped = int(header is not None)
    found = [line for line in _parsed(file, lines[skipped:], 1 + skipped, rejected) if line.people]
    root = _root(file, [line.people[0] for line in found]) if root is None else root
    images, people, names, pairs, kept = _resolved(file, _People(root), found, rejected)
    if not kept:
        first = f"; the first of {len(rejected)} reasons: {rejected[0].path}: {rejected[0].reason}" if rejected else ""
        raise DataError(f"{file}: no pair can be used{first}; write lines {FORMS} with persons in {root}")
    places = [line.place for line in kept]
    again = len(pairs) - len(np.unique(np.sort(pairs, axis=1), axis=0))  # in either order
    if again:
        _warn(f"{file}: {again} pair{'s' if again > 1 else ''} listed repeatedly; every repetition counts")
    filled = sum(bool(line.strip()) for line in lines[skipped:])
    folds = _folds(file, header, places, people[pairs], filled)
    return FacePairs(Listed(images, people, names, pairs, folds, rejected), root)


def _header(lines: Sequence[str]) -> tuple[int, ...] | None:
    """Return the one or two numbers of the first line; ``None`` if it is already a pair."""
    columns = lines[0].split()
    if 1 <= len(columns) <= 2 and all(re.fullmatch("[0-9]{1,9}", column) for column in columns):
        return tuple(map(int, columns))
    return None


def _parsed(file: Path, lines: Sequence[str], first: int, rejected: list[Rejected]) -> list[Line]:
    """Return the valid pairs; invalid lines count in the index too, blank lines do not."""
    found, place = [], 0
    for number, text in enumerate(lines, first):
        if not text.strip():
            continue
        columns = [column.strip() for column in text.strip().split("\t")] if "\t" in text else text.split()
        reason = _fault(columns)
        if reason and "\t" not in text and len(columns) > 3:
            reason += "; if a name has spaces, separate the columns by tabs"
        if reason:
            rejected.append(Rejected(Path(f"{file}:{number}"), reason))
        else:
            one = len(columns) == 3
            people = (columns[0], columns[0] if one else columns[2])
            found.append(Line(number, place, people, (int(columns[1]), int(columns[2 if one else 3]))))
        place += 1
    return found


def _fault(columns: Sequence[str]) -> str:
    """Return the problem of a line; empty if it is valid."""
    if len(columns) not in (3, 4):
        return f"{len(columns)} columns; write {FORMS}"
    numbers = (columns[1], columns[2] if len(columns) == 3 else columns[3])
    wrong = next((number for number in numbers if not re.fullmatch("[0-9]{1,9}", number)), None)
    if wrong is not None:
        return f"{wrong!r} is not an image number; write {FORMS}"
    if len(columns) == 4 and columns[0] == columns[2]:
        return f"four columns need two persons, but both are {columns[0]!r}; write '{columns[0]} n1 n2'"
    if len(columns) == 3 and int(numbers[0]) == int(numbers[1]):
        return f"compares image {numbers[0]} of {columns[0]!r} with itself; list two images"
    return ""


def _root(file: Path, people: Sequence[str]) -> Path:
    """Return the folder that has the first person found, the list's own if none is found."""
    places = [file.parent, *(file.parent / name for name in IMAGES)]
    for person in people[:20]:
        for place in places:
            # os.path.isdir, because Path.is_dir raises for a name that is too long
            if "/" not in person and "\0" not in person and os.path.isdir(place / person):
                return place
    return file.parent


def _resolved(
    file: Path, known: _People, lines: Sequence[Line], rejected: list[Rejected]
) -> tuple[list[Path], Array, list[str], Array, list[Line]]:
    """Return images, their persons, the persons' names, the pairs P x 2 int32, and the lines of these."""
    images: dict[Path, int] = {}
    owners: list[int] = []
    names: dict[str, int] = {}
    pairs: list[tuple[int, int]] = []
    kept: list[Line] = []
    for line in lines:
        try:
            paths = [known.image(name, number) for name, number in zip(line.people, line.images, strict=True)]
        except LookupError as error:
            rejected.append(Rejected(Path(f"{file}:{line.number}"), str(error.args[0])))
            continue
        for path, name in zip(paths, line.people, strict=True):
            if path not in images:
                images[path] = len(images)
                owners.append(names.setdefault(name, len(names)))
        pairs.append((images[paths[0]], images[paths[1]]))
        kept.append(line)
    return list(images), np.array(owners, np.int32), list(names), np.array(pairs, np.int32).reshape(-1, 2), kept


def _folds(file: Path, header: tuple[int, ...] | None, places: Sequence[int], people: Array, lines: int) -> Array:
    """Return the fold of each pair, int16, and warn about inconsistencies.

    ``places`` are the indices of the pairs in the list, ``people`` (P x 2) the persons of each; ``lines`` is the number
    of lines after the header, without blank ones.
    """
    if header is not None:
        wanted = 2 * header[-1] * (header[0] if len(header) == 2 else 1)
        if wanted != lines:
            _warn(f"{file}: its first line states {wanted} pairs, but {lines} lines follow; folds go by position")
    if header is not None and len(header) == 2 and header[0] > 1 and header[1]:
        folds: Array = np.minimum(np.array(places) // (2 * header[1]), header[0] - 1).astype(np.int16)
        seen = np.unique(np.stack([people.ravel(), np.repeat(folds, 2)], axis=1), axis=0)
        torn = int((np.unique(seen[:, 0], return_counts=True)[1] > 1).sum())
        if torn:
            _warn(f"{file}: {torn} persons are in several folds, so thresholds are tuned on persons of the test fold")
        return folds
    folds = _by_groups(people)
    if (folds == NO_FOLD).any():
        _warn(f"{file}: its pairs connect all persons, so folds of disjoint persons are impossible: no accuracy")
    return folds


def _by_groups(people: Array) -> Array:
    """Assign connected groups of persons to folds, the largest first, each to the fold with the fewest pairs."""
    leader = list(range(int(people.max()) + 1))
    for a, b in people.tolist():
        leader[root_of(leader, a)] = root_of(leader, b)
    groups, sizes = np.unique([root_of(leader, a) for a in people[:, 0].tolist()], return_counts=True)
    if len(groups) < 2:
        return np.full(len(people), NO_FOLD, np.int16)
    loads, fold_of = [0] * min(FOLDS, len(groups)), {}
    for place in np.argsort(-sizes, kind="stable").tolist():
        lightest = loads.index(min(loads))
        loads[lightest] += int(sizes[place])
        fold_of[int(groups[place])] = lightest
    return np.array([fold_of[root_of(leader, a)] for a in people[:, 0].tolist()], np.int16)


def _warn(text: str) -> None:
    if rank_and_size()[0] == 0:
        warnings.warn(text, stacklevel=2)
