"""The example scripts as a user runs them: by path, from anywhere, without torch."""

from __future__ import annotations

import ast
import json
import re
import shutil
from pathlib import Path

import pytest
from forked import helps
from support import ROOT, RunPython

from utils.postprocess.pytorch.classification import labels_from

SCRIPTS = sorted(ROOT.glob("example/*/*/example_*.py"))
DIGITS = [path for path in SCRIPTS if path.parent.name == "digits"]
FLAGS = (
    *("--ckpt", "--data_path", "--input_name", "--batch_size", "--input_size", "--target", "--dtype", "--pass_path"),
    "--verbose",
)
OF_DOMAIN = {
    "classification": ("--topk", "--skip_postprocess"),
    "face": ("--score_threshold",),
    "gnn": ("--split",),
    "nlp": ("--tokenizer", "--lengths"),
    "detection": ("--score_threshold", "--iou_threshold", "--max_detections"),
    "reinforcement": ("--env", "--episodes", "--seed", "--max_steps"),
}
OF_FOLDER = {**dict.fromkeys(("clip", "digit_clip"), ("--topk", "--classes")), "point_net": ()}
"""Flags of folders with another task than that of their domain."""

SEVERAL = ("clip", "digit_clip", "ppocr_v4")
"""Folders of several models: their inputs have flags of their own."""

NO_IMAGES = ("gnn", "nlp", "recommendation", "reinforcement", "speech", "point_net")
"""Domains and folders whose inputs have no height and width."""

SUMMARY = re.compile(
    r"summary: avg_sps: [0-9.]+, e2e_time: [0-9.]+, avg_inference_time: [0-9.]+, avg_preprocess_time: [0-9.]+, "
    r"avg_postprocess: [0-9.]+"
)


