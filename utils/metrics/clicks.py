"""Metrics of click probabilities: AUC, log loss, and AUC within users (GAUC)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from engine import Array, ConfigError, InputError
from utils.metrics.base import WeighingMetric
from utils.metrics.gaps import Gaps, of_classes
from utils.metrics.roc import area, in_order, roc_curve

METRICS = ("auc", "log_loss", "gauc")
"""Allowed primary metrics."""

RECORD = np.dtype([("score", np.float64), ("same", np.bool_), ("user", np.int64), ("baseline", np.float64)])
"""A row: its probability, whether it was clicked, its user (63 bits of a hash of the name; -1: unknown), and the share
of clicks of its item in the training (NaN: unknown)."""

EPSILON = float(np.finfo(np.float32).eps)
"""Distance of probabilities from 0 and 1 in the log loss, as in scikit-learn for float32."""


class Clicks(WeighingMetric):
    """Whether clicked rows have higher probabilities than others.

    - ``auc``: the share of pairs of a clicked and another row in which the clicked one scores higher, ties count half.
    - ``log_loss``: the mean of -log of the probability of the observed outcome; lower is better.
    - ``gauc``: the AUC within each user's rows, averaged over the users with rows of both kinds, weighted by their
      numbers of rows (Zhou et al. 2018, "Deep Interest Network", section 6.2). A user sees only the order of the own
      rows, which an AUC over all users does not measure.

    Secondary figures: the AUC of each item's share of clicks in the training (``item_mean_auc``), if known, a baseline
    without users; and the number of users in GAUC. A weight repeats a row.

    Args:
        primary: one of :data:`METRICS` (else ConfigError).
    """

    def __init__(self, primary: str = "auc") -> None:
        if primary not in METRICS:
            raise ConfigError(f"metric {primary!r} must be one of {', '.join(METRICS)}")
        self.name = self.primary = primary
        self.higher_is_better = primary != "log_loss"

    def records(self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None) -> Array:
        """Return a record of :data:`RECORD` per row.

        Args:
            predictions: per row a probability, or an object with a ``score``.
            targets: per row a :class:`~utils.datasets.tabular.clicks.Click`.

        Raises:
            InputError: a prediction is not a number, or a target not a click.
        """
        found = np.empty(len(targets), RECORD)
        for place, (prediction, target) in enumerate(zip(predictions, targets, strict=True)):
            score = getattr(prediction, "score", prediction)
            if isinstance(score, bool) or not isinstance(score, (int, float, np.number)):
                raise InputError(f"{self.name}: a {type(score).__name__} is not a probability; pass a number per row")
            if not hasattr(target, "clicked"):
                raise InputError(f"{self.name}: a {type(target).__name__} is not a Click; pass one per row")
            found[place] = (float(score), bool(target.clicked), _number(target.user), float(target.baseline))
        return found

    def weighing(self, records: Array) -> Callable[[Array], float]:
        """Return the function from weights to :meth:`value`; the records are sorted once."""
        if self.primary == "log_loss":
            costs = log_losses(records["score"], records["same"])
            return lambda weights: float(weights @ costs / weights.sum()) if weights.sum() else math.nan
        if self.primary == "gauc":
            return _Grouped(records).value
        order = in_order(records)
        return lambda weights: area(roc_curve(order, weights))

    def gaps(self, target: Array, baseline: Array, units: Array) -> Gaps | None:
        """Return for the AUC the gaps between clicked and other rows."""
        if self.primary != "auc":
            return None
        return of_classes(target["score"], baseline["score"], baseline["same"], units)

    def effect(self, target: Array, baseline: Array) -> float:
        """Return 1 over the AUC, which is the share of pairs with the clicked row ahead."""
        return 1 / (self.value(baseline, np.ones(len(baseline))) or math.nan)

    def unknown(self) -> str:
        """Return why the value is NaN."""
        kept = self._all()
        kind = "clicked" if kept["same"].all() else "without a click" if not kept["same"].any() else ""
        if kind:
            return f"all {len(kept)} rows are {kind}, so there is nothing to compare; add rows of the other kind"
        if self.primary == "gauc":
            return "no user has rows of both kinds; use --metric auc, or data with users"
        return ""

    def secondary(self) -> Mapping[str, float]:
        """Return the other two figures, the baseline's AUC if known, and the number of users in GAUC."""
        kept = self._all()
        ones = np.ones(len(kept))
        users = _Grouped(kept).users(ones)
        found = {name: _computed(name, kept) for name in METRICS if name != self.primary}
        if not users and self.primary != "gauc":
            del found["gauc"]
        if not np.isnan(kept["baseline"]).any():
            found["item_mean_auc"] = _computed("auc", _instead(kept))
        return {**found, "clicked": float(kept["same"].mean()), "users_of_both_kinds": float(users)}


