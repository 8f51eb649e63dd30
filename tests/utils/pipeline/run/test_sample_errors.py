"""Whose fault an error is: a sample's, which is listed, or the run's, which ends it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support import DIGITS, RunPython

from engine import ConfigError, DataError, Timeline
from utils.datasets.base import Batch, ListDataset
from utils.metrics.base import MeanMetric
from utils.pipeline.ahead import prepared
from utils.pipeline.run.function_task import FunctionTask
from utils.pipeline.run.loops import evaluate_pipeline, predict_pipeline
from utils.pipeline.run.nan import nan_names
from utils.pipeline.run.pipeline import Failure, Pipeline, Preprocessor
from utils.tasks.prepared import NoAnswer, Shards

ROWS = [{"x": 1.0}, {"y": 2.0}, {"x": 3.0}]


def batch() -> Batch:
    return Batch(ROWS, ["a", "b", "c"], ["s0", "s1", "s2"])


def test_a_bad_sample_is_left_out_with_its_target() -> None:
    def fields(samples: Any) -> np.ndarray:
        if any("x" not in sample for sample in samples):
            raise DataError("field x is missing")
        return np.array([[sample["x"]] for sample in samples], np.float32)

    (ready,) = prepared([batch()], fields, Timeline(), 0)
    assert ready.failures == [Failure("s1", "field x is missing")]
    assert ready.good == (0, 2)
    assert ready.batch.targets == ["a", "c"]  # a list, not an array
    np.testing.assert_array_equal(ready.arrays[0], [[1], [3]])  # type: ignore[index]


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_a_wrong_setting_ends_the_run(mode: str) -> None:
    many = [batch() for _ in range(3)]
    with pytest.raises(ConfigError, match="no input is called 'ids'"):
        list(prepared(many, wrong_setting, Timeline(), 1, worker_mode=mode))


def wrong_setting(samples: Any) -> np.ndarray:
    raise ConfigError("no input is called 'ids'; name one of x, y")


def test_samples_without_an_answer_are_listed() -> None:
    """It is in no metric, records and journal have its place, and the others keep their targets."""
    failures: list[Failure] = []
    batches = ListDataset([0.0, 1.0, 2.0, 3.0, 4.0], [9, 1, 2, 9, 4], names=list("abcde")).batches(2)

    def made() -> Pipeline:
        task = FunctionTask(lambda arrays: arrays, lambda samples: np.array(samples)[:, None], even)
        return Pipeline(task, {})

    answers = list(predict_pipeline(made(), batches, failures=failures))
    assert [(one.name, one.answer, one.sample) for one in answers] == [("b", 1, 1.0), ("c", 2, 2.0), ("e", 4, 4.0)]
    assert failures == [Failure("a", "0 is none"), Failure("d", "3 is none")]
    report = evaluate_pipeline(made(), batches, Hits())
    assert (report.metric, report.samples, report.failures) == (1.0, 3, failures)
    none = ListDataset([3.0, 3.0], [9, 9]).batches(1)
    with pytest.raises(DataError, match=r": 0: 3 .*; 1: 3"):
        evaluate_pipeline(made(), none, Hits())


def even(outputs: Any) -> list[Any]:
    return [NoAnswer(f"{value:g} is none") if value % 3 == 0 else value for (value,) in np.asarray(outputs[0])]


class Hits(MeanMetric):
    name = "hits"

    def records(self, predictions: Any, targets: Any, contexts: Any = None) -> np.ndarray:
        return np.equal(predictions, targets)


class ByShards(FunctionTask):
    def collate(self, parts: Any) -> Shards:
        return Shards([[row] for part in parts for row in part.arrays[0]])


def by_shards(samples: Any) -> np.ndarray:
    return np.array([[sample.get("x", np.nan)] for sample in samples], np.float32)


def test_nan_in_shards_names_the_batch() -> None:
    (ready,) = prepared([batch()], Preprocessor(ByShards(None, by_shards, None)), Timeline(), 0)
    assert isinstance(ready.arrays, Shards)
    assert ready.nan_inputs == ["a sample from s0 to s2"]
    assert nan_names(Shards([[np.array([np.nan])]]), ["s7"]) == ["s7"]
    assert nan_names(Shards([[np.array([1.0])]]), ["s7"]) == []


@pytest.mark.slow
@pytest.mark.parametrize("script", ["single", "multi"])
def test_int8_warns_of_few_calibration_samples(script: str, run_python: RunPython) -> None:
    done = run_python(DIGITS / f"example_{script}_batch.py", "--target", "cpu", "--dtype", "int8")
    assert done.returncode == 0, done.stderr
    assert "0081.png  7  0." in done.stdout
    count = 1 if script == "single" else 36
    assert f"warning: int8 chooses its ranges from these {count} samples only" in done.stderr
