from __future__ import annotations

import csv
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import DIGITS, ROOT, RunPython

from engine import ConfigError
from tecoexec.config import CONFIG, load_cases, load_published, scaled, select_cases
from tecoexec.sweep import execute

CASE = {
    "case_name": "small",
    "model_name": "digits",
    "onnx_path": str(DIGITS / "digits_dyn.onnx"),
    "input_shapes": [[1, 3, 32, 32]],
    "batch_size": [4, 8],
    "iterations": 10,
}


def write(folder: Path, *cases: dict[str, Any]) -> Path:
    path = folder / "tecoexec_config.yaml"
    path.write_text(yaml.safe_dump(list(cases)), encoding="utf-8")
    return path


def test_a_sweep_writes_a_table_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "figures.csv").write_text("batch,latency_ms,throughput\n4,1.0,4000\n", encoding="utf-8")
    config = write(tmp_path, {**CASE, "benchmark": str(tmp_path / "figures.csv"), "run_sync": True})
    out = tmp_path / "out"
    assert execute([f"--config={config}", "--case=SMALL", f"--out={out}"]) == 0
    shown = capsys.readouterr().out
    assert "simulated latency" in shown
    assert "1.00 ms" in shown
    assert "over 1 published points" in shown
    assert (out / "digits.png").read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader((out / "sweep.csv").read_text(encoding="utf-8").splitlines()))
    assert [(row["batch"], row["published_latency_ms"]) for row in rows] == [("4", "1.0"), ("8", "")]
    data = json.loads((out / "sweep.json").read_text(encoding="utf-8"))
    point = data["points"][0]
    assert data["schema_version"] == 1
    assert point["simulated"] is True
    assert point["errors"]["latency"] == pytest.approx(point["latency_ms"] - 1)
    assert "latency is" in (out / "small_8.log").read_text(encoding="utf-8")


def test_batches_are_scaled_for_three_spa(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scaled([1, 4, 8, 16, 512]) == (1, 4, 8, 16, 512)
    monkeypatch.setenv("MAX_ENGINE_NUMS", "3")
    assert scaled([1, 4, 8, 16, 512]) == (1, 3, 6, 12, 384)
    assert scaled([1, 2]) == (1,)
    config = write(tmp_path, {**CASE, "benchmark": str(ROOT / "tecoexec" / "data" / "t1_resnet50.csv")})
    (case,) = load_cases(config)
    assert case.batches == (3, 6)
    assert not case.published  # published for 4 SPA
    assert execute([f"--config={config}", f"--out={tmp_path / 'out'}"]) == 0
    assert "6*3*32*32" in capsys.readouterr().out


def test_a_missing_model_is_reported_with_its_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = {**CASE, "case_name": "absent", "onnx_path": "example/classification/resnet/none.onnx"}
    config = write(tmp_path, CASE, missing)
    assert execute([f"--config={config}", f"--out={tmp_path / 'out'}"]) == 1
    printed = capsys.readouterr().err
    assert "absent: model example/classification/resnet/none.onnx does not exist" in printed
    assert "python example/classification/resnet/export_onnx.py" in printed
    with pytest.raises(ConfigError, match="none of 1 cases"):
        execute([f"--config={config}", "--case=absent", f"--out={tmp_path / 'out'}"])


def test_an_oversized_batch_is_reported_and_the_others_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write(tmp_path, {**CASE, "batch_size": [4, 90_000_000]})
    assert execute([f"--config={config}", f"--out={tmp_path / 'out'}"]) == 1
    assert "failed: small, batch 90000000: SPA 0" in capsys.readouterr().err


def test_without_matplotlib_no_plot_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert execute([f"--config={write(tmp_path, CASE)}", f"--out={tmp_path / 'out'}"]) == 0
    assert 'plots need matplotlib; run: pip install -c constraints.txt -e ".[plot]"' in capsys.readouterr().out
    assert not list((tmp_path / "out").glob("*.png"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"batchsize": 4}, "batchsize is not a field; did you mean batch_size"),
        ({"batch_size": None}, "batch_size is missing"),
        ({"batch_size": [4, 0]}, "batch_size 0 .*at least 1"),
        ({"batch_size": "4"}, "batch_size '4' must be an integer"),
        ({"batch_size": True}, "batch_size True must be an integer"),
        ({"input_shapes": [1, 3, 32, 32]}, "input_shapes 1 must be a list"),
        ({"input_shapes": [[]]}, "input_shapes .* must be a list"),
        ({"iterations": 0}, "iterations 0 .*at least 1"),
        ({"warm_up": -1}, "warm_up -1 .*at least 0"),
        ({"run_sync": 2}, "run_sync 2 .*True, False, 0, 1"),
        ({"onnx_dtype": "half"}, "onnx_dtype 'half' .*float32, float16"),
        ({"input_dtype": "half"}, "input_dtype 'half' must be one of"),
        ({"batch_index": 1}, "batch_index 1 must be 0"),
        ({"batch_index": [0, None]}, "batch_index .* must be 0"),
        ({"pass_path": 5}, "pass_path 5 must be text"),
        ({"pass_path": "a=/etc/passwd"}, "pass_path .*a=/etc/passwd does not exist"),
        ({"benchmark": "no.csv"}, "benchmark .*no.csv cannot be read"),
    ],
)
def test_invalid_fields_are_reported(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=reason):
        load_cases(write(tmp_path, {**CASE, **change}))


def test_other_bad_configurations(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is used twice"):
        load_cases(write(tmp_path, CASE, CASE))
    with pytest.raises(ConfigError, match="cannot be read"):
        load_cases(tmp_path / "absent.yaml")
    path = tmp_path / "tecoexec_config.yaml"
    path.write_text("case_name: small\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="list of cases"):
        load_cases(path)
    path.write_text("", encoding="utf-8")
    assert load_cases(path) == []
    with pytest.raises(ConfigError, match=r"'x'.*none"):
        select_cases([], "x")


def test_the_configuration_of_the_zoo() -> None:
    cases = load_cases(CONFIG)
    resnet = select_cases(cases, "resnet50")
    published = load_published(ROOT / "tecoexec" / "data" / "t1_resnet50.csv")
    assert [batch for case in resnet for batch in case.batches] == sorted(published)
    assert load_cases(ROOT / "contrib" / "tecoexec" / "testcase_configs" / "tecoexec_config.yaml") == []


@pytest.mark.slow
def test_the_sweep_runs_as_a_test(tmp_path: Path, run_python: RunPython) -> None:
    shutil.copy(ROOT / "tecoexec" / "test_tecoexec.py", tmp_path)
    missing = {**CASE, "case_name": "small_absent", "onnx_path": "none.onnx", "batch_size": 4}
    write(tmp_path, CASE, missing)
    done = run_python("-m", "pytest", "-vs", "-p", "no:cacheprovider", "-k", "small", "test_tecoexec.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed, 1 skipped" in done.stdout
    assert "simulated throughput" in done.stdout
    (folder,) = (tmp_path / "test_tecoexec_logs").iterdir()
    assert {"small_4.log", "small_8.log", "sweep.csv", "sweep.json"} <= {path.name for path in folder.iterdir()}
