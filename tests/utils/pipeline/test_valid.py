"""The valid scripts' way from flags to exit code, with a faster mode beside the exact one."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from support import DIGITS, ROOT, RunPython

from engine import ConfigError, EngineError, ModelError
from utils.pipeline import valid as runs
from utils.pipeline.flags.options import Options
from utils.pipeline.report.report import SCHEMA_VERSION, Report
from utils.pipeline.valid import DROPPED, evaluate_task, main
from utils.tasks.base import Task
from utils.tasks.classification.task import CLASSIFICATION

LINE = re.compile(
    r"(?P<mode>--.+) against exact: top1 (?P<metric>[\d.]+) against (?P<exact>[\d.]+) "
    r"\((?P<change>[+-][\d.]+) % relative\), (?P<speed>[\d.]+ times the samples/s|speeds not comparable)"
    r"(?: \(runs under 1 s, which say little of speed\))?"
    r"(?:; (?P<risk>\d+) of \d+ samples at risk \(margin within [\d.e-]+\))?"
)

Valid = Callable[..., tuple[int, dict[str, Any]]]


def compared(out: str) -> re.Match[str] | None:
    """Return the line that compares two runs; one that calls the mode slower may follow, which the machine decides."""
    return next(filter(None, map(LINE.fullmatch, out.splitlines()[-2:])), None)


def started(*argv: object) -> int:
    words = list(map(str, argv))
    where = {"ckpt": DIGITS / "digits_dyn.onnx", "data_path": DIGITS / "data" / "val"}
    return main(None, CLASSIFICATION, argv=words, **where, batch_size=64, input_size=32)


@pytest.fixture
def valid(tmp_path: Path) -> Valid:
    """Return a function that runs the digits' valid script here and gives exit code and JSON."""

    def run(*argv: object) -> tuple[int, dict[str, Any]]:
        code = started(*argv, "--json", tmp_path / "result.json")
        return code, json.loads((tmp_path / "result.json").read_text())

    return run


def test_samples_of_the_evaluation_are_shown(valid: Valid, tmp_path: Path) -> None:
    code, found = valid("--target", "onnx", "--show", 300, 2, "--save", tmp_path / "drawn")
    assert code == 0
    assert [Path(one["name"]).parent.name for one in found["answers"]] == [one["text"][0] for one in found["answers"]]
    assert [set(one["answer"][0]) for one in found["answers"]] == [{"label", "score"}] * 2
    files = {one["file"] for one in found["answers"]}
    assert {file.name for file in (tmp_path / "drawn").iterdir()} == files
    assert len(files) == 2


