"""Snippets of texts with people's mean rating, as VADER's ground truth files hold them, and how they are divided.

A line is the snippet's number, its mean rating and the snippet, between tabs; UTF-8, no line of names.
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

RUN = 6
"""Words in a row that two snippets must share to be of one group."""

_NAME = re.compile(r"\b[A-Z][\w']+(?: (?:of the |of |the |and |de )?[A-Z][\w']+)+")
"""Two words with capitals, or more: a title or a person."""

LABELS = ("negative", "positive")
"""Of ratings of at most 0, and above it."""


class Snippet(NamedTuple):
    """A snippet; ``number`` is its own in the file, ``rating`` the mean of its raters."""

    number: int
    rating: float
    text: str

    @property
    def label(self) -> str:
        """Return one of :data:`LABELS`."""
        return LABELS[self.rating > 0]


def read_snippets(path: Path) -> list[Snippet]:
    """Read a ground truth file; HTML's names of characters (``&amp;``) become the characters.

    Raises:
        DataError: it cannot be read, is not UTF-8, a line has no such three fields, or no snippet is there.
    """
    try:
        lines = read_regular(path).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as UTF-8 text ({error}); get the file again") from error
    found = [_snippet(path, number, line) for number, line in enumerate(lines, start=1) if line.strip()]
    if not found:
        raise DataError(f"{path}: holds no snippet; a line is number, rating and text between tabs")
    return found


def _snippet(path: Path, number: int, line: str) -> Snippet:
    fields = line.split("\t")
    try:
        own, rating, text = fields
        made = Snippet(int(own), float(rating), " ".join(html.unescape(text).split()))
    except ValueError as error:
        raise DataError(
            f"{path}:{number}: {line[:40]!r} is not a number, a rating and a text between tabs; correct the line"
        ) from error
    if not made.text or not abs(made.rating) < float("inf"):
        raise DataError(f"{path}:{number}: the text is empty or the rating no number; correct the line")
    return made


def grouped(texts: Sequence[str]) -> list[int]:
    """Return for each text the group it is in: the place of its first text.

    Two texts are of one group if they share :data:`RUN` words in a row, are equal but for case and punctuation, or
    both name the same title or person of two words or more, as far as capitals tell; and so are the groups of both.
    Texts about one film are thus together where that can be known from them.
    """
    together: defaultdict[object, list[int]] = defaultdict(list)
    for place, text in enumerate(texts):
        for mark in {*_runs(text), *_names(text)}:
            together[mark].append(place)
    first = list(range(len(texts)))

    def root(place: int) -> int:
        while first[place] != place:
            first[place] = first[first[place]]
            place = first[place]
        return place

    for places in together.values():
        for place in places[1:]:
            one, other = sorted((root(places[0]), root(place)))
            first[other] = one
    return [root(place) for place in range(len(texts))]


def _runs(text: str) -> Iterable[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return (tuple(words[start : start + RUN]) for start in range(max(1, len(words) - RUN + 1)))


def _names(text: str) -> Iterable[str]:
    return (name.group().lower().removesuffix("'s") for name in _NAME.finditer(text))


def divided(groups: Sequence[int], sizes: Mapping[str, int], rest: str, seed: int) -> list[str]:
    """Return the part of each text: groups are drawn, whole, until a part has its size; what is left is ``rest``.

    A group that is too large for what a part still lacks goes to the next one.

    Args:
        groups: of each text. sizes: texts in each part that is drawn.
        rest: name of the part of the others. seed: of the draw.

    Raises:
        ConfigError: the parts cannot be filled.
    """
    members: defaultdict[int, list[int]] = defaultdict(list)
    for place, group in enumerate(groups):
        members[group].append(place)
    drawn = sorted(members)
    random.Random(seed).shuffle(drawn)  # noqa: S311 - a draw that is the same every time
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
