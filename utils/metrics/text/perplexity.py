"""Perplexity: how many equally likely tokens a language model hesitates between, on average over all tokens."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from engine import Array
from utils.metrics.base import RecordMetric


class Score(NamedTuple):
    """What a model makes of a text.

    Attributes:
        cost: negative natural logarithm of the probability of the tokens that were predicted.
        tokens: how many those are. size: bytes of UTF-8 that they stand for.
    """

    cost: float
    tokens: int
    size: int


class Perplexity(RecordMetric):
    """``exp`` of the mean cost of a token over all texts, so that a long text counts more; bits per byte beside it.

    Perplexities of models with different tokenizers cannot be compared, as their tokens are not the same; bits per byte
    can. A text is a unit.
    """

    name, higher_is_better = "perplexity", False

    def records(
        self, predictions: Sequence[Score], targets: Sequence[Any] | Array, contexts: Sequence[Any] | None
    ) -> Array:
        """Return N x 3 float64: cost, tokens and bytes of each text; the targets are the texts, and not looked at."""
        return np.array([tuple(one) for one in predictions], np.float64).reshape(-1, 3)

    def value(self, records: Array, weights: Array) -> float:
        """Return the perplexity of some texts; NaN where they have no tokens."""
        cost, tokens, _ = weights @ records
        return _power(cost / tokens) if tokens else math.nan

    def secondary(self) -> Mapping[str, float]:
        """Return bits per byte, and how many tokens and bytes there are."""
        records = self._all()
        _, tokens, size = records.sum(axis=0)
        cost = math.fsum(records[:, 0])  # exact: processes hand in their texts in any order
        bits = {"bits_per_byte": float(cost / math.log(2) / size)} if size else {}
        return bits | {"tokens": float(tokens), "bytes": float(size)}


def _power(mean: float) -> float:
    try:
        return math.exp(mean)
    except OverflowError:
        return math.inf
