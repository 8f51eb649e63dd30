"""A foreign task of two models: one finds the quarter of an image that holds something, the other reads what it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from utils.datasets import load_dataset
from utils.metrics import TopK
from utils.tasks import Artifact, Model, Options, Prepared, Task

SIDE = 8


def prepare(samples: Sequence[Any], model: Model, options: Options) -> Prepared:
    assert set(model.named) == {"find", "read"}
    return Prepared([np.stack(samples).astype(model.dtype)[:, None]])


def infer(engines: Mapping[str, Any], arrays: Any, contexts: Any, state: Any) -> Any:
    (images,) = arrays
    quarters = np.asarray(engines["find"](images)).reshape(len(images), 4).argmax(axis=1)
    rows, columns = np.divmod(quarters, 2)
    places = zip(rows * SIDE, columns * SIDE, strict=True)
    crops = [image[:, r : r + SIDE, c : c + SIDE] for image, (r, c) in zip(images, places, strict=True)]
    return quarters, engines["read"](np.stack(crops))


def decode(outputs: Any, contexts: Any, model: Model, options: Options) -> np.ndarray:
    return np.asarray(outputs[1], np.float32)


def show(sample: Any, prediction: Any, model: Model, options: Options) -> Artifact:
    return Artifact(f"kind {int(prediction.argmax())}", int(prediction.argmax()))


FOUND_AND_READ = Task(
    name="found_and_read",
    domain="finding",
    load=lambda paths, options: load_dataset(paths["data"]),
    prepare=prepare,
    infer=infer,
    decode=decode,
    metric=lambda options, dataset, model: TopK(1),
    show=show,
    models=("find", "read"),
    data_help="an .npz with images and labels",
)
