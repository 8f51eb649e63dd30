"""The committed files of digit_pose and digit_instances: scenes, annotations, weights, ONNX files, metric."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from PIL import Image
from support import ROOT, RunPython

from engine import EngineSpec, open_engine
from utils.datasets.image.coco_keypoints import load_keypoints
from utils.datasets.image.instances import load_instances
from utils.datasets.synthetic.digit_points import POINTS, points_of
from utils.datasets.synthetic.digit_scenes import PHOTOS

POSE, INSTANCES = ROOT / "example/detection/digit_pose", ROOT / "example/segmentation/digit_instances"
FOLDERS = (POSE, INSTANCES)
SCRIPTS = ("export_onnx", "make_data", "model", "train")

Loader = Callable[[Path, str], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loader]:
    """Import a script of a folder by name; afterwards no module of these common names is left."""

    def loaded(folder: Path, name: str) -> ModuleType:
        for one in SCRIPTS:
            sys.modules.pop(one, None)
        monkeypatch.syspath_prepend(folder)
        return importlib.import_module(name)

    yield loaded
    for one in SCRIPTS:
        sys.modules.pop(one, None)


def scenes(folder: Path, count: int) -> np.ndarray:
    """The first committed scenes as the network's input."""
    images = [np.asarray(Image.open(path)) for path in sorted((folder / "data/val").glob("*.jpg"))[:count]]
    return ((np.stack(images).transpose(0, 3, 1, 2) / np.float32(255)) - np.float32(0.5)) / np.float32(0.25)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_scenes_equal_make_data(folder: Path, load: Loader) -> None:
    """Every twentieth one; images only nearly, for another release of Pillow may encode and decode them otherwise."""
    pytest.importorskip("sklearn")
    pytest.importorskip("skimage")
    from utils.datasets.synthetic.digit_scenes import compose, sources

    make_data = load(folder, "make_data")
    data = json.loads((folder / "data/val.json").read_text(encoding="utf-8"))
    assert [entry["file_name"] for entry in data["images"]] == [f"val/{n:04d}.jpg" for n in range(make_data.SCENES)]
    assert [entry["id"] for entry in data["annotations"]] == list(range(1, len(data["annotations"]) + 1))
    made_of = sources("val")
    for number in range(0, make_data.SCENES, 20):
        made = compose(made_of, make_data.SEED, number)
        found = [entry for entry in data["annotations"] if entry["image_id"] == number]
        assert found == make_data.annotations(number, found[0]["id"], made)
        with Image.open(folder / f"data/val/{number:04d}.jpg") as image:
            assert np.abs(np.asarray(image, np.int64) - made.image).mean() < 5


def test_all_data_are_read() -> None:
    posed, outlined = load_keypoints(POSE / "data"), load_instances(INSTANCES / "data")
    assert len(posed) == len(outlined) == 100
    assert not posed.rejected
    assert not outlined.rejected
    points = np.concatenate([target.points for target in posed.targets])
    assert points.shape == (514, len(POINTS), 2)
    assert (~np.isnan(points[..., 0])).sum() == 1086
    masks = [mask for sample in outlined.samples for mask in sample.masks((160, 160))]
    areas = np.concatenate([target.areas for target in outlined.targets])
    assert [mask.area for mask in masks] == areas.tolist()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_sizes_and_licences(folder: Path) -> None:
    files = [*folder.glob("*_dyn.onnx"), *folder.glob("*.pth")]
    assert len(files) == 3
    assert all(file.stat().st_size < 2_000_000 for file in files)
    assert sum(path.stat().st_size for path in (folder / "data").rglob("*") if path.is_file()) < 2_000_000
    text = (folder / "LICENSES.md").read_text(encoding="utf-8")
    assert all(f"`{Path(photo.file).name}`" in text for photo in PHOTOS)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
