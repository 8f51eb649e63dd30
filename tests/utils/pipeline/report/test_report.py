from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import ConfigError
from utils.pipeline.report.report import SCHEMA_VERSION, Report, environment, write_json
from utils.pipeline.run.pipeline import Failure

METRIC = re.compile(r"eval_metric ([0-9]+\.[0-9]+)")
SUMMARY = re.compile(
    r"summary: avg_sps: ([0-9.]+), e2e_time: ([0-9.]+), avg_inference_time: ([0-9.]+), "
    r"avg_preprocess_time: ([0-9.]+), avg_postprocess: ([0-9.]+)"
)


def report(**changes: Any) -> Report:
    values: dict[str, Any] = {
        "metric_name": "top1",
        "metric": 0.98611111,
        "samples": 360,
        "steps": 6,
        "e2e_time": 0.4431,
        "avg_sps": 812.44,
        "avg_inference_time": 0.012,
        "avg_preprocess_time": 0.003,
        "avg_postprocess": 0.0001,
    }
    return Report(**(values | changes))


def test_closing_lines() -> None:
    first, second = report().closing_lines()
    assert first == "eval_metric 0.986111"
    assert SUMMARY.fullmatch(second).groups() == ("812.4", "0.4431", "0.012000", "0.003000", "0.000100")


@pytest.mark.parametrize("value", [0.0, 1.0, 1e-5, 2e-6, 1e-9, 1 / 3, np.float64(0.5), np.float32(0.25), 1])
def test_the_metric_is_never_written_with_an_exponent(value: float) -> None:
    line = report(metric=value).closing_lines()[0]
    assert float(METRIC.fullmatch(line).group(1)) == pytest.approx(float(value), abs=5e-7)


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 123456.789])
def test_times_are_never_written_with_an_exponent(seconds: float) -> None:
    changed = report(e2e_time=seconds, avg_sps=seconds, avg_inference_time=seconds, avg_postprocess=seconds)
    assert SUMMARY.fullmatch(changed.closing_lines()[1])


def test_to_dict(tmp_path: Path) -> None:
    full = report(failures=[Failure("a.png", "empty")], nan_inputs=["b"], simulated=True, finished=False)
    path = tmp_path / "r.json"
    write_json(full.to_dict(target="sdaa"), path)
    data = json.loads(path.read_text())
    assert data.keys() == {
        *("warning_counts", "hints", "data_warnings"),
        *("schema_version", "kind", "target", "metric_name", "metric", "samples", "steps", "e2e_time", "avg_sps"),
        *("avg_inference_time", "avg_preprocess_time", "avg_postprocess", "engine", "simulated", "failures"),
        *(
            "wait_time",
            "wait_engine_time",
            "postprocess_time",
            "busy",
            "core_share",
            "disk_bytes",
            "bottleneck",
            "resumed_steps",
        ),
        *("higher_is_better", "secondary", "per_class", "figures", "task", "metric_definition"),
        *("processes", "recomputed", "nan_inputs", "nan_outputs", "device", "int8", "finished", "environment"),
    }
    assert (data["schema_version"], data["kind"]) == (SCHEMA_VERSION, "evaluation")
    assert data["failures"] == [{"name": "a.png", "reason": "empty"}]
    assert environment()["environment"].keys() == {"python", "numpy", "machine", "cores"}
    assert path.stat().st_mode & 0o777 == 0o644


def test_json_has_only_json_values(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    odd = {
        "nan": float("nan"),
        "inf": np.float32("inf"),
        "int": np.int64(3),
        "array": np.array([1.5, np.nan]),
        "path": Path("x/y"),
        "tuple": (True, None),
        "text": "数字",
        1: 2,
    }
    write_json(odd, path)  # type: ignore[arg-type]
    text = path.read_text(encoding="utf-8")
    assert "数字" in text
    assert json.loads(text, parse_constant=pytest.fail) == {
        "nan": None,
        "inf": None,
        "int": 3,
        "array": [1.5, None],
        "path": "x/y",
        "tuple": [True, None],
        "text": "数字",
        "1": 2,
    }


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone.r\.json.*No such file"):
        write_json({}, tmp_path / "gone" / "r.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="Is a directory"):
        write_json({}, tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]  # no half-written file stays behind


def test_a_failed_write_leaves_the_old_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.json"
    write_json({"old": 1}, path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ConfigError, match="No space left"):
        write_json({"new": 1}, path)
    assert json.loads(path.read_text()) == {"old": 1}
    assert len(list(tmp_path.iterdir())) == 1


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    names = ["b\udcff.png", "a\nb\x1b[31m\u202e.png", "\U0001f600"]
    write_json({"names": names}, tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_bytes().decode("utf-8")) == {"names": names}


def test_former_names_of_fields() -> None:
    found = report(warning_counts={"truncated": 2}, data_warnings=["2 texts were cut"])
    with pytest.warns(FutureWarning, match=r"Report\.counts.*warning_counts"):
        assert found.counts == {"truncated": 2}
    with pytest.warns(FutureWarning, match=r"Report\.remarks.*data_warnings"):
        assert found.remarks == ["2 texts were cut"]
    assert found.warnings == ["2 texts were cut"]
