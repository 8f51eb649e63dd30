"""``from tecoinfer_modelzoo import evaluate, predict, open_engine, models``: calls that return, again and again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import DIGITS, RunPython

import tecoinfer_modelzoo
from engine import ConfigError, EngineSpec
from tecoinfer_modelzoo import evaluate, models, open_engine, predict
from utils.tasks.classification.task import CLASSIFICATION

CKPT, VAL = DIGITS / "digits_dyn.onnx", DIGITS / "data" / "val"


def test_evaluating_a_model_of_the_zoo_twice(capfd: pytest.CaptureFixture[str]) -> None:
    first, second = (evaluate("digits", target=target, limit=80) for target in ("onnx", "sdaa"))
    assert (first.metric_name, first.samples, first.finished) == ("top1", 80, True)
    assert first.metric == second.metric == 1.0
    assert second.simulated
    assert first.warnings == []
    assert capfd.readouterr() == ("", "")


def test_the_whole_data_set_has_the_scripts_metric() -> None:
    assert evaluate("digits").metric == pytest.approx(358 / 360)


def test_a_task_with_another_model() -> None:
    report = evaluate(CLASSIFICATION, ckpt=CKPT, data=VAL, input_size=32, batch_size=64, limit=40, topk=3)
    assert (report.metric_name, report.samples) == ("top3", 40)


def test_the_json_has_model_and_target() -> None:
    data = json.loads(evaluate("digits", target="null", limit=8).to_json())
    assert data["schema_version"] == 2
    assert (data["target"], data["task"], data["samples"]) == ("null", "classification", 8)
    assert Path(data["model"]) == CKPT
    assert "about" not in data


def test_answers_of_files_and_their_rendering(tmp_path: Path) -> None:
    files = sorted((VAL / "7").iterdir())[:2]
    found = predict("digits", [*files, tmp_path / "none.png"], target="sdaa")
    assert [one.name for one in found] == [str(file) for file in files]
    assert [one.answer[0]["label"] for one in found] == ["7", "7"]
    assert [failure.name for failure in found.failures] == [str(tmp_path / "none.png")]
    assert found[0].save(tmp_path / "drawn").stat().st_size > 0
    assert [one.answer[0]["label"] for one in predict("digits", files[0])] == ["7"]


def test_samples_of_flags() -> None:
    (found,) = predict("language_id", text=["the weather was very nice and the children played outside"])
    assert found.answer[0]["label"] == "English"
    with pytest.raises(ConfigError):
        found.save("somewhere")


def test_the_models_of_the_zoo() -> None:
    names = [model.name for model in models()]
    assert len(names) == len(set(names))
    assert {"digits", "bert_qa", "silero_vad"} <= set(names)


def test_an_engine() -> None:
    with open_engine("sdaa", EngineSpec(CKPT, batch_size=8, dtype="float32")) as engine:
        assert np.asarray(engine(np.zeros((8, 3, 32, 32), np.float32))).shape == (8, 10)


@pytest.mark.parametrize(
    ("model", "flags"),
    [
        ("digit", {}),
        (3, {}),
        ("digits", {"worker_mode": "fork"}),
        ("digits", {"nothing_like_it": 1}),
        ("digits", {"batch_size": 0}),
        ("digits", {"json": "report.json"}),
        ("digits", {"verbose": True}),
        ("digits", {"shard_tables": "perhaps"}),
        ("digits", {"topk": "many"}),
        ("digits", {"target": "nowhere"}),
        ("digits", {"ckpt": "nowhere.onnx"}),
    ],
)
def test_invalid_values_give_one_error(model: Any, flags: dict[str, Any]) -> None:
    from engine import TecoInferError

    with pytest.raises(TecoInferError) as caught:
        evaluate(model, **flags)
    assert "\n" not in str(caught.value)


def test_the_module_is_imported_on_first_use(run_python: RunPython) -> None:
    code = (
        "import sys, tecoinfer_modelzoo\n"
        "assert not {'engine', 'utils', 'toolkit', 'numpy'} & set(sys.modules)\n"
        "tecoinfer_modelzoo.evaluate\n"
        "print('toolkit.api' in sys.modules)"
    )
    done = run_python("-W", "error", "-c", code)
    assert (done.stdout, done.stderr) == ("True\n", "")
    assert set(tecoinfer_modelzoo.FACE) <= set(dir(tecoinfer_modelzoo))
    with pytest.raises(AttributeError):
        tecoinfer_modelzoo.nothing_like_it  # noqa: B018


def test_the_metric_of_a_part_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TECO_INFER_PIPELINES_MAX_STEPS", "1")
    report = evaluate("digits", batch_size=8)
    assert (report.samples, report.finished) == (8, False)
    assert any("TECO_INFER_PIPELINES_MAX_STEPS" in line for line in report.warnings)


def test_one_of_several_processes_has_no_metric_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="mpirun"):
        evaluate("digits")
