"""Tests of the comparison of runs by their JSON, records, and metric definition."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from model_config.judge import accuracy
from model_config.results import Accuracy, StepResult, Verdict
from model_config.run.foreign import Foreign
from utils.datasets.base import Batch
from utils.metrics import Metric, TopK, metric_from_json, metric_to_json
from utils.pipeline.resume.records import record_writer, records_path

SCRIPT = """
import numpy as np
from utils.metrics import RecordMetric


class Rate(RecordMetric):
    name = "wer"
    higher_is_better = False

    def records(self, predictions, targets, contexts):
        return np.stack([predictions, targets], axis=1)

    def value(self, records, weights):
        return float(records[:, 0] @ weights / (records[:, 1] @ weights))
"""


SHARE = """
import numpy as np
from utils.metrics import MeanMetric


class Share(MeanMetric):
    name, bounds = "overlap", (0.0, 1.0)

    def records(self, predictions, targets, contexts):
        return np.asarray(predictions)
"""


def wrote(folder: Path, name: str, metric: Metric, record: np.ndarray, definition: Any, **fields: Any) -> StepResult:
    """Return a step with JSON and records, as the evaluation loops write them."""
    result = folder / f"{name}.json"
    names = [f"{i}.wav" for i in range(len(record))]
    with record_writer(records_path(result, metric), metric) as writer:
        writer.write(Batch(names, None, names, fields.pop("units", None)), record)
    value = metric.value(record, np.ones(len(record)))
    data = {"metric_name": metric.name, "metric": value, "samples": len(record), **fields}
    if definition is not None:
        data |= {
            "metric_definition": definition,
            "higher_is_better": metric.higher_is_better,
            "records": records_path(result, metric).name,
        }
    result.write_text(json.dumps(data))
    return StepResult("case", name, (), True, 1.0, 0, "", folder, folder, eval_metric=round(value, 6), result=result)


def against(valid: StepResult, other: StepResult, root: Path, tolerance: float = 0.02) -> Accuracy:
    return accuracy._against_run(valid, other, accuracy._How("onnx float32", tolerance, Foreign(root)))


def script_metric(tmp_path: Path) -> tuple[Metric, dict[str, Any]]:
    (tmp_path / "eval.py").write_text(SCRIPT)
    definition = {"class": f"{tmp_path.resolve()}/eval.py:Rate", "options": {}}
    return metric_from_json(definition, tmp_path), definition


def test_a_metric_of_a_script_is_judged_by_its_arrays(tmp_path: Path) -> None:
    metric, definition = script_metric(tmp_path)
    rng = np.random.default_rng(0)
    words = rng.integers(5, 20, 3000)
    errors = rng.binomial(words, 0.1)
    baseline = wrote(tmp_path, "baseline", metric, np.stack([errors, words], 1), definition)
    worse = np.stack([errors + (rng.random(3000) < 0.5), words], 1)
    found = against(wrote(tmp_path, "valid", metric, worse, definition), baseline, tmp_path)
    assert (found.verdict, found.metric_name, found.higher_is_better, found.units) == (Verdict.FAIL, "wer", False, 3000)
    assert ", worse" in found.reason
    assert against(
        wrote(tmp_path, "same", metric, np.stack([errors, words], 1), definition), baseline, tmp_path
    ).verdict is (Verdict.PASS)


def test_invalid_definition_is_reported(tmp_path: Path) -> None:
    metric, definition = script_metric(tmp_path)
    record = np.ones((10, 2))
    one, other = (wrote(tmp_path, name, metric, record, definition) for name in ("valid", "baseline"))
    (tmp_path / "below").mkdir()
    found = against(one, other, tmp_path / "below")
    assert found.verdict is Verdict.FAIL
    assert "cannot be compared with onnx float32: metric of " in found.reason
    changed = wrote(tmp_path, "changed", metric, record, {**definition, "options": {"k": 1}})
    assert "measure the same in both" in against(one, changed, tmp_path).reason
    older = wrote(tmp_path, "older", metric, record, None)
    assert against(one, older, tmp_path).verdict is Verdict.PASS  # one definition is enough
    assert "pass the metric too" in against(older, wrote(tmp_path, "old", metric, record, None), tmp_path).reason


def test_results_without_the_new_fields_are_means_of_rows(tmp_path: Path) -> None:
    right = np.random.default_rng(0).random(5000) < 0.9
    metric = TopK()
    older = [wrote(tmp_path, name, metric, right, None) for name in ("valid", "baseline")]
    newer = [wrote(tmp_path, f"new_{name}", metric, right, metric_to_json(metric)) for name in ("valid", "baseline")]
    verdicts = [against(*pair, tmp_path, 0.01) for pair in (older, newer)]
    assert verdicts[0].verdict is Verdict.PASS
    assert verdicts[0] == verdicts[1]


def test_without_records_the_direction_counts_too(tmp_path: Path) -> None:
    def printed(name: str, value: float) -> StepResult:
        (tmp_path / f"{name}.json").write_text('{"higher_is_better": false}')
        result = tmp_path / f"{name}.json"
        return StepResult("case", name, (), True, 1.0, 0, "", tmp_path, tmp_path, eval_metric=value, result=result)

    found = against(printed("valid", 0.3), printed("baseline", 0.1), tmp_path)
    assert found.verdict is Verdict.FAIL
    assert "+200.00 %, worse" in found.reason
    zero = against(printed("valid", 0.3), printed("baseline", 0.0), tmp_path)
    assert zero.verdict is Verdict.FAIL
    assert "nan" not in zero.reason


def test_a_published_figure(tmp_path: Path) -> None:
    right = np.repeat([True, False], [45, 5])
    valid = wrote(tmp_path, "valid", TopK(), right, metric_to_json(TopK()))
    how = accuracy._How("the paper", 0.01, Foreign(tmp_path))
    assert accuracy._against_figure(valid, 0.905, how).verdict is Verdict.PASS
    far = accuracy._against_figure(valid, 0.93, how)
    assert (far.verdict, far.against, far.interval) == (Verdict.FAIL, "the paper", None)


def test_secondary_metrics_are_judged_by_the_same_tolerance(tmp_path: Path) -> None:
    right = np.repeat([True, False], [45, 5])
    both = [
        wrote(tmp_path, name, TopK(), right, metric_to_json(TopK()), secondary={"top5": value})
        for name, value in (("valid", 0.98), ("baseline", 0.99))
    ]
    how = accuracy._How("onnx float32", 0.001, Foreign(tmp_path))
    (top5, lacking) = accuracy._secondary(["top5", "top6"], *both, how)
    assert (top5.verdict, top5.metric_name, top5.reference) == (Verdict.FAIL, "top5", 0.99)
    assert not re.search("better|worse", top5.reason), "its direction is unknown"
    assert lacking.verdict is Verdict.FAIL
    assert "top6" in lacking.reason
    assert accuracy._secondary(["top5"], *both, how._replace(tolerance=0.02))[0].verdict is Verdict.PASS


def test_a_run_that_was_cut_short(tmp_path: Path) -> None:
    right = np.repeat([True, False], [45, 5])
    whole = wrote(tmp_path, "valid", TopK(), right, metric_to_json(TopK()), finished=True)
    assert accuracy.cut_short(whole) == ""
    part = wrote(tmp_path, "valid", TopK(), right, metric_to_json(TopK()), finished=False)
    assert "50 samples" in accuracy.cut_short(part)


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"metric": "x"}'])
def test_json_of_other_format(tmp_path: Path, text: str) -> None:
    (tmp_path / "valid.json").write_text(text)
    assert accuracy.read_result(tmp_path / "valid.json") == {}
    assert accuracy.direction(tmp_path / "valid.json")
