"""A foreign task: two lists of whole numbers of any length, what counts in each compared as a word error rate is.

Targets are dicts, a sample has one record per list, a speaker is the unit, and lower is better.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine import ConfigError, DataError
from utils.datasets import ListDataset
from utils.metrics import RecordMetric, Records
from utils.tasks import Artifact, Flag, Model, Options, Prepared, Task, Template

SIDES = ("left", "right")


class CountErrorRate(RecordMetric):
    """Wrong counts over all counts: a ratio of two sums, not the mean of its records."""

    name, higher_is_better = "count_error_rate", False

    def records(self, predictions: Any, targets: Sequence[Any], contexts: Sequence[Any] | None) -> Records:
        rows = [
            (abs(found[side] - target[side]), target[side])
            for found, target in zip(predictions, targets, strict=True)
            for side in SIDES
        ]
        return Records(np.array(rows, np.float64), np.repeat(np.arange(len(targets)), len(SIDES)))

    def value(self, records: np.ndarray, weights: np.ndarray) -> float:
        wrong, counted = weights @ records
        return float(wrong / counted) if counted else 0.0


def load(paths: Mapping[str, Path], options: Options) -> ListDataset:
    path = paths["data"]
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as JSON lines ({error}); check the path") from error
    return ListDataset(
        [(row["left"], row["right"]) for row in rows],
        [row["counts"] for row in rows],
        names=[f"{path.name}:{number}" for number in range(1, len(rows) + 1)],
        units=[row["speaker"] for row in rows],
        files=[path],
    )


def prepare(samples: Sequence[Any], model: Model, options: Options) -> Prepared:
    for left, right in samples:
        if min(left + right, default=1) < 0:
            raise DataError(f"{min(left + right)} is not a token; use integers of at least 0")
    by_name = {"left": [s[0] for s in samples], "right": [s[1] for s in samples]}
    arrays = [[np.array(tokens, np.int64) for tokens in by_name[tensor.name]] for tensor in model.inputs]
    return Prepared(arrays, [(len(left), len(right)) for left, right in samples])


def decode(outputs: Any, contexts: Any, model: Model, options: Options) -> list[dict[str, float]]:
    counts = np.maximum(np.rint(np.asarray(outputs, np.float64) * options.gain), 0)
    assert len(contexts) == len(counts)
    return [dict(zip(SIDES, row, strict=True)) for row in counts.tolist()]


def metric(options: Options, dataset: Any, model: Model) -> CountErrorRate:
    return CountErrorRate()


def show(sample: Any, prediction: Any, model: Model, options: Options) -> Artifact:
    return Artifact(f"{prediction['left']:.0f} and {prediction['right']:.0f}", prediction)


def check(options: Options) -> None:
    if options.gain <= 0:
        raise ConfigError(f"--gain {options.gain} must be above 0")


def fill(folder: Path) -> dict[str, str]:
    write_data(folder / "pairs.jsonl", count=24)
    return {"metric_name": "count_error_rate"}


def write_data(path: Path, count: int, seed: int = 0, speakers: int = 8) -> None:
    """Write random pairs; what counts are the tokens from 1 to 5."""
    rng = np.random.default_rng(seed)
    lines = []
    for i in range(count):
        row: dict[str, Any] = {"speaker": f"speaker {i % speakers}"}
        for side in SIDES:
            row[side] = rng.integers(1, 10, rng.integers(1, 12)).tolist()
        row["counts"] = {side: sum(token <= 5 for token in row[side]) for side in SIDES}
        lines.append(json.dumps(row))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def tokens_read(timeline: Any, samples: int) -> dict[str, float]:
    return {"calls": float(timeline.count("call model"))}


COUNTED_PAIRS = Task(
    name="counted_pairs",
    domain="counting",
    load=load,
    prepare=prepare,
    decode=decode,
    metric=metric,
    show=show,
    check=check,
    figures=tokens_read,
    flags=(Flag("--gain", "what the model's counts are multiplied by", 1.0, float),),
    template=Template(Path(__file__).with_name("templates") / "counted_pairs", fill),
    data_help="JSON lines with left, right, counts and speaker",
)
