"""The historical face of the classification data: ``load_data`` and its iteration over decoded images."""

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
    """Iterates ``(pictures, labels)``: a list of upright RGB PIL images, and int64 labels (``None`` without labels).

    The labels are a numpy array, or a torch tensor where the script itself has imported torch: existing scripts call
    ``target.size(0)`` and ``target.view(1, -1)``. torch is never imported here.

    ``len()`` is the number of steps, and the last batch is short, not dropped. An image that cannot be decoded raises
    :class:`~engine.base.DataError` naming the file. Rows of an ``.npz`` file come as they are. Pipelines that decode in
    threads of their own take ``batches``, which holds the same samples as paths.
    """

    def __init__(self, dataset: Dataset, batch_size: int) -> None:
        self.dataset = dataset
        self.batches = dataset.batches(batch_size)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[list[Image.Image | Array], Any]]:
        for batch in self.batches:
            pictures = [sample if isinstance(sample, np.ndarray) else _open(sample) for sample in batch.samples]
            yield pictures, _labels(batch.targets)


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
        path: anything :func:`~utils.datasets.loading.load_dataset` takes; with ``demo_infer``, an image file.
        batch_size: samples per step.
        rank: this process's part where ``OMPI_COMM_WORLD_RANK`` is not set (``OMPI_COMM_WORLD_SIZE`` says of how many);
            -1 means everything.
        demo_infer: return a list of the one decoded image instead of a loader.

    Raises:
        DataError: nothing usable at the path.
        ConfigError: a batch size or rank that cannot be used.
    """
    if demo_infer:
        return [_open(Path(path))]
    return ImageLoader(shard(load_dataset(path), *rank_and_size(rank)), batch_size)


def _labels(labels: Any) -> Any:
    """Return the labels as the script's own framework holds them."""
    torch = sys.modules.get("torch")
    return labels if torch is None or labels is None else torch.as_tensor(labels.copy())


def _open(path: Path) -> Image.Image:
    from utils.preprocess.image.images import open_image

    return open_image(path)
