"""Sentences about fictional people with their entities, composed from word lists, for small taggers.

Entities are people (``PER``), cities (``LOC``), professions (``JOB``) and dates (``DATE``). One name in four is held
out: it occurs in no training sentence. Some sentences fit several types (``Marsh visited Kyoto``, ``Marsh visited
Anna``), and some last names are common words (``a young baker``, ``Baker``), so that neither the words nor the pattern
alone tell the type.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from utils.datasets.synthetic.fact_stories import (
    CITIES,
    COLOURS,
    FILLERS,
    FIRST,
    INSTRUMENTS,
    JOBS,
    LAST,
    MONTHS,
    PETS,
    SPORTS,
)

TYPES = ("DATE", "JOB", "LOC", "PER")
"""Types of entities."""

LABELS = ("O", *(f"{prefix}-{one}" for one in TYPES for prefix in "BI"))
"""Tags, in the scheme IOB2."""

PATTERNS = (
    "{PER} was born in {LOC} on {DATE} .",
    "{PER} moved from {LOC} to {LOC} .",
    "{PER} and {PER} live in {LOC} .",
    "{PER} works as a {JOB} in {LOC} .",
    "The {JOB} {PER} visited {LOC} .",
    "{PER} visited {PER} .",
    "{PER} visited {LOC} .",
    "{PER} misses {LOC} .",
    "{PER} misses {PER} .",
    "In {LOC} , {PER} met a {JOB} .",
    "A {JOB} from {LOC} wrote to {PER} .",
    "{PER} , a {JOB} , arrived on {DATE} .",
    "On {DATE} {PER} left {LOC} .",
    "Nobody in {LOC} knew {PER} .",
    "{PER} likes {LOC} more than {LOC} .",
    "{PER} likes {PER} more than {PER} .",
    "{PER} plays the {instrument} and is fond of {sport} .",
    "{PER} owns a {colour} {pet} .",
    "The {pet} of {PER} ran away in {MONTH} .",
    "Did {PER} see the {JOB} in {LOC} ?",
    "A young {JOB} lives near the park in {LOC} .",
    "The field behind the hall of {LOC} was brown .",
    "{PER} sold the house to a {JOB} on {DATE} .",
    "{LOC} and {LOC} are far away .",
)
"""Sentences of training and test; ``{PER}``, ``{LOC}``, ``{JOB}`` and ``{DATE}`` are entities, others are not."""

HELD_OUT_PATTERNS = (
    "{PER} wrote a letter to {PER} from {LOC} .",
    "The train from {LOC} was late , and {PER} was angry .",
    "My neighbour , the {JOB} {PER} , moved to {LOC} on {DATE} .",
    "A {JOB} in {LOC} met {PER} .",
)
"""Sentences that occur in the test set only."""

_SLOT = re.compile(r"\{(\w+)\}")
_PLAIN = {"instrument": INSTRUMENTS, "sport": SPORTS, "colour": COLOURS, "pet": PETS, "MONTH": MONTHS}
_LISTS = {"FIRST": FIRST, "LAST": LAST, "LOC": CITIES, "JOB": JOBS}
_WORD = re.compile(r"\w+|[^\w\s]")


class Tagged(NamedTuple):
    """A sentence's words, and a tag of :data:`LABELS` for each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


def names(kind: str, held_out: bool) -> tuple[str, ...]:
    """Return the training names of a list (``FIRST``, ``LAST``, ``LOC``, ``JOB``), or the held-out ones: every fourth.

    A word that is in two lists, such as Milan, is never held out.
    """
    elsewhere = {word for other, words in _LISTS.items() if other != kind for word in words}
    hidden = {word for place, word in enumerate(_LISTS[kind]) if place % 4 == 1 and word not in elsewhere}
    return tuple(word for word in _LISTS[kind] if (word in hidden) == held_out)


def tagged_sentence(chance: np.random.Generator, unseen: float = 0.0) -> Tagged:
    """Return a sentence; ``unseen``: the share of held-out patterns and of held-out names, 0 for training."""
    if chance.random() < 0.08:
        words = tuple(_WORD.findall(_one(FILLERS, chance)))
        return Tagged(words, ("O",) * len(words))
    patterns = HELD_OUT_PATTERNS if chance.random() < unseen / 2 else PATTERNS
    found, tags = list[str](), list[str]()
    for word in _one(patterns, chance).split():
        slot = _SLOT.fullmatch(word)
        own, kind = [word], ""
        if slot is not None and slot[1] in TYPES:
            own, kind = _entity(slot[1], chance, unseen), slot[1]
        elif slot is not None:
            own = [_one(_PLAIN[slot[1]], chance)]
        tags += [f"B-{kind}", *[f"I-{kind}"] * (len(own) - 1)] if kind else ["O"]
        if kind == "JOB" and own[0][0] in "aeio" and found[-1] in ("a", "A"):
            found[-1] += "n"
        found += own
    return Tagged(tuple(found), tuple(tags))


def _entity(kind: str, chance: np.random.Generator, unseen: float) -> list[str]:
    """Return the words of an entity: a name is a first name, a last name, or both."""

    def name(listed: str) -> str:
        return _one(names(listed, bool(chance.random() < unseen)), chance)

    if kind == "DATE":
        day, year = str(int(chance.integers(1, 29))), str(int(chance.integers(1900, 2020)))
        return [day, _one(MONTHS, chance), *([year] if chance.random() < 0.6 else [])]
    if kind != "PER":
        return [name(kind)]
    form = chance.random()
    return [name("FIRST"), name("LAST")] if form < 0.6 else [name("FIRST")] if form < 0.8 else [name("LAST")]


def _one(words: Sequence[str], chance: np.random.Generator) -> str:
    return words[int(chance.integers(0, len(words)))]


def vocabulary() -> list[str]:
    """Return the words of training sentences in lower case, sorted; held-out names are not among them."""
    words = {word for kind in _LISTS for word in names(kind, False)} | {
        word for some in _PLAIN.values() for word in some
    }
    for pattern in (*PATTERNS, *FILLERS):
        words |= set(_WORD.findall(_SLOT.sub(" ", pattern)))
    return sorted({word.lower() for word in words} | {"an"})
