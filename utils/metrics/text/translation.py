"""Metrics of translations: BLEU and chrF, 0 to 100, equal to sacrebleu's.

A record has a sentence's sufficient statistics, whose sums over all sentences give both figures. BLEU (Papineni et al.,
2002): words by sacrebleu's tokenizers, counts of n-grams up to 4, exponential smoothing, brevity penalty (Post, "A Call
for Clarity in Reporting BLEU Scores", 2018). chrF (Popović, 2015): n-grams of characters without spaces, up to 6,
recall counts twice as much as precision.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from engine import Array, ConfigError, DataError, InputError
from tecoinfer_modelzoo.extra import extra
from tecoinfer_modelzoo.text import did_you_mean
from utils.metrics.base import RecordMetric

TOKENIZERS = ("13a", "intl", "char", "zh", "none")
"""sacrebleu's tokenizers without further packages; ``zh`` separates Chinese characters, ``13a`` is usual for others."""

WORDS, LETTERS, RECALL = 4, 6, 2
"""Longest n-grams of BLEU and of chrF, and the weight of recall in chrF."""

RECORD = np.dtype(
    [
        *(("length", np.int32), ("reference", np.int32)),
        *(("correct", np.int32, (WORDS,)), ("total", np.int32, (WORDS,))),
        ("letters", np.int32, (LETTERS, 3)),  # n-grams of the translation, of the reference, in both
        ("exact", np.bool_),
    ]
)
"""A sentence: words of the translation and of the reference of nearest length; n-grams. With NaN outputs: no words."""


class TranslationMetric(RecordMetric):
    """Base of :class:`Bleu` and :class:`ChrF`.

    Args:
        tokenize: one of :data:`TOKENIZERS`, for BLEU. lowercase: compare in lower case.
    """

    bounds = None

    def __init__(self, tokenize: str = TOKENIZERS[0], lowercase: bool = False) -> None:
        if tokenize not in TOKENIZERS:
            near = did_you_mean(tokenize, TOKENIZERS)
            raise ConfigError(f"{self.name}: tokenizer {tokenize!r} is unknown;{near} use {', '.join(TOKENIZERS)}")
        self.tokenize, self.lowercase = tokenize, lowercase

    def records(
        self, predictions: Sequence[Any], targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None
    ) -> Array:
        """Compare one batch.

        Args:
            predictions: per sentence a text, or an object with a ``text`` and a ``score`` (NaN: not translated).
            targets: per sentence its reference translations, at least one.

        Raises:
            InputError: A prediction is not a text.
            DataError: A target is not a sequence of texts.
            ConfigError: The package ``sacrebleu`` is not installed.
        """
        found = np.zeros(len(targets), RECORD)
        for row, (prediction, target) in enumerate(zip(predictions, targets, strict=True)):
            text, score = getattr(prediction, "text", prediction), getattr(prediction, "score", 0.0)
            if not isinstance(text, str):
                raise InputError(f"{self.name}: a prediction is a {type(prediction).__name__}; pass texts")
            if isinstance(target, str) or not target or not all(isinstance(one, str) for one in target):
                raise DataError(f"{self.name}: the target {target!r} is not a list of texts; correct the data set")
            known = score == score
            found[row] = self._compared(text if known else "", list(target), known)
        return found

    def _compared(self, text: str, references: list[str], known: bool) -> tuple[Any, ...]:
        words = _bleu(self.tokenize, self.lowercase).sentence_score(text, references)
        own = text.lower() if self.lowercase else text
        others = [one.lower() if self.lowercase else one for one in references]
        each = [letter_counts(own, one) for one in others]
        best = max(each, key=lambda counts: chrf(np.array(counts)))  # of equal ones the first, as sacrebleu
        counts, totals = words.counts, words.totals
        return words.sys_len, words.ref_len, counts, totals, best, known and own in others

    def secondary(self) -> Mapping[str, float]:
        """Return the figures except the primary one.

        ``bleu``, ``chrf``: 0 to 100. ``brevity_penalty``: of BLEU. ``exact``: share of sentences that equal a
        reference. ``words``: of the references.
        """
        kept = self._all()
        sums = _sums(kept, np.ones(len(kept)))
        figures = {
            "bleu": bleu(sums),
            "chrf": chrf(sums["letters"]),
            "brevity_penalty": brevity(sums["length"], sums["reference"]),
            "exact": float(kept["exact"].mean()),
            "words": float(sums["reference"]),
        }
        return {name: value for name, value in figures.items() if name != self.name}


