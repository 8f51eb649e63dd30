"""Perplexity: the exponential of the mean cost per token of a language model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from engine import Array
from utils.metrics.base import RecordMetric


class Score(NamedTuple):
    """Score of a text.

    Attributes:
        cost: negative natural logarithm of the probability of the predicted tokens.
        tokens: number of these. size: bytes of UTF-8 that they encode.
    """

    cost: float
    tokens: int
    size: int


class Perplexity(RecordMetric):
    """``exp`` of the mean cost per token over all texts, so that long texts weigh more; bits per byte is secondary.

    Perplexities of models with different tokenizers cannot be compared; bits per byte can. A text is a unit.
    """

    name, higher_is_better = "perplexity", False

    def records(
        self, predictions: Sequence[Score], targets: Sequence[Any] | Array, contexts: Sequence[Any] | None
    ) -> Array:
        """Return N x 3 float64: cost, tokens and bytes of each text; the targets, the texts, are unused."""
        return np.array([tuple(one) for one in predictions], np.float64).reshape(-1, 3)

    def value(self, records: Array, weights: Array) -> float:
        """Return the weighted perplexity; NaN without tokens."""
        cost, tokens, _ = weights @ records
        return _power(cost / tokens) if tokens else math.nan

    def secondary(self) -> Mapping[str, float]:
        """Return bits per byte, and the numbers of tokens and bytes."""
        records = self._all()
        _, tokens, size = records.sum(axis=0)
        cost = math.fsum(records[:, 0])  # exact: processes merge their texts in any order
        bits = {"bits_per_byte": float(cost / math.log(2) / size)} if size else {}
        return bits | {"tokens": float(tokens), "bytes": float(size)}


def _power(mean: float) -> float:
    try:
        return math.exp(mean)
    except OverflowError:
        return math.inf
