"""Comparison of a metric's value with a reference value."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True, slots=True)
class Change:
    """A value and its reference value.

    Attributes:
        value, reference: of the same metric.
        higher_is_better: the metric's direction.
    """

    value: float
    reference: float
    higher_is_better: bool = True

    @classmethod
    def of(cls, value: float, reference: float, higher_is_better: bool = True) -> Self:
        """Return the change from ``reference`` to ``value``."""
        return cls(float(value), float(reference), higher_is_better)

    @property
    def relative(self) -> float | None:
        """(value - reference) / \\|reference\\|; ``None`` if the reference is 0 or either is not finite."""
        if not self.reference or not math.isfinite(self.value) or not math.isfinite(self.reference):
            return None
        return (self.value - self.reference) / abs(self.reference)

    @property
    def drop(self) -> float:
        """Relative loss compared with the reference; negative if the value is better.

        Infinite if the value is worse without a relative difference, or if either is NaN, so that
        ``drop <= limit`` is never true for values that cannot be compared.
        """
        if self.value == self.reference:
            return 0.0
        if math.isnan(self.value) or math.isnan(self.reference):
            return math.inf
        loss = self.relative
        if loss is None:
            loss = math.copysign(math.inf, self.value - self.reference)
        return -loss if self.higher_is_better else loss

    @property
    def word(self) -> str:
        """``better``, ``worse`` or ``equal``; ``incomparable`` if either is NaN."""
        if math.isnan(self.value) or math.isnan(self.reference):
            return "incomparable"
        if self.value == self.reference:
            return "equal"
        return "better" if (self.value > self.reference) == self.higher_is_better else "worse"

    @property
    def text(self) -> str:
        """The change in words: ``+0.31 % relative``, or ``0.02 against 0: no relative difference``."""
        if self.relative is None:
            return f"{self.value:.6g} against {self.reference:.6g}: no relative difference"
        return f"{self.percent()} relative"

    def percent(self, places: int | None = None) -> str:
        """Return the relative change with a sign, such as ``+0.31 %``, or ``no relative difference``.

        Args:
            places: decimals; ``None``: two, or up to six to show two digits of a smaller change.
        """
        if self.relative is None:
            return "no relative difference"
        share = 100 * self.relative
        if places is None:
            places = min(max(2, 1 - math.floor(math.log10(abs(share)))), 6) if share else 2
        return f"{share:+.{places}f} %"
