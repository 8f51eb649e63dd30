"""How likely words follow each other: an n-gram model out of an ARPA file, for the beam search.

ARPA is the text format of SRILM, KenLM and others: for every n-gram known, the logarithm to base 10 of its last word's
probability behind the others, and of what is left for words that were never seen behind it (Katz, 1987).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from engine import DataError

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"
"""What stands before a sentence's first word, behind its last, and for words that are not known."""

RARE = -7.0
"""Logarithm to base 10 of an unknown word's probability, where the file has no ``<unk>``."""

LN10 = math.log(10)


class Gram(NamedTuple):
    """What a file says of an n-gram, as logarithms to base 10: its last word, and the weight of what follows it."""

    likely: float
    left: float = 0.0


@dataclass(frozen=True)
class LanguageModel:
    """An n-gram model, and how much it counts in a search.

    Attributes:
        grams: by the words of each.
        order: words of the longest.
        weight: of the natural logarithm of its probabilities beside the recogniser's.
        bonus: added for every word, as a model of words makes long texts less likely than short ones.
    """

    grams: dict[tuple[str, ...], Gram]
    order: int
    weight: float = 0.5
    bonus: float = 0.0

    def step(self, before: Sequence[str], word: str) -> float:
        """Return what a word adds behind others: weight x ln p(word | words before) + bonus."""
        return self.weight * LN10 * self.likely(before, word) + self.bonus

    def end(self, before: Sequence[str]) -> float:
        """Return what it adds that a text ends here; 0 where the file knows no end."""
        return self.weight * LN10 * self.likely(before, END) if (END,) in self.grams else 0.0

    def likely(self, before: Sequence[str], word: str) -> float:
        """Return the logarithm to base 10 of a word's probability behind others, the sentence's begin before them."""
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
    """Return the model that the lines of an ARPA file say.

    Args:
        lines: of the file. name: of the file, for errors. weight, bonus: see :class:`LanguageModel`.

    Raises:
        DataError: it is no ARPA file; the text names the line.
    """
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
                raise DataError(f"{name}:{number}: {row[:80]!r} is no {length}-gram; the file is damaged")
            try:
                grams[tuple(parts[1 : length + 1])] = Gram(
                    _logarithm(parts[0]), _logarithm(parts[length + 1]) if len(parts) == length + 2 else 0.0
                )
            except ValueError as error:
                raise DataError(f"{name}:{number}: {row[:80]!r} has no logarithms where they belong") from error
    if not grams or not ended:
        what = "cut short (no \\end\\)" if grams else "no ARPA file (no \\1-grams:)"
        raise DataError(f"{name}: {what}; give the text form of an n-gram model, as SRILM and KenLM's lmplz write it")
    return LanguageModel(grams, order, weight, bonus)


def _logarithm(text: str) -> float:
    """Return a logarithm, which may be minus infinity: never; ValueError where it is none."""
    found = float(text)
    if not found < math.inf:
        raise ValueError(text)
    return found


def _number(text: str, where: str) -> int:
    if text not in tuple("123456789"):
        raise DataError(f"{where}: '\\{text[:20]}-grams:' is no heading of an ARPA file; the file is damaged")
    return int(text)
