"""Tasks in ``contrib/utils/tasks`` unknown to the core, run in every way without core changes."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import ROOT, RunPython

from model_config.judge.gate import judge, read_pairs
from model_config.results import Accuracy, Verdict
from utils.metrics.definition import metric_from_json

pytestmark = pytest.mark.slow

DIMS = ("--dim", "left_length=4,16", "right_length=4,16")


def lines_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "pairs.jsonl").read_text().splitlines()]


def expected_rate(folder: Path, wrong: float = 0.12) -> float:
    """Compute the metric by hand."""
    errors = total = 0.0
    for row in lines_of(folder):
        for side in ("left", "right"):
            true = row["counts"][side]
            errors += abs(np.rint(np.float64(true * (1 + wrong))) - true)
            total += true
    return errors / total


def run(run_python: RunPython, folder: Path, script: str, *words: object, code: int = 0, **env: str) -> str:
    done = run_python(folder / script, *words, cwd=folder, **env)
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout + done.stderr


def valid(run_python: RunPython, folder: Path, *words: object, **how: Any) -> dict[str, Any]:
    """Run a valid script and return its JSON."""
    result = folder / f"result{os.urandom(4).hex()}.json"
    out = run(run_python, folder, "example_valid.py", *words, "--json", result, **how)
    found: dict[str, Any] = json.loads(result.read_text())
    last = out.strip().splitlines()
    assert any(line.startswith("eval_metric ") for line in last)
    return {**found, "output": out, "path": result}


@pytest.mark.parametrize("target", ["onnx", "cpu"])
def test_pairs_are_evaluated(run_python: RunPython, pairs: Path, target: str) -> None:
    found = valid(run_python, pairs, "--target", target, "--verbose")
    assert found["metric"] == pytest.approx(expected_rate(pairs), abs=1e-9)
    assert (found["metric_name"], found["higher_is_better"], found["samples"]) == ("count_error_rate", False, 60)
    assert found["task"] == "counted_pairs"
    assert found["figures"] == {"calls": 8.0}
    assert found["metric_definition"]["class"] == "utils.tasks.counted_pairs:CountErrorRate"


def test_pairs_on_the_card_report_missing_sizes(run_python: RunPython, pairs: Path) -> None:
    out = run(run_python, pairs, "example_valid.py", "--target", "sdaa", code=2)
    assert "Traceback" not in out
    assert "left_length" in out
    assert "--dim" in out
    found = valid(run_python, pairs, "--target", "sdaa", *DIMS)
    assert found["metric"] == pytest.approx(expected_rate(pairs), abs=1e-9)
    assert found["simulated"] is True


def test_a_sample_longer_than_every_plan_is_left_out_by_name(run_python: RunPython, pairs: Path) -> None:
    words = ("--target", "sdaa", "--dim", "left_length=6", "right_length=16")
    result = pairs / "short.json"
    out = run(run_python, pairs, "example_valid.py", *words, "--json", result, code=1)
    found = json.loads(result.read_text())
    longer = [i for i, row in enumerate(lines_of(pairs), 1) if len(row["left"]) > 6]
    assert found["samples"] == 60 - len(longer)
    assert [failure["name"] for failure in found["failures"]] == [f"pairs.jsonl:{i}" for i in longer]
    assert "left_length" in out


def test_invalid_samples_are_listed_and_skipped(run_python: RunPython, pairs: Path, tmp_path: Path) -> None:
    rows = lines_of(pairs)
    rows[5]["left"] = [-3]
    data = tmp_path / "bad.jsonl"
    data.write_text("\n".join(map(json.dumps, rows)))
    out = run(run_python, pairs, "example_valid.py", "--target", "onnx", "--data_path", data, code=1)
    assert "bad.jsonl:6: -3 is not a token" in out
    out = run(run_python, pairs, "example_multi_batch.py", "--target", "onnx", "--data_path", data, code=1)
    assert "59 samples, 1 could not be run" in out


def test_pairs_one_and_many(run_python: RunPython, pairs: Path, tmp_path: Path) -> None:
    out = run(run_python, pairs, "example_single_batch.py", "--target", "onnx", "--batch_size", "1")
    row = lines_of(pairs)[0]
    wanted = [int(np.rint(row["counts"][side] * 1.12)) for side in ("left", "right")]
    assert f"pairs.jsonl:1  {wanted[0]} and {wanted[1]}" in out
    result = tmp_path / "many.json"
    out = run(run_python, pairs, "example_multi_batch.py", "--target", "onnx", "--json", result, "--gain", "2")
    assert "60 samples in" in out
    answers = json.loads(result.read_text())["answers"]
    assert len(answers) == 60
    assert answers[0]["answer"] == {
        "left": np.rint(row["counts"]["left"] * 2.24),
        "right": pytest.approx(np.rint(row["counts"]["right"] * 2.24)),
    }


def test_help_shows_the_flags_of_a_script(run_python: RunPython, pairs: Path) -> None:
    shown = {name: run(run_python, pairs, f"example_{name}.py", "--help") for name in ("valid", "single_batch")}
    for text in shown.values():
        assert "--gain" in text
        assert "(default: None)" not in text
        assert "--topk" not in text
    for flag in ("--resume", "--launcher", "--max_drop", "--calib", "--streams"):
        assert flag in shown["valid"]
        assert flag not in shown["single_batch"]


def test_wrong_flags_are_one_line(run_python: RunPython, pairs: Path) -> None:
    for words, said in (
        (["--gain", "-1"], "--gain -1.0 must be above 0"),
        (["--dim", "left_length"], "--dim 'left_length' is not NAME=SIZE"),
        (["--target", "sdaa", "--dim", "length=16"], "length"),
        (["--ckpt", "a=x.onnx", "b=y.onnx"], "takes one model"),
        (["--target", "onnx", "--data_path", "nowhere.jsonl"], "nowhere.jsonl"),
    ):
        out = run(run_python, pairs, "example_valid.py", *words, code=2)
        assert said in out
        assert "Traceback" not in out


def records_of(found: dict[str, Any]) -> dict[str, np.ndarray]:
    path = found["path"].with_name(found["records"])
    assert path.suffix == ".npz"
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def same_records(one: dict[str, Any], other: dict[str, Any]) -> None:
    mine, theirs = records_of(one), records_of(other)
    assert mine.keys() == theirs.keys()
    for name, array in mine.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


def test_interrupted_run_continues(run_python: RunPython, pairs: Path, tmp_path: Path) -> None:
    whole = valid(run_python, pairs, "--target", "onnx")
    first = valid(
        run_python, pairs, "--target", "onnx", "--resume", tmp_path / "kept", TECO_INFER_PIPELINES_MAX_STEPS="3"
    )
    assert first["samples"] == 24
    rest = valid(run_python, pairs, "--target", "onnx", "--resume", tmp_path / "kept")
    assert rest["resumed_steps"] == 3
    assert rest["metric"] == whole["metric"]
    same_records(rest, whole)
    out = run(
        run_python, pairs, "example_valid.py", "--target", "onnx", "--resume", tmp_path / "kept", "--gain", "2", code=2
    )
    assert "gain is 1.0 there and 2.0 here" in out


@pytest.mark.parametrize("mode", ["thread", "process"])
def test_place_of_preprocessing_does_not_change_results(run_python: RunPython, pairs: Path, mode: str) -> None:
    found = valid(run_python, pairs, "--target", "onnx", "--worker_mode", mode, "--workers", "2", "--streams", "2")
    plain = valid(run_python, pairs, "--target", "onnx", "--workers", "0")
    assert found["metric"] == plain["metric"]
    same_records(found, plain)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed (Debian: openmpi-bin)")
@pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason='mpi4py is not installed (".[mpi]")')
def test_pairs_in_several_processes(run_python: RunPython, pairs: Path) -> None:
    whole = valid(run_python, pairs, "--target", "onnx")
    result = pairs / "mpi.json"
    command = ["mpirun", "--oversubscribe", "-n", "3", sys.executable, pairs / "example_valid.py", "--json", result]
    root_may = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        [*command, "--target", "onnx"],
        env={**os.environ, **root_may, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = {**json.loads(result.read_text()), "path": result}
    assert found["metric"] == whole["metric"]
    assert found["processes"] == 3
    same_records(found, whole)


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason='Ray is not installed (".[ray]")')
def test_pairs_on_ray(run_python: RunPython, pairs: Path) -> None:
    whole = valid(run_python, pairs, "--target", "onnx")
    found = valid(run_python, pairs, "--target", "onnx", "--launcher", "ray", "--num_workers", "2")
    assert found["metric"] == whole["metric"]
    same_records(found, whole)


def test_int8_with_a_higher_error_rate_is_rejected(run_python: RunPython, pairs: Path, tmp_path: Path) -> None:
    """int8 changes the error rate; the direction of the metric decides whether that is accepted."""
    words = ("--target", "cpu", "--dtype", "int8", "--calib", "16")
    result = tmp_path / "int8.json"
    done = run_python(pairs / "example_valid.py", *words, "--json", result, "--max_drop", "0", cwd=pairs)
    assert done.returncode in (0, 3), done.stderr
    found = json.loads(result.read_text())
    comparison = found["comparison"]
    assert comparison["accepted"] == (comparison["metric"] <= comparison["exact_metric"])
    assert (done.returncode == 0) == comparison["accepted"]
    assert "--dtype int8 against exact: count_error_rate" in done.stdout


def judged(ours: dict[str, Any], theirs: dict[str, Any], root: Path) -> Accuracy:
    """Compare two runs by their JSON results and files, as the check does."""
    metric = metric_from_json(ours["metric_definition"], root)
    records = read_pairs(*(found["path"].with_name(found["records"]) for found in (ours, theirs)))
    return judge(records, ours["metric"], theirs["metric"], metric_of=metric)


def test_gate_uses_the_metric_of_the_task(run_python: RunPython, pairs: Path) -> None:
    """Two runs of the task, one with the model's counts scaled: the gate uses the ratio, its direction and units."""
    good, same = (valid(run_python, pairs, "--target", target) for target in ("onnx", "cpu"))
    bad = valid(run_python, pairs, "--target", "onnx", "--gain", "1.5")
    equal = judged(same, good, pairs.parents[3])
    assert equal.verdict in (Verdict.PASS, Verdict.INCONCLUSIVE)
    assert equal.relative_difference == 0
    worse = judged(bad, good, pairs.parents[3])
    assert worse.verdict is Verdict.FAIL
    assert worse.metric_name == "count_error_rate"


