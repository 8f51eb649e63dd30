"""Retrieval between images and their captions: recall at 1, 5 and 10, both ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, InputError
from utils.metrics.base import Records, WeighingMetric

CUTS = (1, 5, 10)
DIRECTIONS = ("image_to_text", "text_to_image")

BLOCK = 1024
"""Images whose scores are computed at once."""


class Described(NamedTuple):
    """Vectors of an image, float32 [D], and of its captions, float32 [K, D], all of length 1."""

    image: Array
    captions: Array


class CaptionRecall(WeighingMetric):
    """Share of images whose captions are found, or of captions whose image is found, 0 to 1.

    An image finds its caption at ``k`` if one of its captions is among the ``k`` with the highest cosines of all
    captions; a caption finds its image likewise. Others with the same score come first, so that constant vectors find
    nothing. Vectors with NaN find nothing. All images and captions are those of the records.

    Args:
        direction: of the metric of record, one of :data:`DIRECTIONS`. cut: its ``k``. most: captions of an image at
            most, so that all records have one shape.
    """

    bounds = (0.0, 1.0)

    def __init__(self, direction: str = DIRECTIONS[0], cut: int = 1, most: int = 1) -> None:
        if direction not in DIRECTIONS:
            raise ConfigError(f"metric {direction!r} must be one of {', '.join(DIRECTIONS)}")
        if cut < 1 or most < 1:
            raise ConfigError(f"recall at {cut} of {most} captions; both must be at least 1")
        self.direction, self.cut, self.most = direction, cut, most
        self.name = f"{direction}_r{cut}"

    def records(
        self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None
    ) -> Records:
        """Return N x (1 + most) x D float32: the image's vector and those of its captions, filled up with zeros.

        Raises InputError if an image has no caption, or more than ``most``.
        """
        rows = []
        for one in predictions:
            captions = np.asarray(one.captions, np.float32)
            if not 1 <= len(captions) <= self.most:
                raise InputError(f"{self.name}: {len(captions)} captions of an image; 1 to {self.most} are expected")
            row = np.zeros((1 + self.most, len(one.image)), np.float32)
            row[0], row[1 : 1 + len(captions)] = one.image, captions
            rows.append(row)
        return Records(np.stack(rows))

    def weighing(self, records: Array) -> Callable[[Array], float]:
        """Return the function from weights of images to the recall; a caption has the weight of its image."""
        ranks, owners = _ranks(records, self.direction)
        return lambda weights: _share(ranks <= self.cut, weights[owners])

    def secondary(self) -> Mapping[str, float]:
        """Return recall at :data:`CUTS` both ways, and the numbers of images and captions."""
        kept = self._all()
        found: dict[str, float] = {}
        for direction in DIRECTIONS:
            ranks, owners = _ranks(kept, direction)
            found |= {f"{direction}_r{cut}": _share(ranks <= cut, np.ones(len(owners))) for cut in CUTS}
            found["images" if direction == DIRECTIONS[0] else "captions"] = float(len(owners))
        return {name: value for name, value in found.items() if name != self.name}


def _ranks(records: Array, direction: str) -> tuple[Array, Array]:
    """Return the rank of each query's best answer, from 1, and the place of the query's image."""
    images, captions = records[:, 0], records[:, 1:]
    # a vector of length 1 has a value other than 0; a caption with NaN is one too
    there = (captions != 0).any(axis=-1)
    owners, texts = np.nonzero(there)[0], captions[there]
    if direction == DIRECTIONS[1]:
        own = np.einsum("td,td->t", texts, images[owners])
        ahead = np.zeros(len(texts), np.int64)
        for start in range(0, len(images), BLOCK):
            scores = texts @ images[start : start + BLOCK].T
            scores[np.isnan(scores)] = -np.inf
            other = owners[:, None] != np.arange(start, start + scores.shape[1])
            ahead += ((scores >= own[:, None] - SLACK) & other).sum(axis=1)
        return np.where(np.isnan(own), len(images) + 1, 1 + ahead), owners
    ranks = np.zeros(len(images), np.int64)
    for start in range(0, len(images), BLOCK):
        scores = images[start : start + BLOCK] @ texts.T
        scores[np.isnan(scores)] = -np.inf
        mine = owners == np.arange(start, start + len(scores))[:, None]
        best = np.where(mine, scores, -np.inf).max(axis=1, initial=-np.inf)
        ahead = ((scores >= best[:, None] - SLACK) & ~mine).sum(axis=1)
        ranks[start : start + BLOCK] = np.where(np.isneginf(best), len(texts) + 1, 1 + ahead)
    return ranks, np.arange(len(images))


SLACK = 1e-6
"""Cosines that differ by less are equal: products of the same vectors may differ in their last bits."""


def _share(hits: Array, weights: Array) -> float:
    total = float(weights.sum())
    return float(weights[hits].sum()) / total if total else float("nan")
