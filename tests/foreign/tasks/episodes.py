"""A foreign task without data: an episode is a sample, its seed; ``infer`` runs all lanes of an environment at once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from utils.datasets import ListDataset
from utils.metrics import MeanMetric
from utils.tasks import Artifact, Flag, Model, Options, Prepared, Task


class MeanReturn(MeanMetric):
    """Mean return of an episode."""

    name = "mean_return"

    def records(self, predictions: Any, targets: Any, contexts: Any) -> np.ndarray:
        return np.array(predictions, np.float64)


def load(paths: Mapping[str, Path], options: Options) -> ListDataset:
    assert not paths
    seeds = list(range(options.episodes))
    return ListDataset(seeds, seeds, names=[f"seed {seed}" for seed in seeds])


def prepare(samples: Any, model: Model, options: Options) -> Prepared:
    starts = [np.random.default_rng(seed).uniform(-1, 1, 2) for seed in samples]
    return Prepared([np.stack(starts).astype(model.dtype)], list(samples))


def infer(engines: Mapping[str, Any], arrays: Any, contexts: Any, state: Any) -> np.ndarray:
    """Walk towards the middle: the policy's answer is a step, the reward is minus the distance."""
    (engine,) = engines.values()
    (places,) = arrays
    returns = np.zeros(len(places))
    for _ in range(5):
        places = (places + np.asarray(engine(places))).astype(places.dtype)
        returns -= np.abs(places.astype(np.float64)).sum(axis=1)
    return returns


EPISODES = Task(
    name="episodes",
    domain="walking",
    load=load,
    prepare=prepare,
    infer=infer,
    decode=lambda outputs, contexts, model, options: outputs.tolist(),
    metric=lambda options, dataset, model: MeanReturn(),
    show=lambda sample, prediction, model, options: Artifact(f"{prediction:.3f}", prediction),
    figures=lambda timeline, samples: {"steps_per_s": timeline.samples("call model") / timeline.seconds("call model")},
    flags=(Flag("--episodes", "how many to run", 12, int),),
    data_help="none: episodes are seeds",
)