@pytest.mark.parametrize("form", ["dyn", "float16_dyn"])
def test_metadata_of_the_onnx_files(folder: Path, form: str) -> None:
    model = onnx.load(folder / f"{folder.name}_{form}.onnx")
    onnx.checker.check_model(model, full_check=True)
    shapes = [
        [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in model.graph.output
    ]
    assert shapes == ([["batch", 23, 400]] if folder == POSE else [["batch", 22, 400], ["batch", 8, 80, 80]])
    notes = {prop.key: prop.value for prop in model.metadata_props}
    assert json.loads(notes["class_labels"]) == [str(digit) for digit in range(10)]
    stored = json.loads(notes["detection"])
    assert stored["layout"] == ("yolo_pose" if folder == POSE else "yolo_seg")
    if folder == POSE:
        assert stored["point_names"] == list(POINTS)
        assert stored["skeleton"] == [[0, 2], [2, 1]]


@pytest.mark.torch
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_onnx_outputs_equal_the_weights(folder: Path, load: Loader) -> None:
    torch = pytest.importorskip("torch")
    module = load(folder, "model")
    network = (module.DigitPose if folder == POSE else module.DigitInstances)().eval()
    network.load_state_dict(torch.load(folder / f"{folder.name}.pth", weights_only=True))
    x = scenes(folder, 3)
    with torch.no_grad():
        found = network(torch.from_numpy(x))
    wanted = [one.numpy() for one in (found if isinstance(found, tuple) else (found,))]
    sure = wanted[0][:, 4:14].max(axis=1) > 0.1  # cells that show nothing have any box and points
    assert sure.sum() > 20
    for form, dtype, pixels in (("dyn", "float32", 0.01), ("float16_dyn", "float16", 1.0)):
        spec = EngineSpec(ckpt=folder / f"{folder.name}_{form}.onnx", dtype=dtype)
        with open_engine("onnx", spec) as engine:
            outputs = engine(x.astype(dtype))
        outputs = [
            np.asarray(one, np.float32) for one in (outputs if isinstance(outputs, (list, tuple)) else [outputs])
        ]
        for one, other in zip(outputs, wanted, strict=True):
            if one.ndim == 3:
                places = one.transpose(0, 2, 1)[sure], other.transpose(0, 2, 1)[sure]
                np.testing.assert_allclose(*places, atol=pixels)
            else:
                np.testing.assert_allclose(one, other, atol=0.001 if dtype == "float32" else 0.2)


def test_points_of_drawn_lines() -> None:
    """A bar has two ends, a plus a crossing too, a ring nothing; empty ink nothing."""
    pytest.importorskip("skimage")
    ink = np.zeros((40, 40), bool)
    assert np.isnan(points_of(ink)).all()
    ink[5:35, 18:22] = True
    top, bottom, crossing = points_of(ink)
    assert abs(top[0] - 20) < 1.5
    assert 5 < top[1] < 9
    assert 31 < bottom[1] < 35
    assert np.isnan(crossing).all()
    ink[18:22, 5:35] = True
    np.testing.assert_allclose(points_of(ink)[2], (20, 20), atol=1.5)
    rows, columns = np.mgrid[:40, :40]
    far = np.hypot(rows - 20, columns - 20)
    assert np.isnan(points_of((far < 15) & (far > 10))).all()
    single = np.zeros((40, 40), bool)
    single[(far < 9) & (far > 5)] = True
    single[2:14, 19:22] = True  # a ring with a line upwards
    top, bottom, crossing = points_of(single)
    assert top[1] < 6
    assert np.isnan(bottom).all()
    assert 9 < crossing[1] < 16


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_training_twice_gives_the_same_weights(folder: Path, load: Loader) -> None:
    """The loss of a batch is finite, and the detector's weights stay."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    pytest.importorskip("skimage")
    from utils.datasets.synthetic.digit_scenes import compose, sources
    from utils.export.networks.training import Plan, fit

    train = load(folder, "train")
    made_of = sources("train")
    batches = [[compose(made_of, 1, 2 * place + one, varied=True) for one in range(2)] for place in range(3)]
    states, losses = [], []
    for _ in range(2):
        torch.manual_seed(0)
        network = train.DigitPose() if folder == POSE else train.DigitInstances()
        train.load_detector(network.detector, train.START)
        before = {key: value.clone() for key, value in network.detector.state_dict().items()}
        source = train.with_points(iter(batches)) if folder == POSE else iter(batches)
        averaged = fit(
            network,
            lambda batch, network=network: train.loss(network, batch),
            source,
            Plan(3, every=1),
            lambda step, late, averaged: losses.append(late),
        )
        states.append(averaged.state_dict())
        assert all(torch.equal(before[key], value) for key, value in network.detector.state_dict().items())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert losses[:3] == losses[3:]
    assert all(np.isfinite(losses))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
@pytest.mark.parametrize("target", ["onnx", "sdaa", "cpu"])
def test_metric_equals_the_readme(folder: Path, target: str, run_python: RunPython, tmp_path: Path) -> None:
    done = run_python(folder / "example_valid.py", "--target", target, "--json", tmp_path / "r.json")
    assert done.returncode == 0, done.stderr
    told = re.findall(r"^eval_metric (0\.[0-9]+)$", (folder / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(told) == 2
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["metric"] == pytest.approx(float(told[1]), abs=0.005)
