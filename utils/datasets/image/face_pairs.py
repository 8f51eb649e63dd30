"""Pairs of face images with the persons on them, for verification, and the folds for its accuracy."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo.files import size_and_time
from utils.datasets.base import Batch, Dataset, Rejected
from utils.datasets.folders import NOT_AN_IMAGE, is_image

FOLDS = 10
"""Default number of folds of disjoint persons for accuracy, as in LFW."""

NO_FOLD = -1
"""Fold of a pair that is not used for accuracy."""

MOST_PAIRS = 5_000_000
"""Maximum number of pairs in memory."""

MAX_PAIRS_OF_ONE = 100
"""Maximum pairs of one person with ``balanced``, so that persons with many images do not dominate."""

RULES = ("balanced", "all")
"""Rules for pairs from a folder of persons. ``balanced``: in each fold as many pairs of two persons as of one. ``all``:
every pair; accuracy uses the same pairs as with ``balanced``."""


class Pair(NamedTuple):
    """Two images to compare."""

    first: Path
    second: Path


class Truth(NamedTuple):
    """Ground truth of a pair.

    Attributes:
        same: whether both images show the same person.
        people: the persons on the first and on the second image.
        fold: the part of the data set, from 0 on; :data:`NO_FOLD`: none.
    """

    same: bool
    people: tuple[str, str]
    fold: int


class Listed(NamedTuple):
    """Images and pairs of them.

    Attributes:
        images: paths of N images.
        people: N int32, index of each image's person in ``names``; ``None`` if unknown.
        names: of the persons.
        pairs: P x 2 int32, indices of images. folds: P int16.
        rejected: entries that cannot be used.
    """

    images: list[Path]
    people: Array | None
    names: list[str]
    pairs: Array
    folds: Array
    rejected: list[Rejected]


class FacePairs(Dataset):
    """Pairs of images; ``root`` is the folder that names of pairs are relative to.

    The unit that the accuracy gate resamples is the person on the first image. The second person is not resampled, so
    intervals are slightly too narrow if most pairs show two persons.
    """

    def __init__(self, listed: Listed, root: Path) -> None:
        self.listed, self.root = listed, root
        self.rejected = listed.rejected
        self.has_units = listed.people is not None

    def __len__(self) -> int:
        return len(self.listed.pairs)

    def batch(self, places: Sequence[int]) -> Batch:
        """Return pairs, each with a :class:`Truth` if it is known."""
        images, rows = self.listed.images, self.listed.pairs[np.asarray(places, np.intp)].tolist()
        samples = [Pair(images[a], images[b]) for a, b in rows]
        names = [f"{self._name(one.first)} | {self._name(one.second)}" for one in samples]
        if self.listed.people is None:
            return Batch(samples, None, names)
        who, people = self.listed.people.tolist(), self.listed.names
        folds = self.listed.folds[np.asarray(places, np.intp)].tolist()
        truths = [
            Truth(who[a] == who[b], (people[who[a]], people[who[b]]), fold)
            for (a, b), fold in zip(rows, folds, strict=True)
        ]
        return Batch(samples, truths, names, [truth.people[0] for truth in truths])

    def interleaved(self) -> FacePairs:
        """Return the pairs with folds and kinds alternating, for runs that are stopped early."""
        folds, people = self.listed.folds, self.listed.people
        who = None if people is None else people[self.listed.pairs]
        other = np.zeros(len(folds), np.int64) if who is None else (who[:, 0] != who[:, 1]).astype(np.int64)
        group = 2 * folds.astype(np.int64) + other
        rank = np.empty(len(folds), np.int64)
        by_group = np.argsort(group, kind="stable")
        _, starts, counts = np.unique(group[by_group], return_index=True, return_counts=True)
        rank[by_group] = np.arange(len(folds)) - np.repeat(starts, counts)
        order = np.lexsort((folds, (folds + other) % 2, rank))  # neighbours have another fold and the other kind
        return FacePairs(self.listed._replace(pairs=self.listed.pairs[order], folds=folds[order]), self.root)

    def _name(self, path: Path) -> str:
        return str(path).removeprefix(f"{self.root}{os.sep}")

    def fingerprint(self) -> str:
        """Return a hash of the images' paths, sizes and times (not content), the persons, pairs and folds."""
        digest = hashlib.sha256()
        for path in self.listed.images:
            entry = (os.path.relpath(path, self.root), *size_and_time(path))
            digest.update(repr(entry).encode("utf-8", "surrogatepass"))
        people = self.listed.people
        digest.update(repr((self.listed.names, None if people is None else people.tolist())).encode("utf-8", "replace"))
        digest.update(self.listed.pairs.astype("<i4").tobytes() + self.listed.folds.astype("<i2").tobytes())
        return digest.hexdigest()

    def source_files(self) -> set[str]:
        """Return the folder of the images."""
        return {str(self.root)}


