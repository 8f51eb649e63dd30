"""Use of tecoexec by harnesses of older zoos: SaveEngine's short name, a command line, two figures."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from support import DIGITS, ROOT, RunPython, SaveOnnx

from engine import ConfigError, InputError, ModelError
from engine.sdaa import read_saved
from engine.tecoinfer_pytorch import TecoInferEngine
from tecoexec.config import load_cases
from tecoexec.save_engine import SaveEngine, execute as save
from tecoexec.sweep import execute as sweep

HARNESS = r"""
import os, re, subprocess, sys
sys.path.append(os.path.join(os.environ["TECOEXEC_PATH"]))
from save_engine import SaveEngine, onnx

assert onnx.load(sys.argv[1]).graph.input
engine_path = os.path.join(os.getcwd(), "digits_fp16" + sys.argv[2])
shapes = SaveEngine(sys.argv[1], dtype="float16", pass_path="resnet/resnet_pass_5d.py", save_path=engine_path,
                    input_shapes=[[4, 3, 32, 32]]).save()
assert shapes == [[4, 3, 32, 32]], shapes
cmd = "{} {}/tecoexec --loadEngine={} --input_shapes=16*3*32*32 --input_dtype=float16 --fp16 --warmUp=2 --iterations=12"
cmd = cmd.format(sys.executable, os.environ["TECOEXEC_PATH"], engine_path) + sys.argv[3]
out = subprocess.run(cmd.split(), capture_output=True, text=True)
assert out.returncode == 0, out.stderr
(average,) = re.findall(r"average inference time is (\s*\d+\.?\d*) ms.", out.stdout)
(latency,) = re.findall(r"latency is (\s*\d+\.?\d*) ms.", out.stdout)
print(float(average), float(latency))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "flags"), [(".tecoengine", ""), pytest.param("", " --runSync", marks=pytest.mark.slow)]
)
def test_a_harness(ending: str, flags: str, tmp_path: Path, run_python: RunPython) -> None:
    (tmp_path / "harness.py").write_text(HARNESS)
    done = run_python(
        *("-S", "harness.py", DIGITS / "digits_dyn.onnx", ending, flags),
        cwd=tmp_path,
        path=[Path(place) for place in sys.path if place.endswith("site-packages")],
        TECOEXEC_PATH=str(ROOT / "tecoexec"),
    )
    assert done.returncode == 0, done.stderr
    average, latency = map(float, done.stdout.split())
    assert 0 < average <= latency < 10


def test_the_program_starts_from_its_folder(tmp_path: Path) -> None:
    program = ROOT / "tecoexec" / "tecoexec"
    assert os.access(program, os.X_OK)
    done = subprocess.run(
        [sys.executable, program, "--version"], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stdout.startswith("tecoexec ")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copy(DIGITS / "digits_dyn.onnx", tmp_path / "digits.onnx"))


def test_defaults_of_save_engine(save_onnx: SaveOnnx, model: Path, tmp_path: Path) -> None:
    fixed = save_onnx("agraph (float[2,3] x, float k) => (float[2,3] y) { y = Mul(x, k) }", "fixed.onnx")
    assert SaveEngine(str(fixed)).save() == [[2, 3], []]
    engine = TecoInferEngine(ckpt=tmp_path / "fixed.onnx.tecoengine", dtype="float16")
    assert (engine.batch_size, engine.dtype, engine.input_names) == (8, "float16", ["x", "k"])
    assert SaveEngine(model, "float32", None, "d.engine", True, "2*3*32*32").save() == [[2, 3, 32, 32]]
    assert TecoInferEngine(ckpt="d.engine", dtype="float32").input_size == [[2, 3, 32, 32]]
    assert SaveEngine(model, save_path="any_name", input_shapes=[2, 3, 32, 32]).save() == [[2, 3, 32, 32]]
    SaveEngine(model, "float16", "none", "plain", True, [2, 3, 32, 32]).save()
    passes = [read_saved(Path(name)).origin.pass_file for name in ("any_name", "plain")]
    assert passes == ["default_pass.py", ""]
    assert TecoInferEngine(ckpt="any_name", dtype="float16").batch_size == 8


