"""The committed files of the network of point clouds belong together: data, outputs, metric."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import pytest
from support import ROOT

from engine import EngineSpec, open_engine
from tecoinfer_modelzoo import evaluate
from utils.tasks.arrays.task import Arrays

FOLDER = ROOT / "example" / "classification" / "point_net"


@pytest.fixture
def modules() -> Iterator[dict[str, ModuleType]]:
    """The folder's modules; afterwards none of these common names is left."""
    names = ("clouds", "model")
    for name in names:
        sys.modules.pop(name, None)
    sys.path.insert(0, str(FOLDER))
    yield {"clouds": importlib.import_module("clouds")}
    sys.path.remove(str(FOLDER))
    for name in names:
        sys.modules.pop(name, None)


def test_committed_files_are_within_size_limits() -> None:
    names = ("data/val.npz", "point_net.pth", "point_net_dyn.onnx", "point_net_float16_dyn.onnx")
    assert max((FOLDER / name).stat().st_size for name in names) < 200_000


def test_data_are_the_held_out_clouds(modules: dict[str, ModuleType]) -> None:
    with np.load(FOLDER / "data/val.npz") as data:
        points, labels = data["points"], data["logits"]
    wanted, classes = modules["clouds"].held_out()
    assert points.shape == (400, 64, 3)
    assert np.abs(points.astype(np.float32) - wanted).max() < 2e-3
    assert labels.tolist() == classes.tolist()
    assert np.bincount(labels).min() > 30


@pytest.mark.parametrize(("target", "form"), [("onnx", ""), ("sdaa", "_float16")])
def test_metric_equals_the_readme(target: str, form: str) -> None:
    report = evaluate(
        Arrays, ckpt=FOLDER / f"point_net{form}_dyn.onnx", data=FOLDER / "data/val.npz", target=target, metric=["top1"]
    )
    assert report.metric == pytest.approx(ACCURACY, abs=0.004)


@pytest.mark.torch
def test_onnx_outputs_equal_the_weights(modules: dict[str, ModuleType]) -> None:
    torch = pytest.importorskip("torch")
    trained = importlib.import_module("model").PointNet(8).eval()
    trained.load_state_dict(torch.load(FOLDER / "point_net.pth", weights_only=True))
    points, _ = modules["clouds"].clouds(4, np.random.default_rng(5))
    with open_engine("onnx", EngineSpec(ckpt=FOLDER / "point_net_dyn.onnx")) as engine:
        found = np.asarray(engine(points))
    with torch.no_grad():
        assert np.abs(found - trained(torch.from_numpy(points)).numpy()).max() < 1e-3


ACCURACY = 0.985
