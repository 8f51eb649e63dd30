"""Metrics of tagged words: F1 of entities as seqeval computes it, and the share of correct tags.

A tag is ``O``, or a prefix and a type (``B-PER``). An entity is correct if its type, first and last word are. Two
readings of tags:

- ``default``, that of conlleval.pl and of seqeval's default mode: any tag with a type that does not continue the entity
  before it begins one, so that IOB1, IOB2 and IOBES need not be distinguished, and a wrong tag costs little;
- ``strict``, seqeval's strict mode: only the sequences that a scheme allows are entities.

Tags of BILOU and BMES are read as IOBES (:func:`plain_tags`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo.text import shown_value
from utils.metrics.base import RecordMetric, Records

MODES = ("default", "strict")
SCHEMES = ("IOB1", "IOB2", "IOBES")
"""Schemes of strict reading."""

OUTSIDE = "O"
WORDS, RIGHT, FIRST = 0, 1, 2
"""Columns of a record: words, words with the correct tag; then per type, from :data:`FIRST` on, correct, predicted and
real entities."""

_LETTERS = {"L": "E", "U": "S", "M": "I"}
"""Prefixes of BILOU and BMES, and those of IOBES that mean the same."""


class Chunk(NamedTuple):
    """An entity: its type, its first word, and the word after its last one."""

    kind: str
    begin: int
    end: int


def plain_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Return tags with the prefixes of IOBES: ``L-`` is ``E-``, ``U-`` is ``S-``, ``M-`` is ``I-``."""
    return tuple(_plain(tag) for tag in tags)


@lru_cache(maxsize=4096)
def _plain(tag: str) -> str:
    return _LETTERS[tag[0]] + tag[1:] if tag[:1] in _LETTERS and tag[1:2] in ("", "-") else tag


@lru_cache(maxsize=4096)
def parts(tag: str) -> tuple[str, str] | None:
    """Return the prefix and the type of a tag, ``_`` for a prefix alone; ``None``: it is not a tag of entities."""
    if tag[:1] in ("O", "B", "I", "E", "S") and tag[1:2] in ("", "-") and (tag[0] != OUTSIDE or len(tag) == 1):
        return tag[0], tag[2:] or "_"
    return None


def types_of(tags: Sequence[str]) -> set[str]:
    """Return the types of entities among tags."""
    return {found[1] for found in map(parts, plain_tags(tags)) if found is not None and found[0] != OUTSIDE}


def scheme_of(sentences: Sequence[Sequence[str]]) -> str:
    """Return the scheme of tags: ``IOBES`` with a prefix ``E`` or ``S``; ``IOB1`` if an ``I`` begins an entity."""
    found = "IOB2"
    for tags in map(plain_tags, sentences):
        before = (OUTSIDE, "_")
        for one in map(parts, tags):
            if one is not None and one[0] in "ES":
                return "IOBES"
            if one is not None and one[0] == "I" and (before[0] == OUTSIDE or before[1] != one[1]):
                found = "IOB1"
            before = one or (OUTSIDE, "_")
    return found


def chunks(tags: Sequence[str], mode: str = MODES[0], scheme: str = "IOB2") -> list[Chunk]:
    """Return the entities of a sentence.

    ``mode``: one of :data:`MODES`; ``scheme``: of the tags, for ``strict``. Raises ValueError for a tag that is not one
    of entities.
    """
    found = []
    for tag in plain_tags(tags):
        split = parts(tag)
        if split is None:
            raise ValueError(f"tag {shown_value(tag)} is neither O nor B-, I-, E- or S- with a type")
        found.append(split)
    return _lenient(found) if mode == MODES[0] else _strict(found, scheme)


def _lenient(tags: Sequence[tuple[str, str]]) -> list[Chunk]:
    """Return the entities as conlleval.pl reads them."""
    found, begin = list[Chunk](), 0
    before, kind = OUTSIDE, ""
    for place, (prefix, own) in enumerate([*tags, (OUTSIDE, "_")]):
        changed = own != kind
        if before != OUTSIDE and (before in "ES" or prefix in "BSO" or changed):
            found.append(Chunk(kind, begin, place))
        if prefix != OUTSIDE and (prefix in "BS" or before in "ESO" or changed):
            begin = place
        before, kind = prefix, own
    return found


