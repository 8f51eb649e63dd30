"""Synthetic lines in the layout of Criteo's click logs, for tests and examples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from engine import Array
from utils.datasets.tabular.criteo import CATEGORIES, NUMBERS

VALUES = (50, 300, 4000, 2000, 30, 12, 1500, 90, 3, 2500, 600, 4000, 500) * 2
"""Number of values of each category."""

MISSING = 0.15
"""Share of empty fields."""


def clicks(rows: int, seed: int = 0) -> Iterator[str]:
    """Yield ``rows`` lines; the same for the same seed.

    Counts are log-normal; value n of a category has a probability proportional to 1 / n. The probability of a click
    grows with the sum of the effects of some counts and category values; a third of the rows are clicks.
    """
    chance = np.random.default_rng(seed)
    counts = np.floor(chance.lognormal(1.5, 1.2, (rows, len(NUMBERS)))).astype(np.int64) - 1
    places = [chance.choice(size, rows, p=_shares(size)) for size in VALUES]
    effects = [chance.normal(0, 0.8 if field % 3 == 0 else 0.0, size) for field, size in enumerate(VALUES)]
    names = [chance.integers(0, 2**32, size) for size in VALUES]
    absent = chance.random((rows, len(NUMBERS) + len(CATEGORIES))) < MISSING
    shown = np.where(absent[:, : len(NUMBERS)], 0, np.log1p(np.maximum(counts, 0)))
    score = (shown[:, :4] - shown[:, :4].mean(0)) @ np.array([0.7, -0.5, 0.4, -0.3])
    for field, (place, effect) in enumerate(zip(places, effects, strict=True)):
        score += np.where(absent[:, len(NUMBERS) + field], 0, effect[place])
    clicked = chance.random(rows) < 1 / (1 + np.exp(-(score - np.quantile(score, 0.7))))
    for row in range(rows):
        fields = [str(count) for count in counts[row].tolist()]
        fields += [f"{name[place[row]]:08x}" for name, place in zip(names, places, strict=True)]
        known = ["" if gone else field for field, gone in zip(fields, absent[row].tolist(), strict=True)]
        yield "\t".join([str(int(clicked[row])), *known])


def _shares(size: int) -> Array:
    """Return probabilities proportional to 1 / n for n from 1 to ``size``, float64."""
    shares: Array = 1 / np.arange(1, size + 1)
    return np.asarray(shares / shares.sum())
