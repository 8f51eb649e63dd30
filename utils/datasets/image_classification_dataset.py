"""Data loader of classifiers for existing scripts: ``load_data``, which iterates over decoded images."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from engine import Array
from utils.datasets.base import Dataset
from utils.datasets.loading import load_dataset
from utils.datasets.sharding import rank_and_size, shard

if TYPE_CHECKING:
    from PIL import Image


class ImageLoader:
    """Iterates ``(images, labels)``: a list of upright RGB PIL images, and int64 labels (``None`` without labels).

    The labels are a numpy array, or a torch tensor if the script has imported torch, because existing scripts call
    ``target.size(0)`` and ``target.view(1, -1)``. This module never imports torch.

    ``len()`` is the number of steps; the last batch may be shorter. An image that cannot be decoded raises
    :class:`~engine.base.DataError` with the file name. Rows of an ``.npz`` file are yielded unchanged. Pipelines that
    decode in their own threads use ``batches``, which has the same samples as paths.
    """

    def __init__(self, dataset: Dataset, batch_size: int) -> None:
        self.dataset = dataset
        self.batches = dataset.batches(batch_size)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[list[Image.Image | Array], Any]]:
        for batch in self.batches:
            images = [sample if isinstance(sample, np.ndarray) else _open(sample) for sample in batch.samples]
            yield images, _labels(batch.targets)


@overload
def load_data(
    path: str | os.PathLike[str], batch_size: int = 1, rank: int = -1, *, demo_infer: Literal[False] = False
) -> ImageLoader: ...


@overload
def load_data(
    path: str | os.PathLike[str], batch_size: int = 1, rank: int = -1, *, demo_infer: Literal[True]
) -> list[Image.Image]: ...


def load_data(
    path: str | os.PathLike[str], batch_size: int = 1, rank: int = -1, *, demo_infer: bool = False
) -> ImageLoader | list[Image.Image]:
    """Load a classification data set, or one image.

    Args:
        path: any path that :func:`~utils.datasets.loading.load_dataset` accepts; with ``demo_infer``, an image file.
        rank: the part of this process if ``OMPI_COMM_WORLD_RANK`` is not set (``OMPI_COMM_WORLD_SIZE`` is the number of
            parts); -1: the whole data set.
        demo_infer: return a list of the one decoded image instead of a loader.

    Raises DataError if the path has no usable data, and ConfigError if the batch size or rank is invalid.
    """
    if demo_infer:
        return [_open(Path(path))]
    return ImageLoader(shard(load_dataset(path), *rank_and_size(rank)), batch_size)


def _labels(labels: Any) -> Any:
    torch = sys.modules.get("torch")
    return labels if torch is None or labels is None else torch.as_tensor(labels.copy())


def _open(path: Path) -> Image.Image:
    from utils.preprocess.image.images import open_image

    return open_image(path)
