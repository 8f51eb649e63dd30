"""The committed files of the digit detector belong together: scenes, annotations, weights, ONNX files, metric."""

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
from utils.datasets.image.boxes import load_boxes
from utils.datasets.synthetic.digit_scenes import PHOTOS

FOLDER = ROOT / "example" / "detection" / "digit_detector"
FILES = ("digit_detector_dyn.onnx", "digit_detector_float16_dyn.onnx")
SCRIPTS = ("export_onnx", "make_data", "model", "train")

Loader = Callable[[str], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loader]:
    """Import a script of the folder by name; afterwards no module of these common names is left."""
    for name in SCRIPTS:
        sys.modules.pop(name, None)
    monkeypatch.syspath_prepend(FOLDER)
    yield importlib.import_module
    for name in SCRIPTS:
        sys.modules.pop(name, None)


def answers(name: str, x: np.ndarray) -> list[np.ndarray]:
    dtype = "float16" if "float16" in name else "float32"
    with open_engine("onnx", EngineSpec(ckpt=FOLDER / name, dtype=dtype)) as engine:
        found = engine(x.astype(dtype))
    return [np.asarray(one, np.float32) for one in found]


def scenes(count: int) -> np.ndarray:
    """The first committed scenes as the network's input."""
    images = [np.asarray(Image.open(path)) for path in sorted((FOLDER / "data/val").glob("*.jpg"))[:count]]
    return ((np.stack(images).transpose(0, 3, 1, 2) / np.float32(255)) - np.float32(0.5)) / np.float32(0.25)


def test_scenes_equal_make_data(load: Loader) -> None:
    """Any thirtieth one; images only nearly, for another release of Pillow may encode and decode them otherwise."""
    pytest.importorskip("sklearn")
    pytest.importorskip("skimage")
    from utils.datasets.synthetic.digit_scenes import compose, sources

    make_data = load("make_data")
    data = json.loads((FOLDER / "data/val.json").read_text(encoding="utf-8"))
    assert [entry["file_name"] for entry in data["images"]] == [f"val/{n:04d}.jpg" for n in range(make_data.SCENES)]
    assert [entry["name"] for entry in data["categories"]] == list(make_data.LABELS)
    assert [entry["id"] for entry in data["annotations"]] == list(range(1, len(data["annotations"]) + 1))
    made_of = sources("val")
    for number in range(0, make_data.SCENES, 30):
        made = compose(made_of, make_data.SEED, number)
        found = [entry for entry in data["annotations"] if entry["image_id"] == number]
        assert found == make_data.annotations(number, found[0]["id"], made)
        with Image.open(FOLDER / f"data/val/{number:04d}.jpg") as image:
            difference = np.abs(np.asarray(image, np.int64) - made.image)
        assert difference.mean() < 5
    with Image.open(FOLDER / f"data/samples/{make_data.SCENES:04d}.jpg") as image:
        made = compose(made_of, make_data.SEED, make_data.SCENES)
        assert np.abs(np.asarray(image, np.int64) - made.image).mean() < 5


def test_all_data_are_read_with_all_digits() -> None:
    data = load_boxes(FOLDER / "data")
    assert (len(data.samples), data.rejected) == (300, [])
    assert all(len(target.boxes) for target in data.targets)
    counts = np.bincount(np.concatenate([target.classes for target in data.targets]))
    assert len(counts) == 10
    assert counts.min() > 100


def test_committed_files_are_within_size_limits() -> None:
    assert all((FOLDER / name).stat().st_size < 1_500_000 for name in (*FILES, "digit_detector.pth"))
    assert sum(path.stat().st_size for path in (FOLDER / "data").rglob("*") if path.is_file()) < 5_000_000


def test_the_held_out_photographs_licences_are_named() -> None:
    text = (FOLDER / "LICENSES.md").read_text(encoding="utf-8")
    for photo in PHOTOS:
        assert f"`{Path(photo.file).name}`" in text
        assert photo.author.partition(" (")[0] in text


@pytest.mark.parametrize("name", FILES)
def test_metadata_of_the_onnx_files(name: str) -> None:
    model = onnx.load(FOLDER / name)
    onnx.checker.check_model(model, full_check=True)
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    assert shapes == {"input": ["batch", 3, 160, 160], "boxes": ["batch", 400, 4], "scores": ["batch", 400, 10]}
    notes = {prop.key: prop.value for prop in model.metadata_props}
    assert json.loads(notes["class_labels"]) == [str(digit) for digit in range(10)]
    image = json.loads(notes["preprocess"])
    assert (image["mean"], image["std"], image["crop_shape"]) == ([0.5] * 3, [0.25] * 3, 160)
    assert json.loads(notes["provenance"])["source"] == "example/detection/digit_detector/model.py"


