"""Data loader of YOLOv9 for existing scripts: that of YOLO, with a minimum number of objects per image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine import ConfigError, DataError
from utils.datasets import yolo_pt_dataset
from utils.datasets.yolo_pt_dataset import Source, YoloImages, YoloLoader

__all__ = ["create_dataloader"]


def create_dataloader(
    path: Source,
    imgsz: int | Sequence[int],
    batch_size: int,
    stride: int,
    single_cls: bool = False,
    hyp: Any = None,
    augment: bool = False,
    cache: bool | str = False,
    pad: float = 0.0,
    rect: bool = False,
    rank: int = -1,
    workers: int = 8,
    image_weights: bool = False,
    quad: bool = False,
    min_items: int = 0,
    prefix: str = "",
    shuffle: bool = False,
) -> tuple[YoloLoader, YoloImages]:
    """Load images and YOLO's labels, as :func:`utils.datasets.yolo_pt_dataset.create_dataloader` does.

    Args:
        min_items: images with fewer objects are skipped; 0 keeps all. The other arguments are the same.

    Raises, besides the errors of that function, ConfigError if ``min_items`` is not an integer of at least 0, and
    DataError if no image has that many objects.
    """
    if not isinstance(min_items, int) or min_items < 0:
        raise ConfigError(f"min_items {min_items!r} must be an integer of at least 0")
    loader, dataset = yolo_pt_dataset.create_dataloader(
        *(path, imgsz, batch_size, stride, single_cls, hyp, augment, cache, pad, rect, rank, workers, image_weights),
        *(quad, prefix, shuffle),
    )
    if min_items:
        _leave_out(dataset, min_items, path)
        if rect:
            dataset.by_proportions(batch_size, stride, pad)
    return loader, dataset


def _leave_out(dataset: YoloImages, min_items: int, path: Source) -> None:
    """Keep the images with at least ``min_items`` objects."""
    counts = [len(found.classes) for found in dataset.objects]
    kept = [place for place, count in enumerate(counts) if count >= min_items]
    if not kept:
        raise DataError(f"{path}: no image has {min_items} objects, the maximum is {max(counts)}; lower min_items")
    dataset.im_files = [dataset.im_files[place] for place in kept]
    dataset.label_files = [dataset.label_files[place] for place in kept]
    dataset.objects = [dataset.objects[place] for place in kept]
    dataset.batch_shapes = [dataset.batch_shapes[place] for place in kept]
