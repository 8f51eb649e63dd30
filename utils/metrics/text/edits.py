"""Metrics of recognised text: lines without errors, and edit distances in characters and words.

An edit distance is the minimum number of characters (or words) to insert, delete or replace (Levenshtein, 1966). Rates
are sums over all lines: edits over the length of the target texts, so long lines weigh more than short ones, and a rate
may exceed 1. Characters are Unicode code points after normalisation (UAX #15).
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Literal, cast

import numpy as np

from engine import Array, ConfigError, DataError, InputError
from utils.metrics.base import RecordMetric, Records, weighted_share

FORMS = ("NFC", "NFKC", "none")
"""``NFC``: one code point for each character (é). ``NFKC``: also full-width letters as usual ones, and ligatures as
their letters. ``none``: unchanged."""

RECORD = np.dtype(
    [
        ("edits", np.int32),  # in characters
        ("length", np.int32),
        ("word_edits", np.int32),
        ("words", np.int32),
        ("right", np.bool_),
        ("right_folded", np.bool_),  # ignoring case
        ("right_joined", np.bool_),  # ignoring white space
    ]
)
"""A line. An unread line (NaN in the outputs) counts as empty, and is never right."""


class TextMetric(RecordMetric):
    """Base of the metrics of texts; a line is a record.

    Attributes:
        forms: names of normalisations. record: dtype of :meth:`compared`.

    Args:
        form: Unicode normalisation of both texts, one of ``forms``, so that different encodings of the same text are
            equal.
    """

    forms: ClassVar[tuple[str, ...]] = FORMS
    record: ClassVar[np.dtype[Any]] = RECORD
    has_margins: ClassVar[bool] = True

    def __init__(self, form: str | None = None) -> None:
        self.form = self.forms[0] if form is None else form
        if self.form not in self.forms:
            raise ConfigError(f"{self.name}: normalisation {form!r} must be one of {', '.join(self.forms)}")

    def records(
        self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None
    ) -> Records:
        """Compare one batch.

        Args:
            predictions: per line its text, or an object with a ``text`` and a ``score`` (NaN: not read); the ``margin``
                of such an object is kept.
            targets: per line the correct text.

        Raises:
            InputError: a prediction is not a text.
            DataError: a target is not a text.
        """
        found = np.zeros(len(targets), self.record)
        for place, (prediction, target) in enumerate(zip(predictions, targets, strict=True)):
            if not isinstance(target, str):
                raise DataError(f"{self.name}: the target {target!r} is not a text; correct the data set")
            found[place] = self.compared(_text(prediction, self.name), target)
        return Records(found, margins=np.array([getattr(one, "margin", math.nan) for one in predictions], np.float64))

    def compared(self, read: str | None, target: str) -> tuple[Any, ...]:
        """Return the record of a text; ``None``: not read."""
        known = read is not None
        one, other = self.normalised(read or ""), self.normalised(target)
        words, right_words = one.split(), other.split()
        return (
            edit_distance(one, other),
            len(other),
            edit_distance(words, right_words),
            len(right_words),
            known and one == other,
            known and one.casefold() == other.casefold(),
            known and "".join(words) == "".join(right_words),
        )

    def normalised(self, text: str) -> str:
        """Return the normalised text."""
        if self.form == "none" or text.isascii():
            return text
        return unicodedata.normalize(cast("Literal['NFC', 'NFKC']", self.form), text)

    def secondary(self) -> Mapping[str, float]:
        """Return all figures except the primary one.

        ``sequence_accuracy``: share of lines without errors; ``accuracy_folded``: the same ignoring case (Unicode's
        case folding); ``accuracy_without_spaces``: ignoring white space. ``cer``, ``wer``: edits in characters and
        words over the characters and words of the target texts. ``characters``: their number.
        """
        kept = self._all()
        ones = np.ones(len(kept))
        figures = {
            "sequence_accuracy": weighted_share(kept["right"], ones),
            "cer": error_rate(kept["edits"], kept["length"], ones),
            "wer": error_rate(kept["word_edits"], kept["words"], ones),
            "accuracy_folded": weighted_share(kept["right_folded"], ones),
            "accuracy_without_spaces": weighted_share(kept["right_joined"], ones),
            "characters": float(kept["length"].sum()),
        }
        return {name: value for name, value in figures.items() if name != self.name}


class SequenceAccuracy(TextMetric):
    """Share of lines, 0 to 1, that are read without errors. An empty text is right for an empty target."""

    name = "sequence_accuracy"
    bounds = (0.0, 1.0)

    def value(self, records: Array, weights: Array) -> float:
        """Return the weighted share of right lines; NaN if all weights are 0."""
        return weighted_share(records["right"], weights)


class CharacterErrorRate(TextMetric):
    """Edits in characters over the characters of the target texts, over all lines; 0 is best.

    Text read for an empty target counts as edits. If all targets are empty, the rate is the number of edits, as if
    there were one character (jiwer's rate is finite there, too).
    """

    name, higher_is_better = "cer", False

    def value(self, records: Array, weights: Array) -> float:
        """Return the weighted rate; NaN if all weights are 0."""
        return error_rate(records["edits"], records["length"], weights)

    def effect(self, target: Array, baseline: Array) -> float:
        """Return :func:`effect_of_edits`."""
        return effect_of_edits(target["edits"], baseline["edits"])


METRICS: dict[str, type[TextMetric]] = {one.name: one for one in (SequenceAccuracy, CharacterErrorRate)}
"""Metrics by the names that ``--metric`` takes."""


def edit_distance(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Return the minimum number of items to insert, delete or replace to change one sequence into the other.

    A column of the distance table is stored as bits of integers (Myers, 1999; Hyyrö, 2003): one pass over ``other`` for
    any length of ``one``.
    """
    if not one or not other:
        return len(one) or len(other)
    places: dict[Hashable, int] = {}
    for place, item in enumerate(one):
        places[item] = places.get(item, 0) | 1 << place
    every, last = (1 << len(one)) - 1, 1 << (len(one) - 1)
    more, less, distance = every, 0, len(one)  # where the column increases and decreases by one; its last entry
    for item in other:
        same = places.get(item, 0)
        diagonal = (((same & more) + more) ^ more) | same | less
        rises = less | ~(diagonal | more)
        falls = more & diagonal
        distance += bool(rises & last) - bool(falls & last)
        rises, falls = rises << 1 | 1, falls << 1
        upright = same | less
        more, less = (falls | ~(upright | rises)) & every, rises & upright & every
    return distance


def _text(prediction: Any, name: str) -> str | None:
    """Return the text of a prediction; ``None`` if the model's outputs were NaN."""
    text = getattr(prediction, "text", prediction)
    if not isinstance(text, str):
        raise InputError(f"{name}: a prediction is a {type(prediction).__name__}; pass texts, as decode returns them")
    score = getattr(prediction, "score", 0.0)
    return None if score != score else text


def effect_of_edits(target: Array, baseline: Array) -> float:
    """Return the relative change of an error rate over the share of changed texts; NaN without an edit.

    Another class at one step of a path changes at most two characters (``aba`` with an ``a`` in the middle is ``a``),
    and at most two words (without the space between them).

    Args:
        target, baseline: edits of each text in both runs.
    """
    whole = int(baseline.sum())
    most = max(2, int(np.abs(target - baseline).max(initial=0)))
    return most * len(baseline) / whole if whole else math.nan


def error_rate(edits: Array, length: Array, weights: Array) -> float:
    """Return the weighted edits over the weighted length (at least 1 if it is 0); NaN if all weights are 0."""
    if not weights.any():
        return float("nan")
    return float(weights @ edits) / (float(weights @ length) or 1.0)
