"""Each domain on a card that gives NaN: its samples are named, the others' answers stay what they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from constructed_models import NAME, options, written
from support import made

from engine import ConfigError
from utils.pipeline import answers, valid
from utils.tasks.base import Task
from utils.tasks.find import tasks

BATCH, SHARD = 16, 4
DOMAINS = {
    "ctr_prediction": "val.csv",
    "dense_regression": "",
    "detection": "val.json",
    "face_detection": "",
    "graph_prediction": "val.npz",
    "policy_rollout": "recorded.npz",
    "segmentation": "",
    "sound_classification": "val",
    "speech_recognition": "recordings.jsonl",
    "text_classification": "val.tsv",
    "text_generation": "val.txt",
    "text_recognition": "rec_gt.txt",
    "token_classification": "val.conll",
    "voice_activity": "val.jsonl",
}


@pytest.fixture(scope="module", params=DOMAINS)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[type[Task], Path, Path]:
    """Return a task, a folder with its constructed model, and data."""
    task = tasks()[request.param]
    folder = written(task, tmp_path_factory.mktemp(request.param))
    return task, folder / f"{NAME}_dyn.onnx", folder / "data" / DOMAINS[request.param]


def run(script: str, tiny: tuple[type[Task], Path, Path], folder: Path, *argv: str) -> tuple[int, dict[str, Any]]:
    task, ckpt, data = tiny
    words = [*argv, "--json", str(folder / "result.json")]
    words += ["--dim", "seq=64"] if task.name in ("text_classification", "token_classification") else []
    where: dict[str, Any] = {"argv": words, "ckpt": ckpt, "data_path": data, "batch_size": BATCH}
    code = valid.main(None, task, **where) if script == "valid" else answers.main(None, task, script, **where)
    return code, json.loads((folder / "result.json").read_text())


@pytest.mark.long
@pytest.mark.slow
def test_a_data_set(tiny: tuple[type[Task], Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, healthy = run("valid", tiny, tmp_path)
    assert (code, healthy["nan_outputs"]) == (0, [])
    monkeypatch.setenv("TECO_SIM_FAULTS", "nan:spa=1,step=0; nan:spa=3,step=0")
    code, data = run("valid", tiny, tmp_path)
    dataset = made(tiny[0], options(tiny[0], batch_size=BATCH, models={"model": tiny[1]})).load({"data": tiny[2]})
    names = [name for batch in dataset.batches(BATCH) for name in batch.names]
    assert (code, data["nan_outputs"]) == (1, names[SHARD : 2 * SHARD] + names[3 * SHARD : 4 * SHARD])
    assert data["samples"] == healthy["samples"]
    found, before = data["metric"], healthy["metric"]
    assert found is None or (found < before if healthy["higher_is_better"] else found > before)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("script", ["single", "multi"])
def test_answers(
    tiny: tuple[type[Task], Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    script: str,
) -> None:
    monkeypatch.setenv("TECO_SIM_FAULTS", "nan:spa=2,step=0")
    code, data = run(script, tiny, tmp_path)
    lost = [answer["name"] for answer in data["answers"]][2 * SHARD : 3 * SHARD]
    assert (code, data["nan_outputs"]) == (1, lost)
    assert [answer["name"] for answer in data["answers"] if answer["answer"] is None] == lost
    out = capsys.readouterr().out
    assert out.count("no answer: NaN in the model's output") == len(lost) == SHARD
    assert "nan" not in out.lower().replace("nan in the", "")


@pytest.mark.parametrize("topk", ["2", "11"])
def test_trivial_metric_is_rejected(tiny: tuple[type[Task], Path, Path], tmp_path: Path, topk: str) -> None:
    if tiny[0].name != "text_classification":
        pytest.skip("has no --topk")
    with pytest.raises(ConfigError, match=rf"^--topk {topk}: .*2 classes, .*use 1$"):
        run("valid", tiny, tmp_path, "--topk", topk)
