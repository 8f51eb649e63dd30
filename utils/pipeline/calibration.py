"""Real samples for an engine that chooses its ranges by them (int8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from engine.base import Array, ConfigError
from utils.datasets.sharding import rank_and_size
from utils.pipeline.stages import SAMPLE_ERRORS, Preprocess, as_list

_AT_A_TIME = 8
"""Samples preprocessed together."""


def calibrate(engine: Any, batches: Any, preprocess: Preprocess) -> None:
    """Give the engine the samples it still needs, spread evenly over the data set, as that often comes by class.

    Raises:
        ConfigError: the batches are not those of a data set, or several processes would each choose other ranges.
    """
    wanted = getattr(engine, "calibration_samples", 0)
    if not wanted:
        return
    dataset = getattr(batches, "dataset", None)
    if dataset is None:
        raise ConfigError("int8 is calibrated from a data set; pass Dataset.batches(...), or call engine.calibrate()")
    if rank_and_size()[1] > 1:
        raise ConfigError("int8 is calibrated in one process: several would each choose other ranges; use one process")
    engine.calibrate(_spread(dataset, wanted, preprocess))


def _spread(dataset: Any, count: int, preprocess: Preprocess) -> Iterator[list[Array]]:
    places = np.unique(np.linspace(0, len(dataset) - 1, min(count, len(dataset))).astype(int)).tolist()
    rows = dataset.rows
    for start in range(0, len(places), _AT_A_TIME):
        part = places[start : start + _AT_A_TIME]
        samples = [dataset[i].path if rows is None else rows[i] for i in part]
        try:
            yield as_list(preprocess(samples))
        except SAMPLE_ERRORS:  # a bad sample is listed by the evaluation itself; here its neighbours go with it
            continue
