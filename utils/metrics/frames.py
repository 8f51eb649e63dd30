"""Metrics of binary labels of frames, such as speech: the area under the ROC curve, and F1 at a threshold."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array, ConfigError, InputError
from utils.metrics.base import Records, WeighingMetric
from utils.metrics.gaps import Gaps, of_classes, of_threshold

RECORD = np.dtype([("score", np.float32), ("true", np.bool_), ("said", np.bool_)])
"""A frame: its score (higher is more), its label, and its label in the final answer."""

METRICS = ("auc", "f1")
"""Allowed primary metrics."""

SPREAD = 0.05
"""The threshold is spread by this much to both sides in :meth:`FrameScores.smoothed`."""


class FrameScores(WeighingMetric):
    """How well the scores of frames separate positive from negative frames.

    - ``auc``: area under the ROC curve of all frames, ties counted half (scikit-learn's ``roc_auc_score``).
    - ``f1``: of frames with a score of at least the threshold: 2 TP / (2 TP + FP + FN), with ``precision`` and
      ``recall`` as secondary figures.
    - ``answer_f1``: the same for the final answer, such as speech after minimum durations and padding.

    A frame whose score is NaN is wrong at every threshold. The samples are recordings: the accuracy gate resamples all
    frames of a recording together.

    Args:
        primary: one of :data:`METRICS` (else ConfigError).
        threshold: minimum score of a positive frame.
    """

    def __init__(self, primary: str = "auc", threshold: float = 0.5) -> None:
        if primary not in METRICS:
            raise ConfigError(f"metric {primary!r} must be one of {', '.join(METRICS)}")
        self.primary, self.threshold = primary, float(threshold)
        self.name = f"frame_{primary}"

    def records(
        self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None
    ) -> Records:
        """Return a record of :data:`RECORD` per frame.

        Args:
            predictions: per recording an object with ``scores`` (float [T]) and ``said`` (bool [T]).
            contexts: per recording an object with ``truth``, bool [T].

        Raises:
            InputError: scores and truth of a recording differ in number.
        """
        columns = []
        for prediction, context in zip(predictions, contexts or (), strict=True):
            scores, truth = np.asarray(prediction.scores), np.asarray(context.truth)
            if scores.shape != truth.shape:
                raise InputError(f"{self.name}: {scores.shape} scores for {truth.shape} frames; pass one for each")
            column = np.empty(len(scores), RECORD)
            column["score"], column["true"], column["said"] = scores, truth, prediction.said
            columns.append(column)
        samples = np.repeat(np.arange(len(columns)), [len(column) for column in columns])
        return Records(np.concatenate(columns) if columns else np.empty(0, RECORD), samples)

    def weighing(self, records: Array) -> Callable[[Array], float]:
        """Return the function from weights to :meth:`value`; the scores are sorted once."""
        true = records["true"]
        if self.primary == "f1":
            found = records["score"] >= self.threshold  # False for NaN, corrected below
            found = np.where(np.isnan(records["score"]), ~true, found)
            return lambda weights: _f1(true, found, weights)[0]
        score = records["score"].astype(np.float64)
        score = np.where(np.isnan(score), np.where(true, -math.inf, math.inf), score)
        order = np.argsort(-score, kind="stable")
        level, falling = score[order], true[order]
        ends = np.flatnonzero(np.append(level[1:] != level[:-1], True)) if len(order) else order
        return lambda weights: _auc(falling, weights[order], ends)

    def smoothed(self, records: Array) -> Callable[[Array], float] | None:
        """Return F1 with a spread threshold: a frame counts as positive by the share of thresholds below its score."""
        score, true = records["score"].astype(np.float64), records["true"]
        if self.primary != "f1" or np.isnan(score).any():
            return None
        share = np.clip((score - self.threshold) / (2 * SPREAD) + 0.5, 0, 1)

        def weighed(weights: Array) -> float:
            both = float(weights @ (true + share))
            return 2 * float(weights @ (true * share)) / both if both else math.nan

        return weighed

    def gaps(self, target: Array, baseline: Array, units: Array) -> Gaps | None:
        """Return the scores' distances from the threshold; for the AUC the gaps between both kinds of frames."""
        ours, theirs = target["score"], baseline["score"]
        if self.primary == "auc":
            return of_classes(ours, theirs, baseline["true"], units)
        return of_threshold(ours, theirs, self.threshold, units)

    def effect(self, target: Array, baseline: Array) -> float:
        """Return the relative change of the value over the share of frames that change sides.

        F1 is 2 TP over the frames that are positive by the label plus those by the score. A frame that is missed takes
        2 - F1 over this sum from F1, one that is falsely found takes F1 over it.
        """
        value = self.value(baseline, np.ones(len(baseline)))
        if self.primary == "auc" or not value:
            return 1 / value if value else math.nan
        both = int(np.count_nonzero(baseline["true"])) + int(np.count_nonzero(baseline["score"] >= self.threshold))
        return max(2 - value, value) / value * len(baseline) / both

    def unknown(self) -> str:
        """Return why the value is NaN: all frames have the same label."""
        true = self._all()["true"]
        if true.all() or not true.any():
            kind = "positive" if true.all() else "negative"
            return f"all {len(true)} frames that were run are labelled {kind}; add recordings with both"
        return ""

    def secondary(self) -> Mapping[str, float]:
        """Return the secondary figures of the class, and ``share``, the share of positive frames."""
        kept = self._all()
        ones = np.ones(len(kept))
        other = FrameScores("f1" if self.primary == "auc" else "auc", self.threshold)
        found = np.where(np.isnan(kept["score"]), ~kept["true"], kept["score"] >= self.threshold)
        f1, precision, recall = _f1(kept["true"], found, ones)
        figures = {"f1": f1, "precision": precision, "recall": recall} if self.primary == "auc" else {}
        if self.primary != "auc":
            figures = {"auc": other.value(kept, ones), "precision": precision, "recall": recall}
        figures["answer_f1"] = _f1(kept["true"], kept["said"], ones)[0]
        return figures | {"share": float(kept["true"].mean()), "frames": float(len(kept))}


def _f1(true: Array, found: Array, weights: Array) -> tuple[float, float, float]:
    """Return F1, precision and recall; NaN if one is undefined."""
    hits = float(weights[true & found].sum())
    false, missed = float(weights[~true & found].sum()), float(weights[true & ~found].sum())
    return (
        2 * hits / (2 * hits + false + missed) if hits + false + missed else math.nan,
        hits / (hits + false) if hits + false else math.nan,
        hits / (hits + missed) if hits + missed else math.nan,
    )


def _auc(true: Array, weights: Array, ends: Array) -> float:
    """Return the area under the ROC curve of frames by falling score; ``ends`` are the last of each score."""
    if not len(true):
        return math.nan
    hits = np.concatenate([[0.0], np.cumsum(np.where(true, weights, 0.0))[ends]])
    false = np.concatenate([[0.0], np.cumsum(np.where(true, 0.0, weights))[ends]])
    area = hits[-1] * false[-1]
    return float((np.diff(false) * (hits[1:] + hits[:-1])).sum() / 2 / area) if area else math.nan