_RULES: Mapping[str, tuple[frozenset[str], frozenset[str], frozenset[str]]] = {
    name: tuple(frozenset(words.split()) for words in rules)  # type: ignore[misc]
    for name, rules in {
        "IOB1": ("OI OI! II! BI BI! IB BB", "BI II", "II! IO IO! IB IB! BO BO! BI! BB"),
        "IOB2": ("OB OB! BB BB! IB IB!", "BI II", "IO IO! II! IB IB! BO BO! BI! BB BB!"),
        "IOBES": (
            "OB OB! BB BB! IB IB! EB EB! SB SB! OS OS! BS BS! IS IS! ES ES! SS SS!",
            "BI BE II IE",
            "SO SO! SB SB! SI SI! SE SE! SS SS! EO EO! EB EB! EI EI! EE EE! ES ES!",
        ),
    }.items()
}
"""By scheme the pairs of prefixes that begin an entity, continue it, and end it; ``!``: of different types."""


def _strict(tags: Sequence[tuple[str, str]], scheme: str) -> list[Chunk]:
    """Return the entities that a scheme allows; raises ValueError for a prefix that it does not have."""
    begins, continues, ends = _RULES[scheme]
    foreign = next((one for one in tags if one[0] not in scheme.replace("1", "").replace("2", "")), None)
    if foreign is not None:
        raise ValueError(f"tag '{foreign[0]}-{foreign[1]}' is not one of {scheme}; use another scheme")
    row, place, found = [*tags, (OUTSIDE, "_")], 0, list[Chunk]()
    before = (OUTSIDE, "_")
    while place < len(row):
        begin = place
        place += 1
        if _pair(before, row[begin]) in begins:
            while place < len(row) - 1 and _pair(row[place - 1], row[place]) in continues:
                place += 1
            if place < len(row) and _pair(row[place - 1], row[place]) in ends:
                found.append(Chunk(row[begin][1], begin, place))
        before = row[place - 1]
    return found


def _pair(before: tuple[str, str], own: tuple[str, str]) -> str:
    return before[0] + own[0] + ("" if before[1] == own[1] else "!")


class TagMetric(RecordMetric):
    """Compares tags of sentences; a record counts words and, per type, entities.

    Args:
        types: of entities, of model and data; the columns of a record are in this order.
        mode: one of :data:`MODES`.
        scheme, target_scheme: of :data:`SCHEMES`, of the predicted and of the real tags; for ``strict``.
        labels: the model's tags; a target may then be their numbers.
    """

    has_margins: ClassVar[bool] = True

    def __init__(
        self,
        types: Sequence[str] = (),
        mode: str = MODES[0],
        scheme: str = "IOB2",
        target_scheme: str = "IOB2",
        labels: Sequence[str] | None = None,
    ) -> None:
        if mode not in MODES or not {scheme, target_scheme} <= set(SCHEMES):
            raise ConfigError(
                f"{self.name}: mode {mode!r}, schemes {scheme!r}, {target_scheme!r}; use {', '.join(MODES)} and "
                f"{', '.join(SCHEMES)}"
            )
        self.types, self.mode, self.scheme, self.target_scheme = tuple(types), mode, scheme, target_scheme
        self.labels = None if labels is None else tuple(labels)

    def records(
        self, predictions: Sequence[Any], targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None
    ) -> Records:
        """Compare one batch.

        Args:
            predictions: per sentence its tags, or an object with ``tags``, a ``score`` (NaN: no tags) and a ``margin``.
            targets: per sentence as many tags, or their numbers among the model's.

        Raises:
            DataError: Another number of tags, or a target that is not a tag.
        """
        found = np.zeros((len(targets), FIRST + 3 * len(self.types)), np.int32)
        places = {kind: FIRST + 3 * place for place, kind in enumerate(self.types)}
        for row, (prediction, target) in enumerate(zip(predictions, targets, strict=True)):
            tags, real = getattr(prediction, "tags", prediction), self._tags(target)
            if len(tags) != len(real):
                raise DataError(f"{self.name}: {len(real)} tags for {len(tags)} words; give each word a tag")
            score = getattr(prediction, "score", 0.0)
            lost = score != score
            found[row, WORDS] = len(real)
            found[row, RIGHT] = 0 if lost else sum(one == other for one, other in zip(tags, real, strict=True))
            known = set(self._chunks(real, self.target_scheme))
            seen = set() if lost else set(self._chunks(tags, self.scheme))
            for step, some in enumerate((known & seen, seen, known)):
                for chunk in some:
                    found[row, self._place(places, chunk.kind) + step] += 1
        return Records(found, margins=np.array([getattr(one, "margin", math.nan) for one in predictions], np.float64))

    def _tags(self, target: Sequence[Any]) -> list[str]:
        found = []
        for one in target:
            if isinstance(one, str):
                found.append(one)
            elif self.labels is None or not 0 <= one < len(self.labels):
                many = "no labels" if self.labels is None else f"{len(self.labels)} labels"
                raise DataError(
                    f"{self.name}: tag {one!r} is a number, and the model stores {many}; write tags as text"
                )
            else:
                found.append(self.labels[one])
        return found

    def _chunks(self, tags: Sequence[str], scheme: str) -> list[Chunk]:
        return chunks(tags, self.mode, scheme) if self.types else []

    def _place(self, places: Mapping[str, int], kind: str) -> int:
        if kind not in places:
            raise DataError(f"{self.name}: type {kind!r} is unknown; the types of entities are {', '.join(self.types)}")
        return places[kind]

    def secondary(self) -> Mapping[str, float]:
        """Return the figures except the primary one.

        ``precision``, ``recall``, ``f1``: of all entities. ``macro_f1``: mean of the types' F1. ``accuracy``: share of
        words with the correct tag, if both kinds of tags have one scheme. ``entities``, ``words``: their numbers.
        """
        kept = self._all()
        ones = np.ones(len(kept))
        found = {}
        if self.types:
            both, seen, known = _totals(kept, ones).sum(axis=0)
            each = [one["f1"] for one in self.per_class().values()]
            found = {"precision": _ratio(both, seen), "recall": _ratio(both, known), "f1": _f1(kept, ones)}
            found |= {"macro_f1": float(np.mean(each)) if each else math.nan, "entities": float(known)}
        if self.scheme == self.target_scheme:
            found["accuracy"] = _accuracy(kept, ones)
        found["words"] = float(kept[:, WORDS].sum())
        return {name: value for name, value in found.items() if name != self.name}

    def per_class(self) -> Mapping[str, Mapping[str, float]]:
        """Return precision, recall, F1 and number of each type that is predicted or real; undefined ones are 0."""
        if not self.types:
            return {}
        kept = self._all()
        rows = zip(self.types, _totals(kept, np.ones(len(kept))).tolist(), strict=True)
        return {
            kind: {
                "precision": _ratio(both, seen),
                "recall": _ratio(both, known),
                "f1": _ratio(2 * both, seen + known),
                "entities": known,
            }
            for kind, (both, seen, known) in rows
            if seen or known
        }


