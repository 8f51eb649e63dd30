"""Reader and writer of COCO's results format of masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, DataError
from utils.datasets.base import Dataset
from utils.datasets.image.regions import of_runs, text_of_runs
from utils.postprocess.image.instances import Instances, Mask, compact, mask_overlaps
from utils.tasks.detection.results import BoxResults, read_results


def read_mask_results(file: Path, dataset: Dataset, labels: Sequence[str] | None) -> list[Instances | None]:
    """Read a JSON list of ``{"image_id", "category_id", "segmentation": {"size", "counts"}, "score"}``; see
    :func:`~utils.tasks.detection.results.read_results`."""
    return read_results(file, dataset, labels, _mask_of, _answer, "segmentation")


def _mask_of(entry: Mapping[str, Any], where: str) -> tuple[Mask, tuple[int, int]]:
    region = entry.get("segmentation")
    size = region.get("size") if isinstance(region, dict) else None
    if not isinstance(region, dict) or not isinstance(size, list) or [type(one) for one in size] != [int, int]:
        raise DataError(f"{where}: segmentation {region!r:.60} must be an RLE with size and counts")
    counts = region.get("counts")
    if not isinstance(counts, (str, list)) or min(size) < 1:
        raise DataError(f"{where}: segmentation {region!r:.60} must be an RLE with size and counts")
    try:
        return compact(of_runs(counts, size[0], size[1])), (size[0], size[1])
    except DataError as error:
        raise DataError(f"{where}: {error}") from error


def _answer(rows: Sequence[tuple[tuple[Mask, tuple[int, int]], float, int]]) -> Instances:
    parts, scores, classes = zip(*rows, strict=True)
    masks = tuple(mask for mask, _ in parts)
    boxes = [[m.left, m.top, m.left + m.bits.shape[1], m.top + m.bits.shape[0]] for m in masks]
    return Instances(np.array(boxes, float), np.array(scores), np.array(classes, np.int64), masks, parts[0][1])


def instance_overlaps(one: Instances, other: Instances) -> Array:
    """Return the intersections over union of the masks of M and N objects, M x N."""
    return mask_overlaps(one.masks, other.masks)


class MaskResults(BoxResults):
    """Writer of the masks and scores of objects, in the format of ``COCO.loadRes``."""

    def part(self, found: Any, row: int) -> Mapping[str, Any]:
        """Return the run lengths of an image's object."""
        whole = found.masks[row].whole(found.size)
        return {"segmentation": {"size": list(found.size), "counts": text_of_runs(whole)}}