def name(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def test_every_model_folder_has_its_three_scripts() -> None:
    for folder in {path.parent for path in SCRIPTS}:
        assert {path.stem for path in folder.glob("example_*.py")} == {
            "example_valid",
            "example_single_batch",
            "example_multi_batch",
        }


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_a_script_is_short_and_documented(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 10
    assert ast.get_docstring(ast.parse(text))


@pytest.fixture(scope="module")
def shown() -> dict[str, tuple[int, str]]:
    return helps([path.relative_to(ROOT).as_posix() for path in SCRIPTS])


@pytest.mark.slow
def test_help_needs_no_path(run_python: RunPython) -> None:
    """A new process prints what a fork prints."""
    scripts = [path.relative_to(ROOT).as_posix() for path in DIGITS]
    for script, printed in helps(scripts).items():
        done = run_python(ROOT / script, "--help", path=[])
        assert (done.returncode, done.stdout) == printed


@pytest.mark.parametrize("path", SCRIPTS, ids=name)
def test_help_names_every_flag(path: Path, shown: dict[str, tuple[int, str]]) -> None:
    code, said = shown[path.relative_to(ROOT).as_posix()]
    assert code == 0
    folder, domain = path.parent.name, path.parents[1].name
    sized = folder not in SEVERAL and not {folder, domain} & set(NO_IMAGES)
    wanted = [flag for flag in FLAGS if flag != "--input_size" or sized]
    assert not [flag for flag in (*wanted, *OF_FOLDER.get(folder, OF_DOMAIN.get(domain, ()))) if flag not in said]
    assert path.stem == "example_valid" or "--skip_postprocess" in said
    assert "(default: None)" not in said
    assert ("--max_drop" in said) == (path.stem == "example_valid")


@pytest.mark.parametrize("stem", ["valid", "single_batch", "multi_batch"])
def test_script_without_model_names_the_export_command(stem: str, run_python: RunPython, tmp_path: Path) -> None:
    folder = tmp_path / "example" / "classification" / "resnet"
    ignored = shutil.ignore_patterns("*.onnx", "__pycache__")
    shutil.copytree(ROOT / "example" / "classification" / "resnet", folder, ignore=ignored)
    done = run_python(folder / f"example_{stem}.py", cwd=folder)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.endswith("resnet50_dyn.onnx does not exist yet; make it: python export_onnx.py")


@pytest.mark.slow
@pytest.mark.parametrize("path", DIGITS, ids=name)
def test_a_digits_script_without_flags(path: Path, run_python: RunPython, tmp_path: Path) -> None:
    done = run_python(path, cwd=tmp_path, path=[])
    assert (done.returncode, done.stderr) == (0, "")
    first, *rest = done.stdout.splitlines()
    assert first.startswith("target sdaa: simulated T1 card: 4 SPA")
    if path.stem == "example_valid":
        assert re.fullmatch(r"eval_metric 0\.9[89][0-9]*", rest[-2])
        assert SUMMARY.fullmatch(rest[-1])
    else:
        if path.stem == "example_multi_batch":
            *rest, closing = rest
            assert re.fullmatch(rf"{len(rest)} samples in [0-9.]+ s: 7 x [0-9]+(, .*)?", closing)
        right = sum(re.fullmatch(r"[0-9]{4}\.png  7  0\.[0-9]{3}", line) is not None for line in rest)
        assert right >= 0.95 * len(rest) > 0
    assert list(tmp_path.iterdir()) == []  # nothing is written where nobody asked for it


@pytest.mark.parametrize("path", DIGITS, ids=name)
def test_every_flag_at_once(path: Path, run_python: RunPython, tmp_path: Path) -> None:
    folder = path.parent
    data = folder / "data" / "val" if path.stem == "example_valid" else folder / "data" / "val" / "3"
    done = run_python(
        *(path, "--ckpt", folder / "digits.onnx", "--data_path", data, "--input_name", "input", "--batch_size", 7),
        *("--input_size", 32, "--target", "onnx", "--dtype", "float16", "--pass_path", "default_pass.py"),
        *("--topk", 2, "--skip_postprocess", "true", "--verbose", "--json", tmp_path / "r.json", "--workers", 2),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("target onnx: ONNX Runtime ")
    result = json.loads((tmp_path / "r.json").read_text())
    if path.stem == "example_valid":
        assert result["metric_name"] == "top2"
        assert result["metric"] > 0.98
        assert sum(line.startswith("step ") for line in done.stdout.splitlines()) == result["steps"] == 52
    else:
        assert result["answers"][0]["answer"]["outputs"][0]["shape"] == [10]


def test_drawn_answers(run_python: RunPython, tmp_path: Path) -> None:
    path = next(path for path in DIGITS if path.stem == "example_multi_batch")
    shutil.copytree(path.parent / "data" / "val" / "5", tmp_path / "in")
    done = run_python(path, "--target", "onnx", "--data_path", tmp_path / "in", "--save", tmp_path / "out", "--topk", 3)
    assert done.returncode == 0, done.stderr
    assert {file.name for file in (tmp_path / "out").iterdir()} == {file.name for file in (tmp_path / "in").iterdir()}


def test_steps_and_warmup_from_the_environment(run_python: RunPython) -> None:
    path = next(path for path in DIGITS if path.stem == "example_valid")
    done = run_python(
        *(path, "--target", "null", "--batch_size", 10),
        TECO_INFER_PIPELINES_MAX_STEPS="3",
        TECO_INFER_PIPELINES_WARMUP_STEPS="1",
    )
    assert done.returncode == 0, done.stderr
    assert "stopped after 3 steps" in done.stdout
    assert SUMMARY.fullmatch(done.stdout.splitlines()[-1])


def test_ranks_share_the_data(run_python: RunPython, tmp_path: Path) -> None:
    path = next(path for path in DIGITS if path.stem == "example_valid")
    samples, right = 0, 0.0
    for rank in range(3):
        done = run_python(
            *(path, "--target", "onnx", "--json", tmp_path / "r.json"),
            OMPI_COMM_WORLD_RANK=str(rank),
            OMPI_COMM_WORLD_SIZE="3",
        )
        assert done.returncode == 0, done.stderr
        part = json.loads((tmp_path / "r.json").read_text())
        samples, right = samples + part["samples"], right + part["metric"] * part["samples"]
    assert samples == 360
    assert right / 360 >= 0.98


def test_the_models_own_labels_are_used(digits: Path) -> None:
    from engine import EngineSpec, open_engine

    for file in digits.glob("*.onnx"):
        with open_engine("onnx", EngineSpec(ckpt=file)) as engine:
            assert labels_from(engine.metadata) == [str(digit) for digit in range(10)]
