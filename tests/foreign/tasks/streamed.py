"""A foreign task: a recurrent network fed in chunks; ``infer`` carries its state, and the batch is on axis 1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from utils.datasets import ListDataset
from utils.metrics import MeanMetric
from utils.tasks import Artifact, Model, Options, Prepared, Task

CHUNK = 4


class EndError(MeanMetric):
    """Mean absolute error of the last state."""

    name, higher_is_better = "end_error", False

    def records(self, predictions: Any, targets: Sequence[Any], contexts: Sequence[Any] | None) -> np.ndarray:
        pairs = zip(predictions, targets, strict=True)
        return np.array([np.abs(found - target).mean() for found, target in pairs], np.float64)


def load(paths: Mapping[str, Path], options: Options) -> ListDataset:
    with np.load(paths["data"]) as file:
        lengths, flat, ends = file["lengths"], file["flat"], file["ends"]
    signals = np.split(flat, np.cumsum(lengths)[:-1])
    return ListDataset(signals, list(ends), files=[paths["data"]])


def prepare(samples: Sequence[Any], model: Model, options: Options) -> Prepared:
    return Prepared([[signal.astype(model.dtype) for signal in samples]], [len(signal) for signal in samples])


def collate(parts: Sequence[Prepared], model: Model) -> list[np.ndarray]:
    signals = [signal for part in parts for signal in part.arrays[0]]
    steps = -(-max(len(signal) for signal in signals) // CHUNK) * CHUNK
    padded = np.zeros((steps, len(signals), signals[0].shape[1]), signals[0].dtype)
    for i, signal in enumerate(signals):
        padded[: len(signal), i] = signal
    return [padded]


def setup(engines: Mapping[str, Any], dataset: Any, options: Options) -> int:
    (engine,) = engines.values()
    return int(engine.inputs[1].shape[2] or 0)


def infer(engines: Mapping[str, Any], arrays: Any, contexts: Any, state: int) -> np.ndarray:
    (engine,) = engines.values()
    (signal,) = arrays
    hidden = np.zeros((1, signal.shape[1], state), signal.dtype)
    heard = []
    for start in range(0, len(signal), CHUNK):
        out, hidden = engine([signal[start : start + CHUNK], hidden])
        hidden = hidden.astype(signal.dtype, copy=False)
        heard.append(out)
    return np.concatenate(heard)


def decode(outputs: Any, contexts: Any, model: Model, options: Options) -> list[np.ndarray]:
    return [np.asarray(outputs[length - 1, i], np.float64) for i, length in enumerate(contexts)]


def show(sample: Any, prediction: Any, model: Model, options: Options) -> Artifact:
    return Artifact(" ".join(f"{value:.3f}" for value in prediction), prediction.tolist())


STREAMED = Task(
    name="streamed",
    domain="streaming",
    load=load,
    prepare=prepare,
    collate=collate,
    setup=setup,
    infer=infer,
    decode=decode,
    metric=lambda options, dataset, model: EndError(),
    show=show,
    figures=lambda timeline, samples: {"chunks": float(timeline.count("call model"))},
)