@pytest.mark.torch
def test_onnx_outputs_equal_the_weights(load: Loader) -> None:
    torch = pytest.importorskip("torch")
    network = load("model").DigitDetector().eval()
    network.load_state_dict(torch.load(FOLDER / "digit_detector.pth", weights_only=True))
    x = scenes(6)
    with torch.no_grad():
        boxes, scores = (found.numpy() for found in network(torch.from_numpy(x)))
    for name, pixels, sure in zip(FILES, (0.01, 1.0), (1e-4, 0.03), strict=True):
        found = answers(name, x)
        seen = scores.max(axis=2) > 0.1  # boxes of cells that show nothing are anything
        assert seen.sum() > 50
        np.testing.assert_allclose(found[0][seen], boxes[seen], atol=pixels)
        np.testing.assert_allclose(found[1], scores, atol=sure)


@pytest.mark.torch
def test_every_digit_is_assigned_to_cells(load: Loader) -> None:
    torch = pytest.importorskip("torch")
    train = load("train")
    points = train.centres(torch.zeros(1, 3, 160, 160))[0].flatten(1).T
    boxes = torch.tensor([[[13.0, 20, 16, 50], [100, 100, 156, 156], [torch.nan] * 4]])
    learns, which = train.assigned(boxes, points)
    assert [int((learns & (which == place)).sum()) for place in range(3)] == [3, 4, 0]
    # the thin one lies between two columns of cells, and the nearer one learns it
    assert {float(x) for x, _ in points[learns[0] & (which[0] == 0)]} == {12.0}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.torch
def test_training_twice_gives_the_same_weights(load: Loader) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    pytest.importorskip("skimage")
    from utils.datasets.synthetic.digit_scenes import compose, sources
    from utils.export.networks.training import Plan, fit

    train = load("train")
    made_of = sources("train")
    batches = [[compose(made_of, 1, 2 * place + one, varied=True) for one in range(2)] for place in range(3)]
    states, losses = [], []
    for _ in range(2):
        torch.manual_seed(0)
        network = train.DigitDetector()
        averaged = fit(
            network,
            lambda scenes, network=network: train.loss(network, 1.0, scenes),
            iter(batches),
            Plan(3, every=1),
            lambda step, late, averaged: losses.append(late),
        )
        states.append(averaged.state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert losses[:3] == losses[3:]
    assert all(np.isfinite(losses))


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.long
def test_training_finds_one_scene(load: Loader) -> None:
    """A network that sees the same two scenes again and again finds the digits in them."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    pytest.importorskip("skimage")
    from itertools import repeat

    from utils.datasets.synthetic.digit_scenes import compose, sources
    from utils.export.networks.training import Plan, fit

    train = load("train")
    made_of = sources("train")
    batch = [compose(made_of, 1, number, varied=True) for number in range(2)]
    torch.manual_seed(0)
    network = train.DigitDetector()
    averaged = fit(
        network, lambda scenes: train.loss(network, 1.0, scenes), repeat(batch), Plan(150, average=0.9), lambda *_: None
    )
    with torch.no_grad():
        boxes, scores = averaged(train.to_input([scene.image for scene in batch]))
    for scene, *answer in zip(batch, boxes.numpy(), scores.numpy(), strict=True):
        found = train.detections(*answer)
        sure = found.scores > 0.3
        assert sorted(found.classes[sure].tolist()) == sorted(scene.labels.tolist())


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("flags", [("--target", "onnx"), ("--target", "sdaa"), ("--target", "cpu")], ids="-".join)
def test_metric_equals_the_readme(flags: tuple[str, ...], run_python: RunPython, tmp_path: Path) -> None:
    done = run_python(FOLDER / "example_valid.py", *flags, "--json", tmp_path / "r.json")
    assert done.returncode == 0, done.stderr
    told = re.findall(r"^eval_metric (0\.[0-9]+)$", (FOLDER / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(told) == 2
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["metric_name"] == "mAP"
    assert min(map(float, told)) >= 0.88
    assert result["metric"] == pytest.approx(float(told[1]), abs=0.002)