def test_a_state_is_carried_through_the_calls(run_python: RunPython, streamed: Path) -> None:
    exact = valid(run_python, streamed, "--target", "onnx")
    assert exact["metric"] < 1e-6
    assert (exact["metric_name"], exact["higher_is_better"]) == ("end_error", False)
    assert exact["figures"]["chunks"] > exact["steps"]
    card = valid(run_python, streamed, "--target", "sdaa", "--dtype", "float32")
    assert card["metric"] < 1e-6
    assert card["figures"] == exact["figures"]
    assert "ms per call" in card["output"]
    calls, device = card["figures"]["chunks"], card["device"]
    # every step of 8 samples has about 4 calls; samples per second are of the data set, not of calls
    assert device["simulated_sps"] == pytest.approx(30 / (calls * device["simulated_latency"]), rel=0.5)
    half = valid(run_python, streamed, "--target", "sdaa")
    assert 1e-6 < half["metric"] < 5e-3
    one = run(run_python, streamed, "example_single_batch.py", "--target", "sdaa", "--batch_size", "1")
    answer, figures = [line for line in one.splitlines() if not line.startswith("deprecated")][-2:]
    assert len(answer.split()) >= 5
    assert figures.startswith("figures: chunks")


def test_a_stream_resumes(run_python: RunPython, streamed: Path, tmp_path: Path) -> None:
    whole = valid(run_python, streamed, "--target", "onnx")
    words = ("--target", "onnx", "--resume", tmp_path / "kept")
    valid(run_python, streamed, *words, TECO_INFER_PIPELINES_MAX_STEPS="2")
    assert valid(run_python, streamed, *words)["metric"] == whole["metric"]


