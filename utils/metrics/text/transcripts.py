"""Metrics of speech recognition: word and character error rates, with numbers of substitutions, deletions, insertions.

The fewest errors between the target and the recognised text are counted (Levenshtein, 1966). Rates are sums over all
recordings, so long ones weigh more, and may exceed 1.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from engine import Array
from utils.metrics.text.edits import TextMetric, edit_distance, effect_of_edits

FORMS = ("plain", "NFC", "NFKC", "none")
"""Normalisations before comparison. ``plain``: NFKC, case-folded, with all punctuation but apostrophes in words
replaced by spaces. ``NFC``, ``NFKC``: Unicode's. ``none``: unchanged. Spaces separate words in all of them."""

RECORD = np.dtype(
    [
        *(("substitutions", np.int32), ("deletions", np.int32), ("insertions", np.int32), ("words", np.int32)),
        ("edits", np.int32),  # in characters
        ("length", np.int32),
        ("right", np.bool_),
    ]
)
"""A recording. With NaN in the outputs it counts as an empty transcript, never right."""

_OTHER = re.compile(r"(?<!\w)['’]|['’](?!\w)|[^\w\s'’]|_")


class Errors(NamedTuple):
    """Numbers of substituted, deleted and inserted words."""

    substitutions: int
    deletions: int
    insertions: int


class TranscriptMetric(TextMetric):
    """Base of both metrics; a recording is a record, and ``form`` is one of :data:`FORMS`."""

    higher_is_better = False
    forms, record = FORMS, RECORD

    def compared(self, read: str | None, target: str) -> tuple[Any, ...]:
        """Return the record of a recording; ``None``: not recognised."""
        known, heard, right = read is not None, normalised(read or "", self.form), normalised(target, self.form)
        words = right.split()
        counts = errors(words, heard.split())
        return *counts, len(words), edit_distance(heard, right), len(right), known and heard == right

    def unknown(self) -> str:
        """Return why the value is NaN: the target texts are empty."""
        if not self._all()["length"].any():
            return "the target texts of all recordings are empty, so the rate is undefined; add texts"
        return ""

    def secondary(self) -> Mapping[str, float]:
        """Return all figures except the primary one.

        ``wer``, ``cer``: errors in words and characters over the words and characters of the target texts.
        ``substitutions``, ``deletions``, ``insertions``: of words. ``words``: of the target texts.
        ``sentence_accuracy``: share of recordings without an error.
        """
        kept = self._all()
        ones = np.ones(len(kept))
        figures = {"wer": word_error_rate(kept, ones), "cer": _rate(kept["edits"], kept["length"], ones)}
        counts = {name: float(kept[name].sum()) for name in (*Errors._fields, "words")}
        figures |= counts | {"sentence_accuracy": float(kept["right"].mean())}
        return {name: value for name, value in figures.items() if name != self.name}


class WordErrorRate(TranscriptMetric):
    """Substituted, deleted and inserted words over the words of the target texts, over all recordings; 0 is best.

    NaN if no target has a word. For a recording with an empty target all recognised words are insertions.
    """

    name = "wer"

    def value(self, records: Array, weights: Array) -> float:
        """Return the weighted rate; NaN if the target texts are empty."""
        return word_error_rate(records, weights)

    def effect(self, target: Array, baseline: Array) -> float:
        """Return :func:`~utils.metrics.text.edits.effect_of_edits` of words."""
        return effect_of_edits(_wrong(target), _wrong(baseline))


class SpokenCharacterErrorRate(TranscriptMetric):
    """The same in characters, including spaces: for languages without spaces, and for single words."""

    name = "cer"

    def value(self, records: Array, weights: Array) -> float:
        """Return the weighted rate; NaN if the target texts are empty."""
        return _rate(records["edits"], records["length"], weights)

    def effect(self, target: Array, baseline: Array) -> float:
        """Return :func:`~utils.metrics.text.edits.effect_of_edits`."""
        return effect_of_edits(target["edits"], baseline["edits"])


METRICS: dict[str, type[TranscriptMetric]] = {one.name: one for one in (WordErrorRate, SpokenCharacterErrorRate)}
"""Metrics by the names that ``--metric`` takes."""


def normalised(text: str, form: str = FORMS[0]) -> str:
    """Return a text in one of :data:`FORMS`, with single spaces between its words."""
    if form != "none":
        text = unicodedata.normalize("NFC" if form == "NFC" else "NFKC", text)
    if form == "plain":
        text = _OTHER.sub(" ", text.casefold()).replace("’", "'")
    return " ".join(text.split())


def errors(right: Sequence[str], said: Sequence[str]) -> Errors:
    """Return the numbers of the fewest errors between two lists of words.

    Of several minimal alignments the one of rapidfuzz, and so jiwer, is used: equal words at both ends are matched, and
    the backtrace through the distance table prefers deletions, then insertions if a substitution would be on a longer
    path, then substitutions.
    """
    right, said = _inner(right, said)
    table = _table(right, said)
    row, column = len(right), len(said)
    replaced = left_out = put_in = 0
    while row or column:
        here = table[row, column]
        if row and here == table[row - 1, column] + 1:
            row, left_out = row - 1, left_out + 1
        elif column and (not row or table[row, column - 1] < table[row - 1, column - 1]):
            column, put_in = column - 1, put_in + 1
        else:
            row, column = row - 1, column - 1
            replaced += right[row] != said[column]
    return Errors(replaced, left_out, put_in)


def _inner(right: Sequence[str], said: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Return two texts without their common first and last words."""
    most = min(len(right), len(said))
    first = next((place for place in range(most) if right[place] != said[place]), most)
    right, said, most = right[first:], said[first:], most - first
    last = next((place for place in range(most) if right[-1 - place] != said[-1 - place]), most)
    return right[: len(right) - last], said[: len(said) - last]


def _table(right: Sequence[str], said: Sequence[str]) -> Array:
    """Return the distances of all prefixes of two texts, (R + 1) x (S + 1) int64."""
    numbers = {word: number for number, word in enumerate(dict.fromkeys([*right, *said]))}
    own = np.array([numbers[word] for word in said], np.int64)
    columns = np.arange(len(said) + 1)
    table = np.empty((len(right) + 1, len(said) + 1), np.int64)
    table[0] = columns
    for row, word in enumerate(right, 1):
        best = np.empty(len(said) + 1, np.int64)
        best[0] = row
        best[1:] = np.minimum(table[row - 1, 1:] + 1, table[row - 1, :-1] + (own != numbers[word]))
        table[row] = np.minimum.accumulate(best - columns) + columns  # plus one per insertion
    return table


def word_error_rate(records: Array, weights: Array) -> float:
    """Return the word error rate of :data:`RECORD`; NaN if no word has a weight."""
    return _rate(_wrong(records), records["words"], weights)


def _wrong(records: Array) -> Array:
    found: Array = records["substitutions"] + records["deletions"] + records["insertions"]
    return found


def _rate(edits: Array, length: Array, weights: Array) -> float:
    whole = float(weights @ length)
    return float(weights @ edits) / whole if whole else float("nan")