@pytest.fixture(scope="module")
def outlier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits' model with one channel of each block three thousand times as large, and divided by that again.

    In float32 it computes the same; of int8's 256 levels this channel leaves the others none.
    """
    model = onnx.load(str(DIGITS / "digits_dyn.onnx"))
    weights = {tensor.name: tensor for tensor in model.graph.initializer}

    def scale(name: str, where: Any, factor: float) -> None:
        array = numpy_helper.to_array(weights[name]).copy()
        array[where] *= factor
        weights[name].CopyFrom(numpy_helper.from_array(array, name))

    for block in range(3):
        for name in (f"blocks.{block}.first.0.weight", f"blocks.{block}.first.0.weight_bias"):
            scale(name, 0, 3e3)
        scale(f"blocks.{block}.second.0.weight", (slice(None), 0), 1 / 3e3)
    path = tmp_path_factory.mktemp("outlier") / "outlier.onnx"
    onnx.save(model, str(path))
    return path


def test_an_exact_run_makes_no_comparison(valid: Valid, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = valid("--target", "onnx")
    assert code == 0
    assert "comparison" not in data
    assert "against exact" not in capsys.readouterr().out


@pytest.mark.parametrize("decode", ["reduced", "fused"])
def test_a_faster_decode_is_compared(valid: Valid, decode: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = valid("--target", "onnx", "--decode", decode)
    out = capsys.readouterr().out
    found = compared(out)
    assert code == 0
    assert found is not None, out
    assert found["mode"] == data["comparison"]["mode"] == f"--decode {decode}"
    assert data["comparison"]["metric"] == data["metric"] == pytest.approx(float(found["metric"]), abs=1e-6)
    assert data["comparison"]["exact_metric"] == pytest.approx(float(found["exact"]), abs=1e-6)
    assert data["comparison"]["speed_ratio"] > 0
    assert data["comparison"]["at_risk"] == {"deviation": 0.0, "samples": []}  # images of the input's size
    assert out.count("eval_metric") == 1  # scripts read the metric there: it is that of the mode asked for


@pytest.mark.slow
def test_int8_is_compared(valid: Valid, capsys: pytest.CaptureFixture[str]) -> None:
    code, data = valid("--target", "cpu", "--dtype", "int8", "--calib", 16, "--decode", "fused")
    text = capsys.readouterr().out
    out, found = text.splitlines(), compared(text)
    comparison = data["comparison"]
    assert code == 0
    assert found is not None
    assert any(
        re.fullmatch(r"int8: cosine [01]\.\d{4} to float32 on 16 calibration samples, recipe full", o) for o in out
    )
    assert found["mode"] == comparison["mode"] == "--dtype int8 and --decode fused"
    assert comparison.keys() == {
        *("mode", "metric", "exact_metric", "relative_change", "higher_is_better", "speed_ratio", "max_drop"),
        *("slower", "exact_nan_outputs", "accepted", "at_risk"),
    }
    risk = comparison["at_risk"]
    assert risk["deviation"] > 0
    assert len(set(risk["samples"])) == len(risk["samples"]) == int(found["risk"])
    (agreement,) = data["int8"].values()
    assert agreement.keys() == {"cosine", "output", "samples", "recipe"}
    assert (agreement["samples"], agreement["recipe"]) == (16, "full")
    assert 0.99 < agreement["cosine"] <= 1
    change = (comparison["metric"] - comparison["exact_metric"]) / comparison["exact_metric"]
    assert comparison["relative_change"] == pytest.approx(change)
    assert float(found["change"]) == pytest.approx(100 * change, abs=0.005)
    assert (comparison["max_drop"], comparison["accepted"], data["schema_version"]) == (0.01, True, SCHEMA_VERSION)


@pytest.mark.long
@pytest.mark.slow
def test_a_drop_that_is_too_large(valid: Valid, outlier: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--target", "cpu", "--dtype", "int8", "--calib", 16, "--ckpt", outlier)
    with pytest.warns(UserWarning, match=r"int8 .*0\.\d{4} .*float32.* 16 "):
        code, data = valid(*flags)
    err = capsys.readouterr().err.splitlines()
    assert code == DROPPED == 3
    assert err[-1] == (
        "error: the metric drops by more than 1.00%; use less of --dtype int8, or allow it by --max_drop"
    )
    assert data["comparison"]["accepted"] is False
    assert data["comparison"]["exact_metric"] > 0.99
    drop = -data["comparison"]["relative_change"]
    assert drop > 0.01
    with pytest.warns(UserWarning, match="judge it by the task's metric"):
        code, data = valid(*flags, "--max_drop", drop + 1e-6)
    assert code == 0
    assert data["comparison"]["accepted"] is True
    assert "drops by more" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_cosine_that_is_too_low(outlier: Path, run_python: RunPython, tmp_path: Path) -> None:
    """The metric decides in an evaluation unless a bound is given; where answers are shown, the cosine does."""
    flags = ("--target", "cpu", "--dtype", "int8", "--ckpt", outlier)
    with pytest.raises(ModelError, match=r" 0\.\d{4} .*float32.* 16 .*0\.999;"):
        started(*flags, "--calib", 16, "--min_cosine", 0.999)
    script = DIGITS / "example_multi_batch.py"
    done = run_python(script, *flags, "--json", tmp_path / "r.json")
    assert (done.returncode, done.stdout.count("int8:")) == (2, 0)
    refused = done.stderr.strip().splitlines()[-1]
    assert re.search(
        r"^error: .*outlier\.onnx: int8 answers .* cosine 0\.\d{4} .* below 0\.99; use --dtype float32", refused
    )
    done = run_python(script, *flags, "--json", tmp_path / "r.json", "--min_cosine", "0")
    assert done.returncode == 0, done.stderr
    assert "are far from float32's: cosine 0." in done.stderr
    figure = json.loads((tmp_path / "r.json").read_text())["int8"]["model"]
    assert figure["cosine"] < 0.99
    assert re.search(r"(?m)^int8: cosine 0\.\d{4} to float32 on \d+ calibration samples, recipe", done.stdout)


@pytest.mark.parametrize("value", ["-1", "nan", "-0.001"])
def test_a_nan_bound_is_an_error(value: str) -> None:
    with pytest.raises(ConfigError, match=rf"--max_drop {value}(\.0)? "):
        started(f"--max_drop={value}")


def test_bad_samples_change_the_exit_code(valid: Valid, tmp_path: Path) -> None:
    shutil.copytree(DIGITS / "data" / "val" / "3", tmp_path / "val" / "3")
    (tmp_path / "val" / "3" / "broken.png").write_bytes(b"no image")
    code, data = valid("--target", "onnx", "--decode", "fused", "--data_path", tmp_path / "val")
    assert code == 1
    assert data["comparison"]["accepted"] is True


def test_the_result_is_kept_if_the_exact_run_fails(
    valid: Valid, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_fast(task: Task, opt: Options, **how: Any) -> Report:
        if not opt.faster:
            raise EngineError("the engine failed")
        return evaluate_task(task, opt, **how)

    monkeypatch.setattr(runs, "evaluate_task", only_fast)
    with pytest.raises(EngineError, match="the engine failed"):
        valid("--target", "onnx", "--decode", "fused")
    data = json.loads((tmp_path / "result.json").read_text())
    assert data["metric"] > 0.9
    assert "comparison" not in data
    assert f"eval_metric {data['metric']:.6f}" in capsys.readouterr().out


def test_a_run_from_the_journal_has_no_speed(valid: Valid, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        code, data = valid("--target", "onnx", "--decode", "fused", "--resume", tmp_path / "journals")
        assert code == 0
    assert data["comparison"]["speed_ratio"] is None
    assert capsys.readouterr().out.splitlines()[-1].endswith("relative), speeds not comparable")


@pytest.mark.parametrize(
    ("fast", "exact", "said", "slower"),
    [
        (10.0, 5.0, ["0.50 times the samples/s", "--decode fused made this run slower: leave it out here"], True),
        (5.0, 10.0, ["2.00 times the samples/s"], False),
        (0.5, 5.0, ["10.00 times the samples/s (runs under 1 s, which say little of speed)"], None),
        (5.0, 0.5, ["0.10 times the samples/s (runs under 1 s, which say little of speed)"], None),
    ],
)
def test_a_slower_faster_mode_is_reported(
    valid: Valid,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fast: float,
    exact: float,
    said: list[str],
    slower: bool | None,
) -> None:
    def timed(task: Task, opt: Options, **how: Any) -> Report:
        seconds = fast if opt.faster else exact
        return replace(evaluate_task(task, opt, **how), e2e_time=seconds, avg_sps=360 / seconds)

    monkeypatch.setattr(runs, "evaluate_task", timed)
    code, data = valid("--target", "onnx", "--decode", "fused")
    lines = capsys.readouterr().out.splitlines()[-len(said) :]
    assert code == 0
    assert lines[0].endswith(f"relative), {said[0]}")
    assert lines[1:] == said[1:]
    assert data["comparison"]["slower"] is slower


@pytest.mark.parametrize("exact", [0.0, 0.5])
def test_a_better_or_missing_metric(valid: Valid, exact: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact run is better, equal or worse: only worse modes are refused."""

    def scaled(task: Task, opt: Options, **how: Any) -> Report:
        report = evaluate_task(task, opt, **how)
        return report if opt.faster else replace(report, metric=exact)

    monkeypatch.setattr(runs, "evaluate_task", scaled)
    code, data = valid("--target", "onnx", "--decode", "fused")
    assert code == 0
    assert data["comparison"]["relative_change"] == ((data["metric"] - exact) / exact if exact else None)