def test_episodes_need_no_data(run_python: RunPython, episodes: Path, tmp_path: Path) -> None:
    starts = [np.random.default_rng(seed).uniform(-1, 1, 2) for seed in range(20)]
    returns = [-np.abs(start).sum() * sum(0.5**step for step in range(1, 6)) for start in starts]
    found = valid(run_python, episodes, "--target", "onnx", "--episodes", "20", "--resume", tmp_path / "kept")
    assert found["metric"] == pytest.approx(np.mean(returns), abs=1e-6)
    assert (found["data"], found["metric_name"]) == ("", "mean_return")
    assert found["figures"]["steps_per_s"] > 0
    card = valid(run_python, episodes, "--target", "sdaa", "--episodes", "20")
    assert card["metric"] == pytest.approx(np.mean(returns), abs=1e-2)
    out = run(run_python, episodes, "example_single_batch.py", "--target", "onnx", "--episodes", "1")
    assert f"seed 0  {returns[0]:.3f}" in out
    words = ("--target", "cpu", "--dtype", "int8", "--calib", "8", "--max_drop", "0.5")
    assert valid(run_python, episodes, *words)["comparison"]["accepted"]


def test_two_models_compute_one_result(run_python: RunPython, two_models: Path) -> None:
    for target in ("onnx", "sdaa", "cpu"):
        found = valid(run_python, two_models, "--target", target)
        assert found["metric"] == 0.9  # four of forty labels are wrong on purpose
        assert found["model"].keys() == {"find", "read"}
    out = run(run_python, two_models, "example_valid.py", "--target", "sdaa")
    assert "model find" in out
    assert "model read" in out


def test_models_are_given_by_name(run_python: RunPython, two_models: Path) -> None:
    given = ("--ckpt", f"read={two_models / 'read.onnx'}", f"find={two_models / 'find.onnx'}", "--target", "onnx")
    assert valid(run_python, two_models, *given)["metric"] == 0.9
    out = run(run_python, two_models, "example_valid.py", "--ckpt", "read.onnx", code=2)
    assert "find=FILE read=FILE" in out
    out = run(run_python, two_models, "example_single_batch.py", "--target", "onnx", "--batch_size", "1")
    assert "kind" in out


def test_two_models_are_calibrated_by_their_own_inputs(run_python: RunPython, two_models: Path) -> None:
    found = valid(run_python, two_models, "--target", "cpu", "--dtype", "int8", "--calib", "24", "--max_drop", "0.2")
    assert found["metric"] >= 0.8
    assert found["comparison"]["exact_metric"] == 0.9
