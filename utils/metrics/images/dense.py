"""Errors of depth and disparity maps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array, ConfigError, DataError
from utils.metrics.base import RecordMetric, in_order_of_bytes

FIGURES = {"depth": ("abs_rel", "rmse", "mae", "delta1"), "disparity": ("epe", "d1", "rmse")}
"""Figures by quantity, the default metric of record first."""

KINDS = ("abs_rel", "rmse", "mae", "delta1", "epe", "d1")
"""Allowed primary metrics; ``epe``, the end-point error of a disparity, is ``mae`` by another name."""

ALIGNMENTS = ("none", "median", "scale_shift")
"""How predictions are fitted to the true values of an image. ``median``: multiplied by the ratio of the medians (Zhou
et al. 2017). ``scale_shift``: scale and shift of the least squares (MiDaS, Ranftl et al. 2020)."""

RELATIONS = ("same", "inverse")
"""What a model predicts: the quantity itself, or its inverse up to a factor (and a shift): MiDaS, Depth Anything."""

_SUREST = 0.5
"""Share of the pixels of highest confidence in ``epe_surest``."""


def aligned(found: Array, wanted: Array, how: str) -> Array:
    """Return predicted values, aligned with the true ones, all of N numbers, by one of :data:`ALIGNMENTS`."""
    if how == "none":
        return found
    if how == "median":
        middle = float(np.median(found))
        return found * (float(np.median(wanted)) / middle) if middle else found
    centre, right = found - found.mean(), wanted - wanted.mean()
    spread = float(centre @ centre)
    scale = float(centre @ right) / spread if spread else 0.0
    fitted: Array = scale * centre + wanted.mean()
    return fitted


def figures(found: Array, wanted: Array) -> dict[str, float]:
    """Return the figures of N predicted and true values, the latter above 0.

    ``abs_rel``: mean of |found - wanted| / wanted. ``rmse``: root of the mean square error. ``mae`` and ``epe``: mean
    absolute error. ``delta1``: share with max(found / wanted, wanted / found) < 1.25 (Eigen et al. 2014, "Depth Map
    Prediction from a Single Image"). ``d1``: share with an error above 3 and above 5 % of the true value (KITTI 2015).
    """
    off = np.abs(found - wanted)
    positive = np.maximum(found, np.finfo(np.float64).tiny)
    with np.errstate(over="ignore"):
        ratio = np.maximum(positive / wanted, wanted / positive)
    return {
        "abs_rel": float((off / wanted).mean()),
        "rmse": math.sqrt(float((off**2).mean())),
        "mae": float(off.mean()),
        "delta1": float((ratio < 1.25).mean()),
        "epe": float(off.mean()),
        "d1": float(((off > 3) & (off > 0.05 * wanted)).mean()),
    }


class DenseErrors(RecordMetric):
    """Errors of maps of depth or disparity over their known pixels: the mean over the images of each image's figure.

    Contexts have ``truth``, H x W, 0 where it is unknown; predictions have ``values`` and ``confidence`` (or ``None``),
    H x W.

    Args:
        quantity: a key of :data:`FIGURES`. primary: one of its figures; empty: the first. align: one of
            :data:`ALIGNMENTS`. relation: one of :data:`RELATIONS`; alignment is by the inverse of the true values if
            the prediction is an inverse.
        least, most: pixels with true values outside are not counted, and predictions are clipped to them; ``most``
            ``None``: no limit.
    """

    def __init__(
        self,
        quantity: str = "depth",
        primary: str = "",
        align: str = "none",
        relation: str = "same",
        least: float = 0.0,
        most: float | None = None,
    ) -> None:
        if quantity not in FIGURES:
            raise ConfigError(f"quantity {quantity!r} must be one of {', '.join(FIGURES)}")
        shown = FIGURES[quantity]
        if primary and primary not in shown:
            raise ConfigError(f"metric {primary!r} of {quantity} must be one of {', '.join(shown)}")
        limit = math.inf if most is None else most
        if align not in ALIGNMENTS or relation not in RELATIONS or not 0 <= least < limit:
            raise ConfigError(f"align {align!r}, relation {relation!r} or range {least}..{limit} is not possible")
        self.name = self.primary = primary or shown[0]
        self.higher_is_better = self.primary == "delta1"
        self.quantity, self.align, self.relation, self.least, self.most = quantity, align, relation, least, limit

    def records(self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None) -> Array:
        """Return the figures of :data:`KINDS` and ``epe_surest`` of each image, float64 [N, 7].

        Raises:
            DataError: a map has another size than its true values, or no known pixel is in the range.
        """
        rows = np.full((len(targets), len(KINDS) + 1), np.nan)
        for row, one, context in zip(rows, predictions, contexts or (), strict=True):
            row[:] = self._row(one, np.asarray(context.truth, np.float64))
        return rows

    def _row(self, one: Any, truth: Array) -> list[float]:
        found = np.asarray(one.values, np.float64)
        if found.shape != truth.shape:
            raise DataError(f"{self.name}: a map of {found.shape} for true values of {truth.shape}; check the data")
        known = (truth > 0) & (truth >= self.least) & (truth <= self.most)
        if not known.any():
            raise DataError(f"{self.name}: no true value is known between --least and --most; check --value_scale")
        wanted, values = truth[known], self.to_quantity(found[known], truth[known])
        own = figures(values, wanted)
        surest = math.nan
        if one.confidence is not None:
            order = np.argsort(-np.asarray(one.confidence)[known], kind="stable")
            surest = float(np.abs(values - wanted)[order[: max(1, int(_SUREST * len(order)))]].mean())
        return [*(own[kind] for kind in KINDS), surest]

    def to_quantity(self, found: Array, wanted: Array) -> Array:
        """Return N predicted numbers as values of the quantity: aligned with N true ones, inverted, clipped."""
        if self.relation == "same":
            return aligned(found, wanted, self.align).clip(self.least, self.most)
        smallest = 1 / self.most if self.most < math.inf else np.finfo(np.float32).tiny
        if self.align == "median":
            return aligned(1 / np.maximum(found, smallest), wanted, "median").clip(self.least, self.most)
        inverse = aligned(found, 1 / wanted, self.align)
        return (1 / np.maximum(inverse, smallest)).clip(self.least, self.most)

    def value(self, records: Array, weights: Array) -> float:
        """Return the weighted mean of the primary figure; NaN if all weights are 0."""
        total = float(weights.sum())
        return float(weights @ records[:, KINDS.index(self.primary)]) / total if total else math.nan

    def secondary(self) -> Mapping[str, float]:
        """Return the means of the other figures, and of the most confident half of each image's pixels, if known."""
        means = dict(zip((*KINDS, "surest"), in_order_of_bytes(self._all()).mean(axis=0).tolist(), strict=True))
        found = {kind: means[kind] for kind in FIGURES[self.quantity] if kind != self.primary}
        if not math.isnan(means["surest"]):
            found["epe_surest" if self.quantity == "disparity" else "mae_surest"] = means["surest"]
        return found
