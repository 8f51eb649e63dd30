"""Snippets of texts with mean ratings by people, in the format of VADER's ground truth files, and their split.

A line is number, mean rating and snippet, tab-separated; UTF-8, without column names.
"""

from __future__ import annotations

import html
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from engine import ConfigError, DataError
from tecoinfer_modelzoo.files import read_regular
from utils.datasets.base import root_of

RUN = 6
"""Consecutive words that two snippets must share to be in one group."""

_NAME = re.compile(r"\b[A-Z][\w']+(?: (?:of the |of |the |and |de )?[A-Z][\w']+)+")
"""Two or more capitalised words: a title or a person."""

LABELS = ("negative", "positive")
"""Labels of ratings of at most 0, and above 0."""


class Snippet(NamedTuple):
    """A snippet; ``number`` is its number in the file, ``rating`` the mean over its raters."""

    number: int
    rating: float
    text: str

    @property
    def label(self) -> str:
        """Return one of :data:`LABELS`."""
        return LABELS[self.rating > 0]


def read_snippets(path: Path) -> list[Snippet]:
    """Read a ground truth file; HTML entities (``&amp;``) are replaced by their characters.

    Raises DataError if the file cannot be read, is not UTF-8, is empty, or a line has other fields.
    """
    try:
        lines = read_regular(path).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as UTF-8 text ({error}); get the file again") from error
    found = [_snippet(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not found:
        raise DataError(f"{path}: has no snippet; expected lines of number, rating and text separated by tabs")
    return found


def _snippet(path: Path, number: int, line: str) -> Snippet:
    fields = line.split("\t")
    try:
        own, rating, text = fields
        made = Snippet(int(own), float(rating), " ".join(html.unescape(text).split()))
    except ValueError as error:
        line = repr(line[:40])
        raise DataError(f"{path}:{number}: {line} must be a number, a rating and a text between tabs") from error
    if not made.text or not abs(made.rating) < float("inf"):
        raise DataError(f"{path}:{number}: the text is empty or the rating not a number; correct the line")
    return made


def grouped(texts: Sequence[str]) -> list[int]:
    """Return the group of each text: the index of its first text.

    Two texts are in one group if they share :data:`RUN` consecutive words, are equal except for case and punctuation,
    or contain the same title or person of at least two capitalised words; groups are merged transitively. This keeps
    texts about one film together where the texts show it.
    """
    together: defaultdict[object, list[int]] = defaultdict(list)
    for place, text in enumerate(texts):
        for mark in {*_runs(text), *_names(text)}:
            together[mark].append(place)
    first = list(range(len(texts)))
    for places in together.values():
        for place in places[1:]:
            one, other = sorted((root_of(first, places[0]), root_of(first, place)))
            first[other] = one
    return [root_of(first, place) for place in range(len(texts))]


def _runs(text: str) -> Iterable[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return (tuple(words[start : start + RUN]) for start in range(max(1, len(words) - RUN + 1)))


def _names(text: str) -> Iterable[str]:
    return (name.group().lower().removesuffix("'s") for name in _NAME.finditer(text))


def divided(groups: Sequence[int], sizes: Mapping[str, int], rest: str, seed: int) -> list[str]:
    """Return the part of each text: whole groups are drawn until each part has its size; the others are ``rest``.

    A group that is too large for the remaining size of a part goes to the next one. Raises ConfigError if the parts
    cannot be filled.
    """
    members: defaultdict[int, list[int]] = defaultdict(list)
    for place, group in enumerate(groups):
        members[group].append(place)
    drawn = sorted(members)
    random.Random(seed).shuffle(drawn)  # noqa: S311 - a reproducible draw
    found, left = [rest] * len(groups), dict(sizes)
    for group in drawn:
        part = next((part for part, size in left.items() if size >= len(members[group])), None)
        if part is not None:
            left[part] -= len(members[group])
            for place in members[group]:
                found[place] = part
    if any(left.values()):
        raise ConfigError(f"{len(groups)} texts are too few for parts of {', '.join(map(str, sizes.values()))}")
    return found
