"""Metrics of items ranked for users, with the most popular items as baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array
from utils.metrics.base import Records
from utils.metrics.ranking import Ranking


class Recommendations(Ranking):
    """:class:`~utils.metrics.ranking.Ranking` of items for users; a user is a sample and a unit.

    Each prediction has a second ranking of the same candidates, ``popular``, whose figures are secondary. Recall of
    users with a single relevant item is the hit rate.

    Args:
        primary, cut: see :class:`~utils.metrics.ranking.Ranking`.
    """

    def __init__(self, primary: str = "ndcg", cut: int = 10) -> None:
        super().__init__(primary, cut)

    def records(
        self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None
    ) -> Records:
        """Return a float64 row per user: the figures of the model's ranking, and those of the popular items'.

        Args:
            predictions: per user an object with ``ids`` and ``scores``, and another such object as ``popular``.
            targets: per user a mapping from the names of the relevant items to 1.

        Raises:
            InputError: as :meth:`Ranking.records`.
        """
        own, popular = (
            super(Recommendations, self).records(rankings, targets)
            for rankings in (predictions, [one.popular for one in predictions])
        )
        return Records(np.concatenate([own.values, popular.values], axis=1), margins=own.margins)

    def secondary(self) -> Mapping[str, float]:
        """Return the other figures of the model, and the selectable ones of the popular items."""
        recalls = [f"recall{cut}" for cut in self._recalls]
        names = [f"ndcg{self.cut}", f"mrr{self.cut}", "map", *recalls]
        kept = self._all()
        means = [math.fsum(column.tolist()) / len(kept) for column in kept.T]
        own = dict(zip(names, means[: len(names)], strict=True))
        popular = dict(zip(names, means[len(names) :], strict=True))
        shown = dict.fromkeys([self.name, f"ndcg{self.cut}", f"mrr{self.cut}", f"recall{self.cut}"])
        return {name: value for name, value in own.items() if name != self.name} | {
            f"popular_{name}": popular[name] for name in shown
        }