class Bleu(TranslationMetric):
    """BLEU of all sentences together, 0 to 100."""

    name = "bleu"

    def value(self, records: Array, weights: Array) -> float:
        """Return BLEU of the weighted counts; NaN if all weights are 0."""
        return bleu(_sums(records, weights)) if weights.any() else math.nan


class ChrF(TranslationMetric):
    """chrF of all sentences together, 0 to 100."""

    name = "chrf"

    def value(self, records: Array, weights: Array) -> float:
        """Return chrF of the weighted counts; NaN if all weights are 0."""
        return chrf(_sums(records, weights)["letters"]) if weights.any() else math.nan


METRICS: dict[str, type[TranslationMetric]] = {one.name: one for one in (Bleu, ChrF)}
"""Metrics by the names that ``--metric`` takes."""


@lru_cache(maxsize=4)
def _bleu(tokenize: str, lowercase: bool) -> Any:
    """Return sacrebleu's BLEU, for the words and n-grams of single sentences."""
    with extra("BLEU", "translation"):
        from sacrebleu.metrics.bleu import BLEU
    return BLEU(tokenize=tokenize, lowercase=lowercase, effective_order=True)


def _sums(records: Array, weights: Array) -> dict[str, Any]:
    """Return the weighted sums of all counts."""
    return {
        name: np.tensordot(weights, records[name].astype(np.float64), 1)
        for name in ("length", "reference", "correct", "total", "letters")
    }


def brevity(length: float, reference: float) -> float:
    """Return the factor for translations that are shorter than the references together."""
    if length >= reference:
        return 1.0
    return math.exp(1 - float(reference) / float(length)) if length > 0 else 0.0


def bleu(sums: Mapping[str, Any]) -> float:
    """Return BLEU, 0 to 100, of the sums of counts (:data:`RECORD`).

    Without a common n-gram of some length its precision is halved from length to length; it is 0 without a common word.
    """
    correct, total = sums["correct"], sums["total"]
    if not correct.any() or not (total > 0).all():
        return 0.0
    halves, logs = 1.0, 0.0
    for right, whole in zip(correct.tolist(), total.tolist(), strict=True):
        if right == 0:
            halves *= 2
        logs += math.log(right / whole if right else 1 / (halves * whole))
    return 100 * brevity(float(sums["length"]), float(sums["reference"])) * math.exp(logs / WORDS)


def letter_counts(text: str, reference: str) -> list[tuple[int, int, int]]:
    """Return for each length the n-grams of characters: of the text, of the reference, and those in both."""
    one, other = "".join(text.split()), "".join(reference.split())
    found = []
    for size in range(1, LETTERS + 1):
        seen = Counter(one[place : place + size] for place in range(len(one) - size + 1))
        known = Counter(other[place : place + size] for place in range(len(other) - size + 1))
        # without an n-gram in the reference those of the text are not counted
        found.append((sum(seen.values()) if known else 0, sum(known.values()), sum((seen & known).values())))
    return found


def chrf(counts: Array) -> float:
    """Return chrF, 0 to 100, of the counts of :func:`letter_counts`, 6 x 3: of the lengths that both sides have."""
    both = counts[(counts[:, 0] > 0) & (counts[:, 1] > 0)].astype(np.float64)
    if not len(both):
        return 0.0
    precision, recall = float((both[:, 2] / both[:, 0]).mean()), float((both[:, 2] / both[:, 1]).mean())
    if not precision + recall:
        return 0.0
    factor = RECALL**2
    return 100 * (1 + factor) * precision * recall / (factor * precision + recall)