def log_losses(scores: Array, clicked: Array) -> Array:
    """Return -log of the probability of the observed outcome, float64 N; NaN if a score is NaN.

    Args:
        scores: float N, 0 to 1, clipped to [EPSILON, 1 - EPSILON].
        clicked: bool N.
    """
    given = np.clip(scores.astype(np.float64), EPSILON, 1 - EPSILON)
    losses: Array = -np.log(np.where(clicked, given, 1 - given))
    return losses


class _Grouped:
    """The AUC within users, for any weights; rows without a user are skipped, and a score of NaN is always wrong."""

    def __init__(self, records: Array) -> None:
        known = np.flatnonzero(records["user"] >= 0)
        clicked = records["same"][known]
        scores = np.where(
            np.isnan(records["score"][known]), np.where(clicked, -np.inf, np.inf), records["score"][known]
        )
        order = np.lexsort((scores, records["user"][known]))
        self._places, self._clicked = known[order], clicked[order]
        users, scores = records["user"][self._places], scores[order]
        new_user = np.append(True, users[1:] != users[:-1])[: len(users)]
        new_level = new_user | np.append(True, scores[1:] != scores[:-1])[: len(users)]
        self._level, self._user = np.cumsum(new_level) - 1, np.cumsum(new_user) - 1
        self._levels, self._count = int(new_level.sum()), int(new_user.sum())
        self._user_of_level = self._user[new_level]

    def value(self, weights: Array) -> float:
        """Return the mean of the users' AUC, weighted by their rows; NaN if no user has rows of both kinds."""
        areas, rows, both = self._areas(weights)
        total = float(rows[both].sum())
        return float(areas[both] @ rows[both]) / total if total else math.nan

    def users(self, weights: Array) -> int:
        """Return the number of users with rows of both kinds."""
        return int(self._areas(weights)[2].sum())

    def _areas(self, weights: Array) -> tuple[Array, Array, Array]:
        """Return each user's AUC, the weight of its rows, and whether it has rows of both kinds."""
        own = weights[self._places]
        true = np.bincount(self._level, np.where(self._clicked, own, 0.0), self._levels)
        false = np.bincount(self._level, np.where(self._clicked, 0.0, own), self._levels)
        all_true = np.bincount(self._user_of_level, true, self._count)
        all_false = np.bincount(self._user_of_level, false, self._count)
        before = np.cumsum(false) - false - (np.cumsum(all_false) - all_false)[self._user_of_level]
        won = np.bincount(self._user_of_level, true * (before + false / 2), self._count)
        both = (all_true > 0) & (all_false > 0)
        areas = np.divide(won, all_true * all_false, out=np.zeros(self._count), where=both)
        return areas, all_true + all_false, both


def _computed(name: str, records: Array) -> float:
    """Return a figure that does not depend on the order of the records, as the primary one does not."""
    metric = Clicks(name)
    metric.replay(records)
    return metric.compute()


def _instead(records: Array) -> Array:
    """Return records with the baseline as the score."""
    found = records.copy()
    found["score"] = records["baseline"]
    return found


@lru_cache(maxsize=1 << 16)
def _number(name: str) -> int:
    """Return 63 bits of a hash of a name; -1 for the empty one."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") >> 1 if name else -1