def test_a_nan_metric_is_reported(
    valid: Valid, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(task: Task, opt: Options, **how: Any) -> Report:
        return replace(evaluate_task(task, opt, **how), metric=float("nan"), higher_is_better=False)

    monkeypatch.setattr(runs, "evaluate_task", nothing)
    assert valid("--target", "onnx", "--decode", "fused")[0] == DROPPED
    err = capsys.readouterr().err
    assert "error: the metric is nan with --decode fused and nan without, which cannot be judged" in err
    assert "rises" not in err


@pytest.mark.parametrize(("exact", "code"), [(0.3, 0), (0.1, DROPPED), (0.0, DROPPED)])
def test_a_metric_that_should_be_low_may_not_rise(
    valid: Valid, exact: float, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A word error rate of 0.2 is better than 0.3 and worse than 0.1; worse than none has no relative difference."""

    def rate(task: Task, opt: Options, **how: Any) -> Report:
        return replace(evaluate_task(task, opt, **how), metric=0.2 if opt.faster else exact, higher_is_better=False)

    monkeypatch.setattr(runs, "evaluate_task", rate)
    assert valid("--target", "onnx", "--decode", "fused")[0] == code
    out, err = capsys.readouterr()
    assert "nan" not in out
    assert ("the metric rises by more than 1.00%" in err) == bool(code)


# ------------------------------------------------------------------------------------------------------ many processes

MANY = [
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="mpirun is not installed (Debian: openmpi-bin)"),
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason='mpi4py is not installed (".[mpi]")'),
]


def mpirun(*argv: object) -> tuple[int, str, str]:
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # as in a container
    env = {**os.environ, **root, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    command = ["mpirun", "--oversubscribe", "-n", "2", sys.executable, str(DIGITS / "example_valid.py")]
    done = subprocess.run([*command, *map(str, argv)], env=env, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("_installed", [pytest.param(None, marks=MANY)])
def test_several_processes_compare_together(_installed: None, tmp_path: Path) -> None:
    code, out, err = mpirun("--target", "onnx", "--decode", "reduced", "--json", tmp_path / "result.json")
    assert (code, err) == (0, "")
    assert out.count("against exact") == out.count("eval_metric") == 1
    data = json.loads((tmp_path / "result.json").read_text())
    assert (data["processes"], data["samples"]) == (2, 360)
    assert data["comparison"]["exact_metric"] == pytest.approx(0.994444, abs=1e-6)
    assert data["comparison"]["at_risk"] == {"deviation": 0.0, "samples": []}  # images of the input's size
    assert {file.name for file in tmp_path.iterdir()} == {"result.json", "result.samples.csv"}


@pytest.mark.parametrize("_installed", [pytest.param(None, marks=MANY)])
def test_int8_in_several_processes_is_one_error(_installed: None) -> None:
    code, out, err = mpirun("--target", "cpu", "--dtype", "int8")
    assert code == 2
    assert "eval_metric" not in out
    assert err.count("int8 is calibrated in one process") == 1


def test_numpy_metrics_are_written_as_plain_numbers(valid: Valid, monkeypatch: pytest.MonkeyPatch) -> None:
    """A metric that is a numpy number ends up in the JSON as any other."""

    def numpy_metric(task: Task, opt: Options, **how: Any) -> Report:
        return replace(evaluate_task(task, opt, **how), metric=np.float32(0.5))

    monkeypatch.setattr(runs, "evaluate_task", numpy_metric)
    _, data = valid("--target", "onnx", "--decode", "fused")
    assert (data["comparison"]["metric"], data["comparison"]["accepted"]) == (0.5, True)
