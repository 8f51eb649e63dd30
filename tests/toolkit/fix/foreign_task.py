"""Task of an unknown domain: two inputs of variable length, dict targets, several records per sample, a ratio.

The tests copy it into ``contrib/utils/tasks``, as a contributed file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine import DataError
from utils.datasets.base import Dataset, ListDataset
from utils.metrics.base import RecordMetric, Records
from utils.tasks.base import Artifact, Flag, Options, Task
from utils.tasks.model import Model
from utils.tasks.prepared import Prepared


class TagErrorRate(RecordMetric):
    """Wrong tags over all tags: a ratio of sums, lower is better; one record per chunk of a sample."""

    name = "tag_error_rate"
    higher_is_better = False

    def __init__(self, chunk: int = 3) -> None:
        self.chunk = chunk

    def records(self, predictions: Any, targets: Any, contexts: Any) -> Records:
        """Return errors and tags of every chunk, each chunk of its sample's speaker."""
        rows, samples, units = [], [], []
        for place, (found, target) in enumerate(zip(predictions, targets, strict=True)):
            right = target["tags"]
            for first in range(0, len(right), self.chunk):
                pairs = zip(found[first : first + self.chunk], right[first : first + self.chunk], strict=True)
                wrong = [a != b for a, b in pairs]
                rows.append((sum(wrong), len(wrong)))
                samples.append(place)
                units.append(target["speaker"])
        kinds = np.dtype([("errors", np.int64), ("tags", np.int64)])
        return Records(np.array(rows, kinds), np.array(samples), units)

    def value(self, records: Any, weights: Any) -> float:
        """Return the weighted ratio."""
        return float((records["errors"] * weights).sum() / (records["tags"] * weights).sum())


def load(paths: Mapping[str, Path], options: Options) -> Dataset:
    """Read one JSON object per line: ids, traits, tags, speaker."""
    lines = [json.loads(line) for line in paths["data"].read_text().splitlines()]
    return ListDataset(
        [(line["ids"], line["traits"]) for line in lines],
        [{"tags": line["tags"], "speaker": line["speaker"]} for line in lines],
        names=[f"line {i}" for i in range(len(lines))],
        units=[line["speaker"] for line in lines],
        files=[paths["data"]],
    )


def prepare(samples: Sequence[Any], model: Model, options: Options) -> Prepared:
    """Return two lists of int64 arrays, and the lengths."""
    for ids, _ in samples:
        if not ids:
            raise DataError("a line without ids")
    columns = [[np.array(sample[i], np.int64) for sample in samples] for i in (0, 1)]
    return Prepared(columns, [len(ids) for ids, _ in samples])


def decode(outputs: Any, contexts: Any, model: Model, options: Options) -> list[list[int]]:
    """Return the best tag of every position without padding."""
    best = np.asarray(outputs).argmax(-1)
    return [row[: length - options.leave_out].tolist() for row, length in zip(best, contexts, strict=True)]


def metric(options: Options, dataset: Dataset, model: Model) -> TagErrorRate:
    """Return the error rate."""
    return TagErrorRate()


def show(sample: Any, prediction: Any, model: Model, options: Options) -> Artifact:
    """Return the tags."""
    return Artifact(str(prediction), prediction)


FOREIGN = Task(
    "foreign_tags",
    "foreign",
    load,
    prepare,
    decode,
    metric,
    show,
    flags=(Flag("--leave_out", "tags left out at the end", 0, int),),
    data_help="a .jsonl file",
)
