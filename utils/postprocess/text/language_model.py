"""N-gram language models in ARPA files, for the beam search.

ARPA is the text format of SRILM, KenLM and others: for every known n-gram, the logarithm to base 10 of its last word's
probability after the others, and of the back-off weight for unseen continuations (Katz, 1987).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine import DataError

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
"""Words for the start and end of a sentence, and for unknown words."""

RARE = -7.0
"""Logarithm to base 10 of an unknown word's probability, for files without ``<unk>``."""

LN10 = math.log(10)


class Gram(NamedTuple):
    """Logarithms to base 10 of an n-gram: the probability of its last word, and its back-off weight."""

    likely: float
    left: float = 0.0


@dataclass(frozen=True)
class LanguageModel:
    """An n-gram model, and its weight in a search.

    Attributes:
        grams: by their words. order: words of the longest n-gram.
        weight: factor of the natural logarithm of its probabilities, relative to the recogniser's.
        bonus: added for every word, because a language model makes long texts less likely than short ones.
    """

    grams: dict[tuple[str, ...], Gram]
    order: int
    weight: float = 0.5
    bonus: float = 0.0

    def step(self, before: Sequence[str], word: str) -> float:
        """Return the score of a word after others: weight x ln p(word | words before) + bonus."""
        return self.weight * LN10 * self.likely(before, word) + self.bonus

    def end(self, before: Sequence[str]) -> float:
        """Return the score of a text's end; 0 if the file has no ``</s>``."""
        return self.weight * LN10 * self.likely(before, END) if (END,) in self.grams else 0.0

    def likely(self, before: Sequence[str], word: str) -> float:
        """Return the logarithm to base 10 of a word's probability after others and the sentence's start."""
        if (word,) not in self.grams:
            word = UNKNOWN
        context = (BEGIN, *before)[-(self.order - 1) :] if self.order > 1 else ()
        context = tuple(one if (one,) in self.grams else UNKNOWN for one in context)
        left = 0.0
        while True:
            found = self.grams.get((*context, word))
            if found is not None:
                return left + found.likely
            if not context:
                return left + RARE
            left += self.grams.get(context, _NONE).left
            context = context[1:]


_NONE = Gram(0.0)


def read_arpa(lines: Iterable[str], name: str, weight: float = 0.5, bonus: float = 0.0) -> LanguageModel:
    """Return the model of an ARPA file called ``name``. Raises DataError, with the line, if the file is invalid."""
    grams: dict[tuple[str, ...], Gram] = {}
    order = length = 0
    ended = False
    for number, line in enumerate(lines, 1):
        row = line.strip()
        if row.startswith("\\") and row.endswith("-grams:"):
            length = _number(row[1:-7], f"{name}:{number}")
            order = max(order, length)
        elif row == "\\end\\":
            ended = True
            break
        elif row and length:
            parts = row.split()
            if len(parts) not in (length + 1, length + 2):
                raise DataError(f"{name}:{number}: {row[:80]!r} is not a {length}-gram; the file is damaged")
            try:
                left = _logarithm(parts[length + 1]) if len(parts) == length + 2 else 0.0
                grams[tuple(parts[1 : length + 1])] = Gram(_logarithm(parts[0]), left)
            except ValueError as error:
                raise DataError(f"{name}:{number}: {row[:80]!r} has an invalid logarithm") from error
    if not grams or not ended:
        what = "truncated (no \\end\\)" if grams else "not an ARPA file (no \\1-grams:)"
        raise DataError(f"{name}: {what}; pass an n-gram model in text form, as written by SRILM and KenLM's lmplz")
    return LanguageModel(grams, order, weight, bonus)


def _logarithm(text: str) -> float:
    """Return a logarithm, which may be minus infinity; raise ValueError if it is invalid."""
    found = float(text)
    if not found < math.inf:
        raise ValueError(text)
    return found


def _number(text: str, where: str) -> int:
    if text not in tuple("123456789"):
        raise DataError(f"{where}: '\\{text[:20]}-grams:' is not a heading of an ARPA file; the file is damaged")
    return int(text)