def folder_of_people(root: Path, rule: str, seed: int, folds: int = FOLDS) -> FacePairs:
    """Make pairs from a folder with a subfolder of images per person (ORL's ``s1/1.pgm``, LFW's).

    The seed assigns persons to folds, so that each fold has its own. With ``balanced`` the pairs of a fold are all
    pairs of the same person (at most :data:`MAX_PAIRS_OF_ONE` each, drawn by the seed), and as many of two persons;
    ``all`` adds every other pair, without a fold. There are at least 2 folds, fewer than given if a fold would have
    fewer than two persons. Raises DataError if there are fewer than two persons with images, and ConfigError if there
    would be more than :data:`MOST_PAIRS` pairs.
    """
    images, people, names, rejected = _of_people(root)
    if len(names) < 2:
        who = "one person" if names else "no person"
        raise DataError(f"{root}: has images of {who}; pass a folder with subfolders for several persons")
    chance = np.random.default_rng(seed)
    dealt = np.array_split(chance.permutation(len(names)), max(1, min(folds, len(names) // 2)))
    chosen, parts = balanced(people, dealt, chance)
    pairs, numbers = chosen, parts
    if rule == "all":
        count = len(images) * (len(images) - 1) // 2
        if count > MOST_PAIRS:
            raise ConfigError(f"--pairs all of {len(images)} images are {count} pairs; use --pairs balanced")
        pairs = np.stack(np.triu_indices(len(images), 1), axis=1).astype(np.int32)
        numbers = np.full(count, NO_FOLD, np.int16)
        numbers[_place_in_triangle(np.sort(chosen, axis=1), len(images))] = parts
    return FacePairs(Listed(images, people, names, pairs, numbers, rejected), root)


def _of_people(root: Path) -> tuple[list[Path], Array, list[str], list[Rejected]]:
    """Return the images in the subfolders by person, sorted by name, and the rejected entries."""
    images: list[Path] = []
    people: list[int] = []
    names: list[str] = []
    rejected: list[Rejected] = []
    for folder in _visible(root):
        if not folder.is_dir():
            if is_image(folder.name):
                rejected.append(Rejected(folder, "it lies outside the persons' folders"))
            continue
        found = _visible(folder)
        own = [file for file in found if is_image(file.name) and file.is_file()]
        rejected += [Rejected(file, NOT_AN_IMAGE) for file in found if not is_image(file.name)]
        if not own:
            rejected.append(Rejected(folder, "is a person's folder without an image"))
            continue
        images += own
        people += [len(names)] * len(own)
        names.append(folder.name)
    return images, np.array(people, np.int32), names, rejected


def _visible(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder}: cannot be read ({error.strerror or error}); check the path") from error


def balanced(people: Array, dealt: Sequence[Array], chance: np.random.Generator) -> tuple[Array, Array]:
    """Return the pairs of the rule ``balanced``, P x 2 int32, and their folds (:data:`NO_FOLD` if there is only one).

    ``people`` has the person of each sample, N int32, ``dealt`` the persons of each fold.
    """
    pairs, folds = [np.empty((0, 2), np.int32)], [np.empty(0, np.int16)]
    for number, own in enumerate(dealt):
        same = np.concatenate([_of_one(np.flatnonzero(people == person), chance) for person in sorted(own.tolist())])
        other = _of_two(people, np.flatnonzero(np.isin(people, own)), len(same), chance)
        pairs += [same, other]
        folds.append(np.full(len(same) + len(other), number if len(dealt) > 1 else NO_FOLD, np.int16))
    return np.concatenate(pairs).astype(np.int32), np.concatenate(folds)


def _of_one(places: Array, chance: np.random.Generator) -> Array:
    """Return pairs of one person's images: all, or :data:`MAX_PAIRS_OF_ONE` of them."""
    pairs = np.stack(np.triu_indices(len(places), 1), axis=1)
    if len(pairs) > MAX_PAIRS_OF_ONE:
        pairs = pairs[np.sort(chance.choice(len(pairs), MAX_PAIRS_OF_ONE, replace=False))]
    return places[pairs].reshape(-1, 2)


def _of_two(people: Array, places: Array, count: int, chance: np.random.Generator) -> Array:
    """Return ``count`` distinct pairs of two persons' images, or all if there are fewer.

    The order in a pair is random, so that every person is about as often on the first image as on the second.
    """
    _, sizes = np.unique(people[places], return_counts=True)
    there = (len(places) ** 2 - int((sizes.astype(np.int64) ** 2).sum())) // 2
    if there <= 2 * count:
        first, second = np.triu_indices(len(places), 1)
        pairs = np.stack([places[first], places[second]], axis=1)
        pairs = pairs[people[pairs[:, 0]] != people[pairs[:, 1]]]
        chosen: Array = pairs[np.sort(chance.choice(len(pairs), min(count, len(pairs)), replace=False))]
    else:
        chosen = np.array(_drawn(people, places, count, chance), np.int64).reshape(-1, 2)
    turned = chance.random(len(chosen)) < 0.5
    chosen[turned] = chosen[turned, ::-1]
    return chosen


def _drawn(people: Array, places: Array, count: int, chance: np.random.Generator) -> list[tuple[int, int]]:
    """Draw distinct pairs of two persons' images; at least twice as many must exist."""
    found: dict[tuple[int, int], None] = {}
    while len(found) < count:
        a, b = sorted(places[chance.integers(0, len(places), 2)].tolist())
        if people[a] != people[b]:
            found[a, b] = None
    return list(found)


def _place_in_triangle(pairs: Array, count: int) -> Array:
    """Return the indices of pairs a < b among all pairs of ``count`` items, in the order of ``triu_indices``."""
    a, b = pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)
    found: Array = a * (2 * count - a - 1) // 2 + b - a - 1
    return found


def all_pairs(images: Sequence[Path], root: Path, rejected: Sequence[Rejected] = ()) -> FacePairs:
    """Pair every image with every other one, without known persons.

    Raises DataError for fewer than two images, and ConfigError for more than :data:`MOST_PAIRS` pairs.
    """
    count = len(images) * (len(images) - 1) // 2
    if not count:
        raise DataError(f"{root}: {len(images)} images are too few for a pair; pass at least two")
    if count > MOST_PAIRS:
        raise ConfigError(f"{root}: {len(images)} images make {count} pairs; pass fewer, or a list of pairs")
    pairs = np.stack(np.triu_indices(len(images), 1), axis=1).astype(np.int32)
    folds = np.full(count, NO_FOLD, np.int16)
    return FacePairs(Listed(list(images), None, [], pairs, folds, list(rejected)), root)


def has_people(root: Path) -> bool:
    """Return whether a folder has subfolders with images directly in them."""
    return any(is_image(file.name) for folder in _visible(root) if folder.is_dir() for file in _visible(folder))
