"""Mean average precision of masks of objects, as defined by COCO."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine import Array, InputError
from utils.metrics.base import Records
from utils.metrics.detection.metric import MeanAveragePrecision
from utils.postprocess.image.instances import mask_overlaps


class MaskAveragePrecision(MeanAveragePrecision):
    """The mean average precision of :class:`.MeanAveragePrecision`, with the intersection over union of masks.

    The rules and figures of ``COCOeval`` for ``segm``: sizes are the annotated areas of objects, and the numbers of
    pixels of found masks.

    Args:
        labels, categories, common: as of :class:`.MeanAveragePrecision`.
    """

    def __init__(
        self, labels: Sequence[str] | None = None, *, categories: Sequence[str] = (), common: bool = False
    ) -> None:
        super().__init__(labels, categories=categories, common=common)
        self.name = "mask_mAP"

    def records(
        self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None
    ) -> Records:
        """Match one batch.

        Args:
            predictions: per image an :class:`~utils.postprocess.image.instances.Instances`.
            targets: per image a :class:`~utils.datasets.image.objects.Objects`.
            contexts: ``masks`` of a context are those of the image's objects, if its target has none.
        """
        known = contexts or [None] * len(targets)
        full = [
            target if target.masks is not None else target._replace(masks=getattr(context, "masks", None))
            for target, context in zip(targets, known, strict=True)
        ]
        return super().records(predictions, full, contexts)

    def _overlaps(self, prediction: Any, order: Array, target: Any, known: Array) -> tuple[Array, Array]:
        """Return the overlaps of some masks with those of some objects, and their numbers of pixels."""
        if len(prediction.masks) != len(prediction.scores):
            raise InputError(f"{len(prediction.masks)} masks for {len(prediction.scores)} scores; give one for each")
        if target.masks is None or len(target.masks) != len(target.boxes):
            raise InputError(f"an image has {len(target.boxes)} objects without masks; use a data set with regions")
        found = [prediction.masks[place] for place in order.tolist()]
        objects = [target.masks[place] for place in np.flatnonzero(known).tolist()]
        crowd = np.asarray(target.crowd, bool)[known]
        return mask_overlaps(found, objects, crowd), np.array([mask.area for mask in found], np.float64)
