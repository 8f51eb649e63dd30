"""An n-gram model of the training prompts, as an ARPA file."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable

BEGIN, END, UNKNOWN = "<s>", "</s>", "<unk>"


def arpa(texts: Iterable[str], order: int = 3) -> str:
    """Return the n-gram model of texts with Witten-Bell smoothing (1991), in ARPA format.

    The probability mass of words not seen after a history is the share of distinct words among all words seen after it.
    It is distributed according to the history that is one word shorter, and finally uniformly over all words.
    """
    counts = [Counter[tuple[str, ...]]() for _ in range(order)]
    for text in texts:
        words = [BEGIN, *text.split(), END]
        for size in range(order):
            grams = (tuple(words[place : place + size + 1]) for place in range(len(words) - size))
            counts[size].update(gram for gram in grams if gram != (BEGIN,))
    known = {word for (word,) in counts[0]}
    likely: dict[tuple[str, ...], float] = {(): 1 / (len(known) + 1)}
    left: dict[tuple[str, ...], float] = {}
    for grams in counts:
        behind: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
        for gram, count in grams.items():
            behind[gram[:-1]][gram[-1]] = count
        for before, words in sorted(behind.items()):
            total, kinds = sum(words.values()), len(words)
            left[before] = kinds / (total + kinds)
            for word, count in words.items():
                likely[(*before, word)] = (count + kinds * _shorter(likely, left, before, word)) / (total + kinds)
    likely[(UNKNOWN,)] = left[()] * likely.pop(())
    sections = [sorted(gram for gram in likely if len(gram) == size + 1) for size in range(order)]
    sections[0].insert(0, (BEGIN,))
    return _written(sections, likely, left)


def _shorter(
    likely: dict[tuple[str, ...], float], left: dict[tuple[str, ...], float], before: tuple[str, ...], word: str
) -> float:
    """Return the probability of a word given its history without the first word."""
    if not before:
        return likely[()]
    before = before[1:]
    gram = (*before, word)
    return likely[gram] if gram in likely else left.get(before, 1.0) * _shorter(likely, left, before, word)


def _written(
    sections: list[list[tuple[str, ...]]], likely: dict[tuple[str, ...], float], left: dict[tuple[str, ...], float]
) -> str:
    rows = ["\\data\\", *(f"ngram {size}={len(grams)}" for size, grams in enumerate(sections, 1)), ""]
    for size, grams in enumerate(sections, 1):
        rows.append(f"\\{size}-grams:")
        for gram in grams:
            rest = f"\t{math.log10(left[gram]):.4f}" if gram in left else ""
            share = f"{math.log10(likely[gram]):.4f}" if gram in likely else "-99"
            rows.append(f"{share}\t{' '.join(gram)}{rest}")
        rows.append("")
    return "\n".join([*rows, "\\end\\", ""])