@pytest.mark.parametrize(
    ("keywords", "reason"),
    [
        ({"dtype": "int8"}, "dtype 'int8' must be one of: float32, float16"),
        ({"input_shapes": [["a"]]}, r"input_shapes \[\['a'\]\] must be one list of sizes per input"),
        ({"input_shapes": [[0, 3, 32, 32]]}, r"input_shapes \[\[0, 3"),
        ({"input_shapes": [[1, 3, 32]]}, "input_size .* does not fit input 'input'"),
        ({"input_shapes": None}, "shapes are dynamic"),
        (
            {"save_path": "no/where.tecoengine", "input_shapes": [[1, 3, 32, 32]]},
            "folder no does not exist",
        ),
        ({"save_path": "x.onnx", "input_shapes": [[1, 3, 32, 32]]}, "x.onnx: "),
        ({"pass_path": "gone.py", "input_shapes": [[1, 3, 32, 32]]}, "pass file gone.py does not exist"),
    ],
)
def test_save_engine_errors(keywords: dict[str, object], reason: str, model: Path) -> None:
    with pytest.raises((ConfigError, InputError, ModelError), match=reason) as caught:
        SaveEngine(model, **keywords).save()  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_the_older_flags_of_save_engine(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shape = "--input_shapes=16*3*32*32"
    assert save(["-op", str(model), "-pp", "resnet/resnet_pass_syncop.py", "-sp", "e.bin", shape]) == 0
    assert "one SPA takes input 4x3x32x32; float16, passes: resnet_pass_syncop.py" in capsys.readouterr().out
    assert save(["--onnx_path", str(model), "--onnx_dtype", "float32", shape]) == 0
    assert "digits.onnx.tecoengine: " in capsys.readouterr().out
    assert TecoInferEngine(ckpt="digits.onnx.tecoengine").dtype == "float32"
    with pytest.raises(ConfigError, match="--fp16 and --onnx_dtype float32"):
        save(["-op", str(model), "--fp16", "--onnx_dtype", "float32", shape])
    with pytest.raises(ConfigError, match=r"--out e\.bin must end in \.tecoengine"):
        save(["--onnx", str(model), "--out", "e.bin", shape])


def test_shapes_of_one_spa_are_understood(model: Path, run_python: RunPython, tmp_path: Path) -> None:
    SaveEngine(model, save_path="d.tecoengine", input_shapes=[[4, 3, 32, 32]]).save()
    program = ["-m", "tecoexec", "--loadEngine=d.tecoengine", "--iterations=10", "--simulateOnly"]
    done = run_python(*program, "--input_shapes=4*3*32*32", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "are those of one SPA" in done.stderr
    assert "input 16x3x32x32" in done.stdout


# A configuration in the older form; only the path of the model is another one.
CONFIG = """
# cuda_latency is in s, history_latency in ms
  - case_name: model.infer.async.digits.1card.batch4.shape32*32
    model_name: Digits
    onnx_path: {onnx}
    pass_path: resnet/resnet_pass.py
    onnx_dtype: float16
    input_shapes: 4*3*32*32
    batch_size: 4
    iterations: 50
    warm_up: 10
    benchmark_of_latency: 0.92
    run_sync: 0
    cuda_throughput: 3103.06
    cuda_latency: 0.00137634
    history_throughput: 1e6
    history_latency: 0.001
    desc:
      dataset: digits
      shape: 32*32
  - case_name: model.infer.async.digits.1card.shape32*32
    onnx_path: {onnx}
    pass_path: resnet/resnet_pass_5d.py
    onnx_dtype: float16
    input_shapes: 1*3*32*32
    batch_size: [1, 4, 8]
    iterations: 50
    warm_up: 10
    run_sync: 1
    cuda_throughput: [644.952000]
    cuda_latency: [0.0020815]
    history_throughput:
    history_latency:
    desc:
      dataset: digits
      shape: 32*32
"""


@pytest.mark.slow
def test_an_older_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import csv
    import json

    config = tmp_path / "tecoexec_config_dy.yaml"
    config.write_text(CONFIG.format(onnx=DIGITS / "digits_dyn.onnx"))
    out = tmp_path / "out"
    assert sweep([f"--config={config}", f"--out={out}"]) == 0
    shown = capsys.readouterr().out
    head, first, *_ = shown.splitlines()
    for name in ("history latency", "latency ratio to history", "cuda throughput", "throughput ratio to cuda"):
        assert name in head
    assert "simulated latency" in head
    assert "1.38 ms" in first  # given in seconds
    drops = re.findall(r"^drop: (\S+), batch 4: simulated (latency|throughput) ", shown, re.MULTILINE)
    assert drops == [("model.infer.async.digits.1card.batch4.shape32*32", what) for what in ("latency", "throughput")]
    points = json.loads((out / "sweep.json").read_text())["points"]
    assert [(point["model"], point["batch"]) for point in points] == [
        ("Digits", 4),
        *(("digits_dyn", batch) for batch in (1, 4, 8)),
    ]
    cuda = points[1]["references"]["cuda"]
    assert cuda["latency_ms"] == pytest.approx(2.0815)
    assert cuda["throughput_ratio"] == pytest.approx(points[1]["throughput"] / 644.952)
    assert [point["references"] == {} for point in points] == [False, False, True, True]
    assert [len(point["drops"]) for point in points] == [2, 0, 0, 0]
    rows = list(csv.DictReader((out / "sweep.csv").read_text().splitlines()))
    assert [row["cuda_latency_ms"][:6] for row in rows] == ["1.3763", "2.0815", "", ""]
    assert rows[0]["benchmark_latency_ms"] == "0.92"
    log = (out / "model.infer.async.digits.1card.batch4.shape32_32_4.log").read_text()
    assert "simulated results and references: history latency 0.00 ms" in log
    assert "drop: " in log


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("history_latency", "fast", "history_latency 'fast' must be a positive number"),
        ("cuda_throughput", 0, "cuda_throughput 0 must be a positive number"),
        ("cuda_latency", [1, 2, 3], "cuda_latency has 3 values for 1 batches"),
        ("input_shapes", "4*3*a*32", r"input_shapes '4\*3\*a\*32'"),
        ("input_shapes", "input:4*3*32*32", "4\\*3\\*32\\*32"),
    ],
)
def test_invalid_value_in_the_older_form_is_reported(key: str, value: object, reason: str, tmp_path: Path) -> None:
    (case, _) = yaml.safe_load(CONFIG.format(onnx=DIGITS / "digits_dyn.onnx"))
    config = tmp_path / "c.yaml"
    config.write_text(yaml.safe_dump([{**case, key: value}]))
    with pytest.raises(ConfigError, match=reason) as caught:
        sweep([f"--config={config}", f"--out={tmp_path / 'out'}"])
    assert str(config) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_empty_values_have_defaults(tmp_path: Path) -> None:
    (case, _) = yaml.safe_load(CONFIG.format(onnx=DIGITS / "digits_dyn.onnx"))
    config = tmp_path / "c.yaml"
    empty = dict.fromkeys(("iterations", "warm_up", "input_dtype", "pass_path", "run_sync", "desc", "benchmark"))
    config.write_text(yaml.safe_dump([{**case, **empty, "input_shapes": ["4*3*32*32"]}]))
    (read,) = load_cases(config)
    assert (read.shapes, read.iterations, read.warm_up, read.run_sync) == (((4, 3, 32, 32),), 100, 10, False)
    assert (read.desc, read.input_dtypes, read.pass_path) == ("", (), None)
    config.write_text(yaml.safe_dump([{**case, "input_dtype": "float16", "batch_index": 0}]))
    (read,) = load_cases(config)
    assert (read.desc, read.input_dtypes) == ("dataset: digits, shape: 32*32", ("float16",))


def test_figures_are_of_a_card_of_four(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MAX_ENGINE_NUMS", "3")
    config = tmp_path / "c.yaml"
    config.write_text(CONFIG.format(onnx=DIGITS / "digits_dyn.onnx"))
    assert sweep([f"--config={config}", "--case=batch4", f"--out={tmp_path / 'out'}"]) == 0
    assert "ratio" not in capsys.readouterr().out
