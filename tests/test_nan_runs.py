"""Scripts on a card that returns NaN: all such samples are counted and listed, and the exit code is 1."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import DIGITS, ROOT, RunPython

from utils.datasets import load_dataset
from utils.pipeline import answers
from utils.pipeline.resume.records import SampleRecords, find_records
from utils.pipeline.valid import main
from utils.tasks.base import Task
from utils.tasks.classification.task import Classification
from utils.tasks.prepared import Prepared

FAULTS = "TECO_SIM_FAULTS"
ALL = "; ".join(f"nan:spa={spa},step=1" for spa in range(4))
BATCH, SHARD = 64, 16
WHERE = {"ckpt": DIGITS / "digits_dyn.onnx", "data_path": DIGITS / "data" / "val"}
ROOT_MAY = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # as in a container

Run = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(scope="module")
def names() -> list[str]:
    """Return the names of all samples, in their order."""
    return [name for batch in load_dataset(WHERE["data_path"]).batches(BATCH) for name in batch.names]


@pytest.fixture
def valid(tmp_path: Path) -> Run:
    """Return a function that runs the digits' valid script here and gives exit code and JSON."""

    def run(*argv: object, task: type[Task] = Classification, **given: Any) -> tuple[int, dict[str, Any]]:
        words = [*map(str, argv), "--json", str(tmp_path / "result.json")]
        code = main(None, task, argv=words, batch_size=BATCH, input_size=32, **{**WHERE, **given})
        return code, json.loads((tmp_path / "result.json").read_text())

    return run


def records(folder: Path) -> dict[str, float | None]:
    found = find_records(folder / "result.json")
    assert found is not None
    return {row.name: row.value for row in SampleRecords(found)}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float | None]:
    """Return the records of a run without faults."""
    folder = tmp_path_factory.mktemp("healthy")
    words = ["--json", str(folder / "result.json")]
    assert main(None, Classification, argv=words, batch_size=BATCH, input_size=32, **WHERE) == 0
    return records(folder)


