"""`teco adapt` from a model and its data to PASS, with no line written by hand, for models that nobody prepared."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from adapted_models import fixed_batch, lacking, module, overflowing, recogniser, spaced, tagger, ultralytics
from newcomer_models import KINDS

from model_config.cases.config import load_cases
from toolkit.adapt.cli import main
from toolkit.adapt.table import STAGES
from utils.tasks.templates.sample_images import fill_shapes

pytestmark = pytest.mark.slow

KNOWN = ["--source", "the zoo's tests", "--licence", "Apache-2.0", "--data_source", "made by the zoo's tests"]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project; the current folder is another one."""
    for name in ("project", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "project"


def state(name: str) -> dict[str, Any]:
    """Return the stages of ``adapt.json`` of a model in the current folder."""
    found: dict[str, Any] = json.loads(Path(f"adapt_{name}/adapt.json").read_text(encoding="utf-8"))["stages"]
    assert list(found) == [stage.name for stage in STAGES]
    return found


def passed(name: str, root: Path, *words: str) -> dict[str, Any]:
    """Adapt a model, which has to pass; return its stages."""
    code = main([*words, *KNOWN], root)
    found = state(name)
    assert found["check"]["facts"]["reasons"] == []
    assert code == 0
    assert found["check"]["facts"]["verdict"] == "PASS"
    assert "makes the same files again" in found["scaffold"]["line"]
    (case,) = load_cases([root / "model_config/model.yaml"], root)
    assert case.name == name
    return found


@pytest.mark.long
def test_ultralytics_export(root: Path, tmp_path: Path) -> None:
    file, data = ultralytics(tmp_path)
    found = passed("yolo", root, str(file), "--data", str(data))
    assert found["task"]["facts"]["task"] == "detection"  # of its metadata
    assert found["onnx"]["facts"]["metric"] > 0.8
    assert found["sdaa"]["facts"]["verdict"] in ("passes", "fixed")
    assert len(found["data"]["facts"]["preview"]) == 5
    readme = (root / "example/detection/yolo/README.md").read_text(encoding="utf-8")
    assert f"{found['onnx']['facts']['metric']:.6g}" in readme
    assert "(simulated)" in readme


@pytest.mark.long
def test_files_of_arrays_with_the_generic_task(root: Path, tmp_path: Path) -> None:
    KINDS["stereo"].write(tmp_path)
    words = ["--data", str(tmp_path / "val.npz"), "--name", "stereo", "--default", "metric=disparity=mae"]
    found = passed("stereo", root, str(tmp_path / "model.onnx"), *words)
    assert found["task"]["facts"]["task"] == "arrays"
    assert found["onnx"]["facts"]["metric_name"].endswith("mae")
    assert [row["batch"] for row in found["tecoexec"]["facts"]["rows"]] == [1, 4, 16, 64, 256]


@pytest.mark.long
def test_magika_like_file_kinds(root: Path, tmp_path: Path) -> None:
    KINDS["file_kind"].write(tmp_path)
    words = ["--data", str(tmp_path / "val.npz"), "--name", "kinds"]
    found = passed("kinds", root, str(tmp_path / "model.onnx"), *words)
    assert 0.85 < found["onnx"]["facts"]["metric"] < 0.95


@pytest.mark.long
def test_super_resolution(root: Path, tmp_path: Path) -> None:
    KINDS["espcn"].write(tmp_path)
    words = ["--data", str(tmp_path / "val.npz"), "--name", "espcn", "--default", "metric=psnr"]
    found = passed("espcn", root, str(tmp_path / "model.onnx"), *words)
    assert found["task"]["facts"]["others"][0]["task"] == "image_restoration"
    assert found["sdaa"]["facts"]["independent"] is True


@pytest.mark.long
def test_recogniser_of_speech(root: Path, tmp_path: Path) -> None:
    file, data, notes = recogniser(tmp_path)
    found = passed("ctc", root, str(file), *notes, "--data", str(data), "--task", "speech_recognition")
    assert found["task"]["facts"]["task"] == "speech_recognition"
    assert found["onnx"]["facts"]["metric"] < 0.2  # word error rate


def test_planted_overflow_is_fixed(root: Path, tmp_path: Path) -> None:
    file, data = overflowing(tmp_path)
    found = passed("norm", root, str(file), "--data", str(data))
    card = found["sdaa"]["facts"]
    assert card["verdict"] == "fixed"
    assert card["before"] < 0.5 < card["metric"]
    assert card["overflows"]
    (case,) = load_cases([root / "model_config/model.yaml"], root)
    assert {step.params.get("pass_path") for step in case.steps[1:]} == {"norm_pass.py"}
    assert "skip_ops" in (root / case.run_dir / "norm_pass.py").read_text(encoding="utf-8")


@pytest.mark.long
def test_float16_external_data_names_with_spaces_and_golden(root: Path, tmp_path: Path) -> None:
    file, data, golden = spaced(tmp_path)
    found = passed("spaced_net", root, str(file), "--data", str(data), "--golden", str(golden))
    assert "the outputs are those of golden.npz" in found["onnx"]["line"]
    assert found["data"]["facts"]["flags"]["dim"] == ["some_length=5"]
    assert found["sdaa"]["facts"]["proven"]


@pytest.mark.long
def test_lacking_operator_is_rewritten(root: Path, tmp_path: Path) -> None:
    found = passed("wide", root, str(lacking(tmp_path)))
    assert found["take_in"]["facts"]["rewritten"][0].startswith("conv64: in float32 between casts")
    assert found["operators"]["facts"]["lacking"] == []
    assert not found["data"]["facts"]["real"]
    assert found["onnx"]["facts"]["metric_name"] == "equal"


@pytest.mark.long
def test_fixed_batch_is_made_dynamic(root: Path, tmp_path: Path) -> None:
    found = passed("one", root, str(fixed_batch(tmp_path)))
    assert found["export"]["facts"]["ckpt"] == "one_dyn.onnx"
    assert found["export"]["facts"]["inputs"][0]["shape"][0] == "batch"


@pytest.mark.long
def test_open_questions_fail_the_check_and_edited_files_stay(root: Path, tmp_path: Path) -> None:
    file = fixed_batch(tmp_path)
    assert main([str(file)], root) == 1
    found = state("one")["check"]["facts"]
    assert found["verdict"] == "FAIL"
    assert [reason.split(": ")[1] for reason in found["reasons"]] == ["readme-open", "readme-open"]
    script = root / "example/arrays/one/example_multi_batch.py"
    edited = script.read_text(encoding="utf-8").replace("several samples", "all samples")
    script.write_text(edited, encoding="utf-8")
    again = passed("one", root, str(file))
    assert again["document"]["facts"]["kept"] == ["example/arrays/one/example_multi_batch.py"]
    assert script.read_text(encoding="utf-8") == edited


@pytest.mark.long
def test_pytorch_module(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    found = passed("net", root, f"{module(tmp_path)}:build", "--shape", "x=1,1,16,16")
    assert found["take_in"]["facts"]["random"]


@pytest.mark.long
def test_tagger_from_a_configuration(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("tokenizers")
    folder, data = tagger(tmp_path)
    found = passed("tagger", root, str(folder), "--data", str(data))
    assert found["task"]["facts"]["task"] == "token_classification"
    assert "random weights" in found["take_in"]["line"]


@pytest.mark.long
def test_timm_classifier(root: Path, tmp_path: Path) -> None:
    if find_spec("timm") is None:  # an import of it fails where torchvision is built for another torch
        pytest.skip("timm is not installed")
    fill_shapes(tmp_path)
    words = ["--weights", "random", "--data", str(tmp_path / "images" / "val.txt")]
    found = passed("test_resnet", root, "timm:test_resnet", *words)
    assert found["task"]["facts"]["task"] == "classification"
    assert found["data"]["facts"]["place"] == "data/val.txt"
