"""Metrics of speaker verification: equal error rate, minimum detection cost, true acceptance at a false acceptance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from engine import Array, ConfigError
from utils.metrics.gaps import Gaps, of_threshold
from utils.metrics.roc import (
    accepted_at,
    accepted_intervals,
    area,
    equal_error,
    equal_error_threshold,
    in_order,
    least_cost,
    roc_curve,
)
from utils.metrics.verification import FARS, Verification, people

P_TARGETS = (0.01, 0.05)
"""Shares of trials of one speaker for the minimum cost: those of VoxCeleb's and NIST's evaluations."""


class SpeakerVerification(Verification):
    """How well scores of pairs of recordings separate one speaker from two.

    - ``eer``, the primary metric: the rate at which false acceptance and false rejection are equal.
    - ``min_dcf_P``: the minimum detection cost if the share P of trials is of one speaker (both errors cost 1),
      relative to a trivial system: 1 is useless.
    - ``auc`` and ``tar_at_far_F`` with its interval over speakers, as in
      :class:`~utils.metrics.verification.Verification`.
    - ``threshold``: the score at the equal error rate; ``speakers``: their number.

    A trial whose score is NaN is wrong at every threshold. All figures are NaN if all trials are of one kind.

    Args:
        fars: rates of false acceptance, above 0 and below 1.
        p_targets: shares of trials of one speaker, above 0 and below 1.

    Raises:
        ConfigError: a share is out of range.
    """

    name, higher_is_better = "eer", False

    def __init__(self, fars: Sequence[float] = FARS, p_targets: Sequence[float] = P_TARGETS) -> None:
        super().__init__("auc", fars)
        wrong = next((share for share in p_targets if not 0 < share < 1), None)
        if wrong is not None:
            raise ConfigError(f"--p_target {wrong} must be above 0 and below 1, such as 0.01")
        self.name, self.p_targets = "eer", tuple(float(share) for share in p_targets)

    def weighing(self, records: Array) -> Callable[[Array], float]:
        """Return the function from weights to the equal error rate; the records are sorted once."""
        ordered = in_order(records)
        return lambda weights: equal_error(roc_curve(ordered, weights))

    def gaps(self, target: Array, baseline: Array, units: Array) -> Gaps | None:
        """Return the scores' distances from the baseline's threshold of equal errors; the units are both speakers."""
        ordered = in_order(baseline)
        threshold = equal_error_threshold(ordered, roc_curve(ordered, np.ones(len(baseline))))
        below = ordered.levels[ordered.levels < threshold]  # the middle of two scores: no score's distance is 0
        threshold = float(threshold + below[0]) / 2 if len(below) else threshold
        return of_threshold(target["score"], baseline["score"], threshold, people(baseline))

    def effect(self, target: Array, baseline: Array) -> float:
        """Return the trials over those of the rarer kind, over the value.

        At the same threshold, neither error rate changes by more than the share of its trials that cross it, and the
        equal error rate lies between the new error rates.
        """
        value, same = self.value(baseline, np.ones(len(baseline))), int(np.count_nonzero(baseline["same"]))
        rarer = min(same, len(baseline) - same)
        return len(baseline) / rarer / value if rarer and value else math.nan

    def secondary(self) -> Mapping[str, float]:
        """Return the secondary figures of the class."""
        kept = self._all()
        ordered = in_order(kept)
        curve = roc_curve(ordered, np.ones(len(kept)))
        figures = {f"min_dcf_{share:g}": least_cost(curve, share) for share in self.p_targets}
        figures |= {"auc": area(curve), "threshold": equal_error_threshold(ordered, curve)}
        for far, (low, high) in zip(self.fars, accepted_intervals(kept, self.fars), strict=True):
            figures[f"tar_at_far_{far:g}"] = accepted_at(curve, far)
            if low == low:  # not NaN
                figures |= {f"tar_at_far_{far:g}_low": low, f"tar_at_far_{far:g}_high": high}
        return figures | {"speakers": float(len(np.unique(np.stack([kept["first"], kept["second"]]))))}

    def per_class(self) -> Mapping[str, Mapping[str, float]]:
        """Return nothing, because folds are not used."""
        return {}
