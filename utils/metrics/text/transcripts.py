"""Metrics of speech that was recognised: word and character error rates, with what kinds of errors there are.

An error is a word that is replaced, left out or put in; the fewest that make the right text what was recognised are
counted (Levenshtein, 1966). Rates are sums over all recordings, so a long one counts for more, and may be above 1.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from engine import Array
from utils.metrics.text.edits import TextMetric, edit_distance

FORMS = ("plain", "NFC", "NFKC", "none")
"""What texts are brought to before they are compared. ``plain``: NFKC, without regard to case, with all punctuation but
apostrophes within words as blanks. ``NFC``, ``NFKC``: Unicode's. ``none``: as they come. Blanks part words in all."""

RECORD = np.dtype(
    [
        ("substitutions", np.int32),  # in words
        ("deletions", np.int32),
        ("insertions", np.int32),
        ("words", np.int32),
        ("edits", np.int32),  # in characters
        ("length", np.int32),
        ("right", np.bool_),
    ]
)
"""What is kept of a recording. One with NaN in the outputs is as one in which nothing was recognised, never right."""

_OTHER = re.compile(r"(?<!\w)['’]|['’](?!\w)|[^\w\s'’]|_")


class Errors(NamedTuple):
    """How many words were replaced, left out and put in."""

    substitutions: int
    deletions: int
    insertions: int


class TranscriptMetric(TextMetric):
    """What both metrics share; a recording is a record, and ``form`` is one of :data:`FORMS`."""

    higher_is_better = False
    forms, record = FORMS, RECORD

    def compared(self, read: str | None, target: str) -> tuple[Any, ...]:
        """Return the record of a recording; ``None``: nothing is known of it."""
        known, said, right = read is not None, normalised(read or "", self.form), normalised(target, self.form)
        words = right.split()
        return (
            *errors(words, said.split()),
            len(words),
            edit_distance(said, right),
            len(right),
            known and said == right,
        )

    def unknown(self) -> str:
        """Return why there is no value: the right texts are empty."""
        if not self._all()["length"].any():
            return "no right text of the recordings that were run has a word, so no rate can be told; add texts"
        return ""

    def secondary(self) -> Mapping[str, float]:
        """Return every figure: all but the one of record.

        ``wer``, ``cer``: errors in words and characters over the words and characters of the right texts.
        ``substitutions``, ``deletions``, ``insertions``: words replaced, left out and put in. ``words``: of the right
        texts. ``sentence_accuracy``: share of recordings without an error.
        """
        kept = self._all()
        ones = np.ones(len(kept))
        figures = {"wer": word_error_rate(kept, ones), "cer": _rate(kept["edits"], kept["length"], ones)}
        counts = {name: float(kept[name].sum()) for name in (*Errors._fields, "words")}
        figures |= counts | {"sentence_accuracy": float(kept["right"].mean())}
        return {name: value for name, value in figures.items() if name != self.name}


class WordErrorRate(TranscriptMetric):
    """Words replaced, left out and put in over the words of the right texts, all recordings together; 0 is best.

    NaN where no recording has a word to be recognised. One without counts what was recognised in it as put in.
    """

    name = "wer"

    def value(self, records: Array, weights: Array) -> float:
        """Return the rate, each recording counted by its weight; NaN where the right texts are empty."""
        return word_error_rate(records, weights)


class SpokenCharacterErrorRate(TranscriptMetric):
    """The same in characters, blanks among them: for languages that write no blanks, and for single words."""

    name = "cer"

    def value(self, records: Array, weights: Array) -> float:
        """Return the rate, each recording counted by its weight; NaN where the right texts are empty."""
        return _rate(records["edits"], records["length"], weights)


METRICS: dict[str, type[TranscriptMetric]] = {one.name: one for one in (WordErrorRate, SpokenCharacterErrorRate)}
"""By the names that ``--metric`` takes."""


def normalised(text: str, form: str = FORMS[0]) -> str:
    """Return a text in one of :data:`FORMS`, with single blanks between its words."""
    if form != "none":
        text = unicodedata.normalize("NFC" if form == "NFC" else "NFKC", text)
    if form == "plain":
        text = _OTHER.sub(" ", text.casefold()).replace("’", "'")
    return " ".join(text.split())


def errors(right: Sequence[str], said: Sequence[str]) -> Errors:
    """Return the kinds of the fewest errors that make words others.

    Of several ways with as few errors one is taken as rapidfuzz, and so jiwer, does it: equal words at both ends stand
    for each other, and a walk back through the table of distances leaves out where it can, puts in only where the way
    by which it would else go is a longer one, and replaces else.
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
    """Return two texts without the words that both begin and end with."""
    most = min(len(right), len(said))
    first = next((place for place in range(most) if right[place] != said[place]), most)
    right, said, most = right[first:], said[first:], most - first
    last = next((place for place in range(most) if right[-1 - place] != said[-1 - place]), most)
    return right[: len(right) - last], said[: len(said) - last]


def _table(right: Sequence[str], said: Sequence[str]) -> Array:
    """Return the distances of all beginnings of two texts from each other, (R + 1) x (S + 1) int64."""
    numbers = {word: number for number, word in enumerate(dict.fromkeys([*right, *said]))}
    own = np.array([numbers[word] for word in said], np.int64)
    columns = np.arange(len(said) + 1)
    table = np.empty((len(right) + 1, len(said) + 1), np.int64)
    table[0] = columns
    for row, word in enumerate(right, 1):
        best = np.empty(len(said) + 1, np.int64)
        best[0] = row
        best[1:] = np.minimum(table[row - 1, 1:] + 1, table[row - 1, :-1] + (own != numbers[word]))
        table[row] = np.minimum.accumulate(best - columns) + columns  # one more per word that is put in
    return table


def word_error_rate(records: Array, weights: Array) -> float:
    """Return the word error rate of :data:`RECORD`; NaN where no word has any weight."""
    wrong = records["substitutions"] + records["deletions"] + records["insertions"]
    return _rate(wrong, records["words"], weights)


def _rate(edits: Array, length: Array, weights: Array) -> float:
    whole = float(weights @ length)
    return float(weights @ edits) / whole if whole else float("nan")
