"""The comparison with peers runs, says what is missing, and notices when the contestants compute different things."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import ROOT

pytest.importorskip("psutil")
pytest.importorskip("skimage")
pytest.importorskip("sklearn")

BENCHMARKS = ROOT / "benchmarks"


def run(tmp_path: Path, *flags: str) -> tuple[dict[str, Any], str]:
    result = tmp_path / "result.json"
    command = [sys.executable, str(BENCHMARKS / "throughput.py"), "--quick", "--work", str(tmp_path / "work")]
    command += ["--json", str(result), *flags]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(result.read_text(encoding="utf-8")), done.stdout


def results(model: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {result["contestant"]: result for result in model["results"]}


@pytest.mark.long
@pytest.mark.slow
def test_no_compute(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    data, out = run(tmp_path, "--images", "18", "--plot", str(tmp_path / "bars.png"))
    (model,) = data["models"]
    assert (data["benchmark"], data["quick"], model["model"], model["images"]) == (
        "throughput",
        True,
        "no-compute",
        18,
    )
    found = results(model)
    assert found["ours"]["equal"] is True
    for result in found.values():
        assert min(result["sps"], result["peak_mb"], result["same_top1"]) > 0
        assert len(result["seconds"]) == model["rounds"] == 1
    assert set(found) | set(model["unavailable"]) == {
        *("ours", "ours reduced", "plain loop", "serial", "dataloader", "openvino", "processes")
    }
    if "dataloader" in found:
        assert found["dataloader"]["same_top1"] == 1.0
    (limit,) = model["limits"]
    assert limit["sps"] > 0
    assert limit["inference_s"] == 0
    wanted = {target["what"]: target["at_least"] for target in model["targets"]}
    assert wanted["ours: share of the limit"] == 0.97
    assert wanted["ours / plain loop"] == 2.4
    assert all(target["met"] is (target["value"] >= target["at_least"]) for target in model["targets"])
    assert "limit of ours" in out
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")
    assert len(list((tmp_path / "work/images18").rglob("*.jpg"))) == 18


@pytest.mark.slow
@pytest.mark.long
def test_images_of_an_earlier_layout_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "work/images9/other/000.jpg"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"")
    command = [sys.executable, str(BENCHMARKS / "throughput.py"), "--quick", "--images", "9"]
    command += ["--work", str(tmp_path / "work")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert "remove it" in done.stderr


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from parts import peers

    return peers


def test_opencv_preprocesses_like_ours_but_for_antialiasing(peers: Any, tmp_path: Path) -> None:
    pytest.importorskip("cv2")
    from PIL import Image

    from utils.preprocess.pytorch.classification import preprocess

    y, x = np.mgrid[:375, :500].astype(np.float32)
    smooth = np.stack([x / 500, y / 375, (x + y) / 875], axis=2) * 255
    path = tmp_path / "smooth.png"
    Image.fromarray(smooth.astype(np.uint8)).save(path)
    out = np.empty((3, 224, 224), np.float32)
    peers.opencv_into(str(path), out, 256)
    assert np.abs(out - preprocess(path, "float32")[0]).max() < 0.05


def test_a_missing_package_is_named(peers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import throughput

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert throughput.missing("openvino") == "pip install openvino opencv-python-headless"
    assert throughput.missing("torch") == 'pip install ".[torch]"'
    assert throughput.missing("ours") is None


def test_targets_and_exit_code(peers: Any) -> None:
    from parts.throughput_figures import Measured, Result
    from parts.throughput_processes import Turn
    from throughput import Course, _targets

    def course(*seconds: float) -> Course:
        return Course("", 0, np.zeros((1, 1)), [Turn(s, s) for s in seconds])

    measured = Measured("resnet50", 16, 8, 2)
    courses = {"ours": course(1.0, 2.0), "plain loop": course(1.5, 3.0), "openvino": course(1.0, 1.0)}
    targets = {target.what: target for target in _targets(measured, courses)}
    assert targets["ours / plain loop"].value == 1.5
    assert targets["ours / plain loop"].met
    assert targets["ours / best peer (openvino)"].value == 0.75
    assert not targets["ours / best peer (openvino)"].met
    assert "ours / dataloader" not in targets
    courses["ours reduced"] = course(0.5, 0.5)
    measured.results = [Result("ours reduced", "", 1, 1, 1, 0.99, False, None, [0.5])]  # other answers: not compared
    assert "ours / best peer (openvino)" in {target.what for target in _targets(measured, courses)}
    measured.results = [Result("ours reduced", "", 1, 1, 1, 0.995, False, None, [0.5])]
    assert "ours reduced / best peer (openvino)" in {target.what for target in _targets(measured, courses)}
    measured.results = [Result("ours", "", 1, 1, 1, 1.0, False, None, [1.0])]
    assert not measured.agree


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.torch
def test_a_model_with_every_peer(tmp_path: Path) -> None:
    if not importlib.util.find_spec("torchvision"):
        pytest.skip("torchvision is not installed")
    data, _ = run(tmp_path, "--images", "16", "--models", "shufflenet_v2_x1_0")
    (model,) = data["models"]
    found = results(model)
    assert found["ours"]["equal"] is True
    assert found["dataloader"]["same_top1"] == found["torch"]["same_top1"] == 1.0
    assert found["torch"]["note"].endswith(("contiguous_format", "channels_last"))
