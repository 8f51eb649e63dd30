"""Metrics of texts that were read: lines without a mistake, and edit distances in characters and words.

An edit distance is the least number of characters (or words) to insert, delete or replace (Levenshtein, 1966). Rates
are sums over all lines: edits over the length of what is right, so a long line counts for more than a short one, and a
rate may be above 1. Characters are Unicode code points after the normalisation (UAX #15) that is asked for.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Literal, cast

import numpy as np

from engine import Array, ConfigError, DataError, InputError
from utils.metrics.base import RecordMetric

FORMS = ("NFC", "NFKC", "none")
"""``NFC``: one way to write each character (é as one code point). ``NFKC``: also full-width letters as usual ones,
ligatures as their letters. ``none``: as it comes."""

RECORD = np.dtype(
    [
        ("edits", np.int32),  # in characters
        ("length", np.int32),
        ("word_edits", np.int32),
        ("words", np.int32),
        ("right", np.bool_),
        ("right_folded", np.bool_),  # without regard to case
        ("right_joined", np.bool_),  # without regard to white space
    ]
)
"""What is kept of a line. A line that was not read (NaN in the outputs) is as one read as nothing, and never right."""


class TextMetric(RecordMetric):
    """What all metrics of texts share; a line is a record.

    Attributes:
        forms: names of normalisations. record: what :meth:`compared` returns.

    Args:
        form: Unicode normalisation of both texts, one of ``forms``. The characters read and the right ones are
            brought to one form, so that the same text written in two ways is the same.
    """

    forms: ClassVar[tuple[str, ...]] = FORMS
    record: ClassVar[np.dtype[Any]] = RECORD

    def __init__(self, form: str | None = None) -> None:
        self.form = self.forms[0] if form is None else form
        if self.form not in self.forms:
            raise ConfigError(f"{self.name}: normalisation {form!r} must be one of {', '.join(self.forms)}")

    def records(self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None) -> Array:
        """Compare one batch.

        Args:
            predictions: per line its text, or an object with a ``text`` and a ``score``; a score that is NaN: not read.
            targets: per line the right text.
            contexts: not looked at.

        Raises:
            InputError: a prediction is no text. DataError: a target is no text.
        """
        found = np.zeros(len(targets), self.record)
        for place, (prediction, target) in enumerate(zip(predictions, targets, strict=True)):
            if not isinstance(target, str):
                raise DataError(f"{self.name}: the right answer {target!r} is no text; correct the data set")
            found[place] = self.compared(_text(prediction, self.name), target)
        return found

    def compared(self, read: str | None, target: str) -> tuple[Any, ...]:
        """Return the record of a text; ``None``: it was not read."""
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
        """Return a text in the form that is compared."""
        if self.form == "none" or text.isascii():
            return text
        return unicodedata.normalize(cast("Literal['NFC', 'NFKC']", self.form), text)

    def secondary(self) -> Mapping[str, float]:
        """Return every figure: all but the one of record.

        ``sequence_accuracy``: share of lines without a mistake; ``accuracy_folded``: the same without regard to case
        (Unicode's case folding); ``accuracy_without_spaces``: without regard to white space. ``cer``, ``wer``: edits in
        characters and words over the characters and words of the right texts. ``characters``: how many these are.
        """
        kept = self._all()
        ones = np.ones(len(kept))
        figures = {
            "sequence_accuracy": _share(kept["right"], ones),
            "cer": _rate(kept["edits"], kept["length"], ones),
            "wer": _rate(kept["word_edits"], kept["words"], ones),
            "accuracy_folded": _share(kept["right_folded"], ones),
            "accuracy_without_spaces": _share(kept["right_joined"], ones),
            "characters": float(kept["length"].sum()),
        }
        return {name: value for name, value in figures.items() if name != self.name}


class SequenceAccuracy(TextMetric):
    """Share of lines, 0 to 1, that are read without a mistake. An empty text is right where nothing is to be read."""

    name = "sequence_accuracy"

    def value(self, records: Array, weights: Array) -> float:
        """Return the share of right lines by weight; NaN where none has any."""
        return _share(records["right"], weights)


class CharacterErrorRate(TextMetric):
    """Edits in characters over the characters of the right texts, all lines together; 0 is best.

    What is read where nothing is to be read counts as edits. Where no line at all has a character to be read, it is 0
    if nothing was read either, and else the number of edits, as if there were one character (jiwer's rate, too, is
    finite there).
    """

    name, higher_is_better = "cer", False

    def value(self, records: Array, weights: Array) -> float:
        """Return the rate, each line counted by its weight; NaN where none has any."""
        return _rate(records["edits"], records["length"], weights)


METRICS: dict[str, type[TextMetric]] = {one.name: one for one in (SequenceAccuracy, CharacterErrorRate)}
"""By the names that ``--metric`` takes."""


def edit_distance(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Return the least number of items to insert, delete or replace that makes one sequence the other.

    A column of the table of distances is kept as bits of whole numbers (Myers, 1999; Hyyrö, 2003): one pass over
    ``other``, whatever the length of ``one``.
    """
    if not one or not other:
        return len(one) or len(other)
    places: dict[Hashable, int] = {}
    for place, item in enumerate(one):
        places[item] = places.get(item, 0) | 1 << place
    every, last = (1 << len(one)) - 1, 1 << (len(one) - 1)
    more, less, distance = every, 0, len(one)  # where the column rises and falls by one; its last entry
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
    """Return what was read; ``None`` where the model's outputs were NaN."""
    text = getattr(prediction, "text", prediction)
    if not isinstance(text, str):
        raise InputError(f"{name}: a prediction is a {type(prediction).__name__}; give texts, as decode makes them")
    score = getattr(prediction, "score", 0.0)
    return None if score != score else text


def _share(right: Array, weights: Array) -> float:
    total = float(weights.sum())
    return float(weights[right].sum()) / total if total else float("nan")


def _rate(edits: Array, length: Array, weights: Array) -> float:
    if not weights.any():
        return float("nan")
    return float(weights @ edits) / (float(weights @ length) or 1.0)
