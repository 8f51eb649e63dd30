"""Metrics of documents ranked for queries: nDCG, recall, reciprocal rank and average precision.

The definitions are trec_eval's (https://github.com/usnistgov/trec_eval, ``m_ndcg_cut.c``, ``m_recall.c``,
``m_recip_rank.c``, ``m_map.c``), including its order of documents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from engine import Array, ConfigError, InputError
from utils.metrics.base import RecordMetric, Records

CUTS = (1, 5, 10, 100)
"""Ranks at which recall is computed."""

FIGURES = ("ndcg", "recall", "mrr", "map")
"""Allowed primary metrics."""


class Ranking(RecordMetric):
    """The mean over queries of one of :data:`FIGURES`.

    - ``ndcg``: sum over the first ``cut`` documents of grade / log2(1 + rank), over the maximum of this sum.
    - ``recall``: share of a query's relevant documents among the first ``cut``.
    - ``mrr``: 1 / rank of the first relevant document, 0 if none is among the first ``cut``.
    - ``map``: mean over a query's relevant documents of the precision at their ranks, 0 for missing ones.

    Documents with a grade of at least 1 are relevant; unjudged ones have grade 0, and negative grades count as 0.
    Documents are sorted by their scores as float32, ties by falling name. Queries without relevant documents are 0 in
    all figures.

    Args:
        primary: one of :data:`FIGURES`.
        cut: of nDCG, of the reciprocal rank, and of recall as the primary metric.

    Raises:
        ConfigError: invalid arguments.
    """

    bounds = (0.0, 1.0)
    has_margins: ClassVar[bool] = True

    def __init__(self, primary: str = "ndcg", cut: int = 10) -> None:
        if primary not in FIGURES:
            raise ConfigError(f"metric {primary!r} must be one of {', '.join(FIGURES)}")
        if cut < 1:
            raise ConfigError(f"--cut {cut} must be at least 1")
        self.primary, self.cut = primary, cut
        self.name = "map" if primary == "map" else f"{primary}{cut}"
        self._recalls = tuple(sorted({*CUTS, cut}))

    def records(
        self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None
    ) -> Records:
        """Return a float64 row per query: nDCG, the reciprocal rank, average precision, and recall at each cut.

        Args:
            predictions: per query an object with ``ids`` (names of documents) and ``scores`` (as many numbers).
            targets: per query a mapping from its judged documents to integer grades.

        Raises:
            InputError: a prediction has different numbers of scores and names, or a duplicate document.
        """
        rows = [self._row(found, grades) for found, grades in zip(predictions, targets, strict=True)]
        values = np.array(rows, np.float64).reshape(len(targets), 3 + len(self._recalls))
        cut = None if self.primary == "map" else self.cut
        gaps = [margin(found, grades, cut) for found, grades in zip(predictions, targets, strict=True)]
        return Records(values, margins=np.array(gaps, np.float64))

    def _row(self, found: Any, grades: Mapping[str, int]) -> list[float]:
        ids, scores = list(found.ids), np.asarray(found.scores, np.float32)
        if scores.shape != (len(ids),) or len(set(ids)) != len(ids):
            raise InputError(
                f"{self.name}: {len(ids)} documents ({len(set(ids))} different ones) and {scores.size} scores of a "
                "query; pass one score per document, and each document once"
            )
        if np.isnan(scores).any():
            return [math.nan] * (3 + len(self._recalls))
        ordered = ranked(ids, scores)
        gains = np.array([max(0, grades.get(name, 0)) for name in ordered], np.float64)
        ideal = np.sort([grade for grade in grades.values() if grade > 0])[::-1].astype(np.float64)
        hits = np.flatnonzero(gains) + 1  # ranks
        relevant = len(ideal)
        if not relevant:
            return [0.0] * (3 + len(self._recalls))
        first = 1 / int(hits[0]) if len(hits) and hits[0] <= self.cut else 0.0
        average = float((np.arange(1, len(hits) + 1) / hits).sum()) / relevant
        recalls = [float((hits <= cut).sum()) / relevant for cut in self._recalls]
        return [_gain(gains, self.cut) / _gain(ideal, self.cut), first, average, *recalls]

    def value(self, records: Array, weights: Array) -> float:
        """Return the weighted mean of the primary metric; NaN if all weights are 0."""
        total = float(weights.sum())
        return float(np.dot(weights, records[:, self._column()])) / total if total else math.nan

    def _column(self) -> int:
        return {"ndcg": 0, "mrr": 1, "map": 2}.get(self.primary, 3 + self._recalls.index(self.cut))

    def secondary(self) -> Mapping[str, float]:
        """Return the other figures, and recall at :data:`CUTS`."""
        kept = self._all()
        names = [f"ndcg{self.cut}", f"mrr{self.cut}", "map", *(f"recall{cut}" for cut in self._recalls)]
        return {
            name: math.fsum(column.tolist()) / len(kept)
            for name, column in zip(names, kept.T, strict=True)
            if name != self.name
        }


def margin(found: Any, grades: Mapping[str, int], cut: int | None) -> float:
    """Return the smallest gap of float32 scores between two documents of different grades, one of them up to ``cut``.

    A swap of two documents of one grade, or of two beyond the cut, does not change the figures at this cut. Infinite
    if no swap changes them; NaN if a score is NaN.
    """
    scores = dict(zip(found.ids, np.asarray(found.scores, np.float32).astype(np.float64).tolist(), strict=True))
    if any(map(math.isnan, scores.values())):
        return math.nan
    names = ranked(found.ids, found.scores)
    gains = [max(0, grades.get(name, 0)) for name in names]
    last = len(names) if cut is None else min(cut, len(names))
    places = [(place, place + 1) for place in range(last - 1)]
    places += [(last - 1, place) for place in range(last, len(names)) if gains[place] != gains[last - 1]][:1]
    gaps = (_gap(scores[names[one]], scores[names[other]]) for one, other in places if gains[one] != gains[other])
    return min(gaps, default=math.inf)


def _gap(one: float, other: float) -> float:
    return 0.0 if one == other else one - other


def ranked(ids: Sequence[str], scores: Array) -> list[str]:
    """Return names of documents by falling score (float32), ties by falling name."""
    by_name = sorted(range(len(ids)), key=lambda place: ids[place].encode("utf-8", "surrogatepass"), reverse=True)
    order = np.array(by_name, np.intp)
    order = order[np.argsort(-np.asarray(scores, np.float32)[order], kind="stable")]
    return [ids[place] for place in order.tolist()]


def _gain(grades: Array, cut: int) -> float:
    """Return the discounted cumulative gain of the first ``cut`` grades."""
    some = grades[:cut]
    return math.fsum((some / np.log2(np.arange(2, len(some) + 2))).tolist())
