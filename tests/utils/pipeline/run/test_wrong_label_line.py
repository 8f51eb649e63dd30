"""An error about an invalid label names the line that has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import DataError
from utils.datasets.base import ListDataset
from utils.metrics.base import MeanMetric
from utils.metrics.class_names import WrongLabelError
from utils.pipeline import evaluate


class Unknown(MeanMetric):
    name = "unknown"

    def records(self, predictions: Any, targets: Any, contexts: Any = None) -> np.ndarray:
        raise WrongLabelError("label 'x' is not a class", 1)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_line_of_an_invalid_label(workers: int) -> None:
    batches = ListDataset([1.0, 2.0], ["a", "x"], names=["val.tsv:2", "val.tsv:3"]).batches(2)
    with pytest.raises(DataError, match=r"^val\.tsv:3: label 'x'"):
        evaluate(lambda arrays: arrays[0], batches, np.stack, list, Unknown(), workers=workers)