@pytest.mark.parametrize("spa", [0, 1, 2, 3, None])
def test_card_returns_nan(
    valid: Run,
    names: list[str],
    healthy: dict[str, float | None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    spa: int | None,
) -> None:
    monkeypatch.setenv(FAULTS, ALL if spa is None else f"nan:spa={spa},step=1")
    code, data = valid()
    out, err = capsys.readouterr()
    lost = names[BATCH : 2 * BATCH] if spa is None else names[BATCH + SHARD * spa : BATCH + SHARD * (spa + 1)]
    assert (code, data["nan_outputs"], data["nan_inputs"], data["failures"]) == (1, lost, [], [])
    assert err.splitlines()[-1].startswith(f"{len(lost)} of 360 samples have NaN in the model's output ({lost[0]}, ")
    assert [line.split()[0] for line in out.splitlines()][-2:] == ["eval_metric", "summary:"]
    kept = records(tmp_path)
    assert {name: value for name, value in kept.items() if name not in lost} == {
        name: value for name, value in healthy.items() if name not in lost
    }
    assert not any(kept[name] for name in lost)  # wrong, not left out
    assert data["metric"] == sum(value or 0 for value in kept.values()) / 360


@pytest.mark.parametrize("after", [1, 2, 3])
def test_resumed_after_the_fault(
    valid: Run, names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setenv(FAULTS, ALL)
    whole = valid()
    monkeypatch.setenv("TECO_INFER_PIPELINES_MAX_STEPS", str(after))
    valid("--resume", tmp_path / "journal")
    monkeypatch.delenv("TECO_INFER_PIPELINES_MAX_STEPS")
    if after > 1:  # another card goes on, and is healthy
        monkeypatch.delenv(FAULTS)
    else:
        monkeypatch.setenv(FAULTS, ALL.replace("step=1", "step=0"))
    code, data = valid("--resume", tmp_path / "journal")
    assert (code, data["resumed_steps"]) == (1, after)
    for key in ("nan_outputs", "metric", "samples", "steps"):
        assert data[key] == whole[1][key]
    assert data["nan_outputs"] == names[BATCH : 2 * BATCH]


class Stacked(Classification):
    """Arrays are passed unchanged."""

    def prepare(self, samples: Sequence[Any], *, out: Any = None) -> Prepared:
        return Prepared([np.stack(samples)])


def test_nan_in_the_input_fails(
    valid: Run, tmp_path: Path, save_onnx: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = np.random.default_rng(0).random((6, 3, 32, 32)).astype(np.float32)
    rows[4, 0, 0, 0] = np.nan
    np.savez(tmp_path / "data.npz", images=rows, labels=np.zeros(6, np.int64))
    path = save_onnx("g (float[N,3,32,32] x) => (float[N,3] y) { y = ReduceMean<axes=[2,3],keepdims=0>(x) }")
    code, data = valid("--target", "onnx", task=Stacked, ckpt=path, data_path=tmp_path / "data.npz")
    assert (code, data["nan_inputs"], data["nan_outputs"]) == (1, *[[f"{tmp_path}/data.npz[4]"]] * 2)
    assert capsys.readouterr().err.splitlines()[-1].endswith("it comes from NaN in their input")


def test_the_exact_run_of_a_comparison(
    valid: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(FAULTS, "nan:spa=0,step=1")
    code, data = valid("--decode", "fused", "--max_drop", 0.5)
    assert code == 1
    assert len(data["nan_outputs"]) == len(data["comparison"]["exact_nan_outputs"]) == SHARD
    assert "the exact run" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------------- single and multi


@pytest.fixture
def shown(tmp_path: Path) -> Run:
    def run(script: str, *argv: object, task: type[Task] = Classification, **given: Any) -> tuple[int, dict[str, Any]]:
        words = [*map(str, argv), "--json", str(tmp_path / "shown.json")]
        defaults = {"ckpt": WHERE["ckpt"], "batch_size": 8, "input_size": 32} | given
        code = answers.main(None, task, script, argv=words, **defaults)
        return code, json.loads((tmp_path / "shown.json").read_text())

    return run


def test_single_sample_without_a_result(
    shown: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    image = DIGITS / "data" / "val" / "7" / "0081.png"
    monkeypatch.setenv(FAULTS, "nan:spa=0,step=0")
    code, data = shown("single", "--save", tmp_path / "drawn", data_path=image, batch_size=1)
    out, err = capsys.readouterr()
    assert code == 1
    assert "0081.png  no answer: NaN in the model's output" in out.splitlines()
    assert "nan" not in out.replace("NaN", "")
    assert err.startswith("1 of 1 samples have NaN in the model's output")
    assert data["answers"] == [{"name": str(image), "answer": None, "nan_output": True}]
    assert data["nan_outputs"] == [str(image)]
    assert [path.name for path in (tmp_path / "drawn").iterdir()] == ["0081.png"]


def test_some_samples_without_results(
    shown: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = DIGITS / "data" / "val" / "7"
    monkeypatch.setenv(FAULTS, "nan:spa=1,step=1")
    code, data = shown("multi", data_path=folder)
    out = capsys.readouterr().out
    every = [answer["name"] for answer in data["answers"]]
    lost = every[10:12]  # of the second eight, SPA 1 has the third and the fourth
    assert (code, data["nan_outputs"]) == (1, lost)
    assert [answer["name"] for answer in data["answers"] if answer["answer"] is None] == lost
    assert out.count("no answer") == 2
    assert f"{len(every)} samples, 2 with NaN in the output, in " in out.splitlines()[-1]


def test_raw_outputs_are_marked(shown: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAULTS, "nan:spa=0,step=0")
    code, data = shown("multi", "--skip_postprocess", data_path=DIGITS / "data" / "val" / "7")
    assert (code, len(data["nan_outputs"])) == (1, 2)
    assert data["answers"][0]["nan_output"]
    assert data["answers"][0]["answer"]["outputs"][0]["shape"] == [10]
    assert "nan_output" not in data["answers"][2]


# ---------------------------------------------------------------------------------------------------- several processes


def sharded(names: list[str], count: int) -> list[str]:
    """Return which samples are lost where SPA 0 of every process's card gives NaN in its second step, in any order."""
    shares = [names[rank::count] for rank in range(count)]
    return sorted(name for share in shares for name in share[BATCH : BATCH + SHARD])


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed (Debian: openmpi-bin)")
@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason='mpi4py is not installed (".[mpi]")')
def test_mpirun_adds_them_up(names: list[str], tmp_path: Path) -> None:
    settings = {FAULTS: "nan:spa=0,step=1", "TECO_SIM_CARDS": "2", "PYTHONPATH": str(ROOT)}
    words = [DIGITS / "example_valid.py", "--json", tmp_path / "result.json"]
    done = subprocess.run(
        [shutil.which("mpirun") or "", "--oversubscribe", "-n", "2", sys.executable, *map(str, words)],
        env={**os.environ, **ROOT_MAY, **settings},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    data = json.loads((tmp_path / "result.json").read_text())
    assert done.returncode == 1
    assert sorted(data["nan_outputs"]) == sharded(names, 2)
    assert f"{2 * SHARD} of 360 samples have NaN in the model's output" in done.stderr
    assert "eval_metric" in done.stdout


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason='Ray is not installed (".[ray]")')
def test_ray_adds_them_up(names: list[str], tmp_path: Path, run_python: RunPython) -> None:
    words = ["--launcher", "ray", "--num_workers", 2, "--json", tmp_path / "result.json"]
    settings = {FAULTS: "nan:spa=0,step=1", "TECO_SIM_CARDS": "2", "RAY_USAGE_STATS_ENABLED": "0"}
    done = run_python(DIGITS / "example_valid.py", *words, **settings)
    data = json.loads((tmp_path / "result.json").read_text())
    assert done.returncode == 1, done.stderr
    assert sorted(data["nan_outputs"]) == sharded(names, 2)