class EntityF1(TagMetric):
    """Harmonic mean of precision and recall of all entities, 0 to 1 (micro average); NaN if there is no entity."""

    name = "f1"

    def value(self, records: Array, weights: Array) -> float:
        """Return the weighted F1."""
        return _f1(records, weights)

    def unknown(self) -> str:
        """Return why the value is NaN: there are no entities."""
        return "no sentence has an entity, so F1 is undefined; check the column of the tags, or use --metric accuracy"

    def effect(self, target: Array, baseline: Array) -> float:
        """Return the relative change of F1 by one changed sentence, at most, times the sentences; NaN if F1 is 0.

        One changed tag splits an entity into at most three others: the correct ones fall by one, the predicted ones
        rise by two.
        """
        both, seen, known = _totals(baseline, np.ones(len(baseline))).sum(axis=0)
        value = _ratio(2 * both, seen + known)
        if not value:
            return math.nan
        change = (target.astype(np.int64) - baseline)[:, FIRST:].reshape(len(baseline), -1, 3).sum(axis=1)
        moved = np.abs(2 * change[:, 0] - value * change[:, 1]).max(initial=0.0)
        return float(max(2 + 2 * value, moved) * len(baseline) / (2 * both))


class TagAccuracy(TagMetric):
    """Share of words with the correct tag, 0 to 1; for tags without entities too, such as parts of speech."""

    name = "accuracy"

    def value(self, records: Array, weights: Array) -> float:
        """Return the weighted share."""
        return _accuracy(records, weights)

    def effect(self, target: Array, baseline: Array) -> float:
        """Return the relative change by one changed sentence, at most, times the sentences; NaN if no tag is right."""
        right = int(baseline[:, RIGHT].sum())
        moved = np.abs(target[:, RIGHT].astype(np.int64) - baseline[:, RIGHT]).max(initial=1)
        return float(moved * len(baseline) / right) if right else math.nan


METRICS: dict[str, type[TagMetric]] = {one.name: one for one in (EntityF1, TagAccuracy)}
"""Metrics by the names that ``--metric`` takes."""


def _totals(records: Array, weights: Array) -> Array:
    """Return correct, predicted and real entities of each type, K x 3 float64."""
    found: Array = (weights @ records[:, FIRST:].astype(np.float64)).reshape(-1, 3)
    return found


def _f1(records: Array, weights: Array) -> float:
    both, seen, known = _totals(records, weights).sum(axis=0).tolist() or (0.0, 0.0, 0.0)
    return 2 * both / (seen + known) if seen + known else math.nan


def _accuracy(records: Array, weights: Array) -> float:
    words = float(weights @ records[:, WORDS])
    return float(weights @ records[:, RIGHT]) / words if words else math.nan


def _ratio(some: float, whole: float) -> float:
    return float(some / whole) if whole else 0.0
