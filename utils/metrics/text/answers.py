"""Metrics of answers to questions on texts: exact match and F1, as in SQuAD's own evaluation.

Texts are compared after normalisation (Rajpurkar et al., 2016): lower case, no punctuation, no articles, single spaces.
F1 is of the multisets of words. The best of several correct answers counts. "No answer" is the empty text, which is
right for unanswerable questions (Rajpurkar et al., 2018).

For Chinese, words are single Chinese characters, and runs of other characters between them; articles do not exist
(Lewis et al., 2020, "MLQA").
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from engine import Array, ConfigError, DataError, InputError
from utils.metrics.base import RecordMetric, Records

LANGUAGES = ("en", "zh")
"""Languages of normalisation."""

RECORD = np.dtype([("exact", np.bool_), ("f1", np.float64), ("answerable", np.bool_)])
"""A question. With NaN outputs it is never right."""

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_CHINESE = re.compile("[\u3400-\u9fff\uf900-\ufaff]")


def normalised(text: str, language: str = "en") -> str:
    """Return the normalised text."""
    low = text.lower()
    if language == "zh":
        kept = "".join(letter for letter in low if not unicodedata.category(letter).startswith("P"))
        kept = "".join(letter for letter in kept if letter not in string.punctuation)
        return " ".join(_CHINESE.sub(lambda found: f" {found[0]} ", kept).split())
    plain = "".join(letter for letter in low if letter not in string.punctuation)
    return " ".join(_ARTICLES.sub(" ", plain).split())


def exact(found: str, right: str, language: str = "en") -> bool:
    """Return whether two texts are equal after normalisation."""
    return normalised(found, language) == normalised(right, language)


def f1(found: str, right: str, language: str = "en") -> float:
    """Return the harmonic mean of precision and recall of the words, 0 to 1; 1 for two empty texts."""
    words, wanted = normalised(found, language).split(), normalised(right, language).split()
    if not words or not wanted:
        return float(words == wanted)
    shared = sum((Counter(words) & Counter(wanted)).values())
    return 2 * shared / (len(words) + len(wanted)) if shared else 0.0


class AnswerMetric(RecordMetric):
    """Compares answers with correct ones.

    Args:
        language: one of :data:`LANGUAGES`.
    """

    bounds = (0.0, 1.0)
    has_margins: ClassVar[bool] = True
    column: str

    def __init__(self, language: str = "en") -> None:
        if language not in LANGUAGES:
            raise ConfigError(f"{self.name}: language {language!r} must be one of {', '.join(LANGUAGES)}")
        self.language = language

    def records(
        self, predictions: Sequence[Any], targets: Sequence[Any] | Array, contexts: Sequence[Any] | None
    ) -> Records:
        """Compare one batch.

        Args:
            predictions: per question a text, or an object with a ``text`` and a ``score`` (NaN: not answered); a
                ``margin`` of it is kept.
            targets: per question the correct answers; none, or only empty ones: unanswerable.

        Raises:
            InputError: a prediction is not a text.
            DataError: a target is not a list of texts.
        """
        found = np.zeros(len(targets), RECORD)
        for place, (prediction, target) in enumerate(zip(predictions, targets, strict=True)):
            text, score = getattr(prediction, "text", prediction), getattr(prediction, "score", 0.0)
            if not isinstance(text, str):
                raise InputError(f"{self.name}: a prediction is a {type(prediction).__name__}; pass texts")
            if isinstance(target, str) or not all(isinstance(one, str) for one in target):
                raise DataError(f"{self.name}: the target {target!r} is not a list of texts; correct the data set")
            right = [one for one in target if normalised(one, self.language)]
            known = score == score
            found[place] = (
                known and any(exact(text, one, self.language) for one in right or [""]),
                known * max(f1(text, one, self.language) for one in right or [""]),
                bool(right),
            )
        return Records(found, margins=np.array([getattr(one, "margin", np.nan) for one in predictions], np.float64))

    def value(self, records: Array, weights: Array) -> float:
        """Return the weighted mean; NaN if all weights are 0."""
        return _mean(records[self.column], weights)

    def secondary(self) -> Mapping[str, float]:
        """Return the other figure, and, if there are both kinds, those of questions with and without an answer.

        ``exact_match``, ``f1``: of all. ``has_answer_exact``, ``has_answer_f1``, ``no_answer_exact``: of one kind each
        (without an answer F1 is the same). ``has_answer``, ``no_answer``: the numbers of these questions.
        """
        kept = self._all()
        ones = np.ones(len(kept))
        figures = {"exact_match": _mean(kept["exact"], ones), "f1": _mean(kept["f1"], ones)}
        has = kept["answerable"]
        if has.any() and not has.all():
            figures |= {
                "has_answer_exact": _mean(kept["exact"], has.astype(np.float64)),
                "has_answer_f1": _mean(kept["f1"], has.astype(np.float64)),
                "no_answer_exact": _mean(kept["exact"], (~has).astype(np.float64)),
            }
        figures |= {"has_answer": float(has.sum()), "no_answer": float((~has).sum())}
        return {name: value for name, value in figures.items() if name != self.name}


class AnswerF1(AnswerMetric):
    """Mean F1 of the answers, 0 to 1; SQuAD's own evaluation prints it times 100."""

    name, column = "f1", "f1"


class ExactMatch(AnswerMetric):
    """Share of questions that are answered exactly, 0 to 1."""

    name, column = "exact_match", "exact"


METRICS: dict[str, type[AnswerMetric]] = {one.name: one for one in (AnswerF1, ExactMatch)}
"""Metrics by the names that ``--metric`` takes."""


def _mean(values: Array, weights: Array) -> float:
    total = float(weights.sum())
    return float(weights @ values.astype(np.float64)) / total if total else float("nan")
