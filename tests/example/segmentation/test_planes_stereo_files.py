"""The committed files of planes_stereo belong together: scenes, weights, ONNX files, end-point error."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from types import ModuleType

import numpy as np
import onnx
import pytest
from PIL import Image
from support import ROOT

from engine import EngineSpec, open_engine
from tecoinfer_modelzoo import evaluate
from utils.datasets.synthetic.stereo_scenes import HEIGHT, NEAREST, WIDTH, compose, material
from utils.tasks.dense_regression.task import DenseRegression

FOLDER = ROOT / "example" / "segmentation" / "planes_stereo"
FILES = ("planes_stereo_dyn.onnx", "planes_stereo_float16_dyn.onnx")
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


def test_scenes_equal_make_data(load: Loader) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("skimage")
    make_data, made_of = load("make_data"), material("val")
    assert len(list((FOLDER / "data/val/disp_occ_0").glob("*.png"))) == make_data.SCENES
    for number in (0, 17):
        made = compose(made_of, make_data.SEED, number)
        with Image.open(FOLDER / f"data/val/disp_occ_0/{number:06d}_10.png") as stored:
            np.testing.assert_array_equal(np.array(stored), np.rint(made.disparity * 256).astype(np.uint16))
        with Image.open(FOLDER / f"data/val/image_2/{number:06d}_10.png") as left:
            found = np.asarray(left.convert("RGB"), np.int64)
        assert np.abs(found - made.left).mean() < 5  # a palette of 256 colours


def test_the_disparity_is_exact() -> None:
    """The right image, sampled at x - d, shows what the left one does, but for occlusions, noise and gain."""
    pytest.importorskip("sklearn")
    pytest.importorskip("skimage")
    made_of = material("val")
    for number in range(4):
        made = compose(made_of, 5, number)
        assert made.left.shape == made.right.shape == (HEIGHT, WIDTH, 3)
        assert made.disparity.min() >= 0
        assert made.disparity.max() < NEAREST + 2
        rows, columns = np.nonzero(made.disparity)
        x = columns - made.disparity[rows, columns].astype(np.float64)
        start = np.floor(x).astype(int).clip(0, WIDTH - 2)
        share = (x - start)[:, None]
        right = made.right.astype(np.float64)
        seen = right[rows, start] * (1 - share) + right[rows, start + 1] * share
        left = made.left[rows, columns].astype(np.float64)
        gain = np.median(left / np.maximum(seen, 1))
        at_place = np.median(np.abs(seen * gain - left))
        elsewhere = np.median(np.abs(right[rows, columns] * gain - left))
        assert at_place < 5
        assert at_place < elsewhere


def test_committed_files_are_small_and_their_licences_named() -> None:
    assert all((FOLDER / name).stat().st_size < 400_000 for name in (*FILES, "planes_stereo.pth"))
    assert sum(path.stat().st_size for path in (FOLDER / "data").rglob("*") if path.is_file()) < 700_000
    text = (FOLDER / "LICENSES.md").read_text(encoding="utf-8")
    assert all(name in text for name in ("camera.png", "cell.png", "gravel.png", "retina.jpg", "rocket.jpg"))


@pytest.mark.parametrize("name", FILES)
def test_metadata_of_the_onnx_files(name: str) -> None:
    model = onnx.load(FOLDER / name)
    onnx.checker.check_model(model, full_check=True)
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    assert shapes == {
        **{key: [0, 3, HEIGHT, WIDTH] for key in ("left", "right")},  # 0: a symbol
        **{key: [0, 1, HEIGHT, WIDTH] for key in ("disparity", "confidence")},
    }
    notes = {prop.key: prop.value for prop in model.metadata_props}
    assert json.loads(notes["dense_regression"]) == {"quantity": "disparity", "view_order": "left_right"}


@pytest.mark.torch
def test_onnx_outputs_equal_the_weights(load: Loader) -> None:
    torch = pytest.importorskip("torch")
    network = load("model").PlanesStereo().eval()
    network.load_state_dict(torch.load(FOLDER / "planes_stereo.pth", weights_only=True))
    views = [np.random.default_rng(seed).random((2, 3, HEIGHT, WIDTH), np.float32) for seed in range(2)]
    with torch.no_grad():
        wanted = [one.numpy() for one in network(*map(torch.from_numpy, views))]
    with open_engine("onnx", EngineSpec(ckpt=FOLDER / FILES[0])) as engine:
        for found, right in zip(engine(views), wanted, strict=True):
            np.testing.assert_allclose(found, right, atol=1e-3)


@pytest.mark.torch
def test_the_volume_shifts_the_right_image(load: Loader) -> None:
    """At the disparity of a shifted image there is no difference, but where the image ends."""
    torch = pytest.importorskip("torch")
    model = load("model")
    left = torch.rand(1, model.FEATURES, 4, 24, generator=torch.Generator().manual_seed(0))
    right = torch.roll(left, -3, dims=3)
    found = model.PlanesStereo().volume(left, right)
    assert found.shape == (1, model.GROUPS, model.STEPS, 4, 24)
    assert (found[:, :, 3, :, 3:] == 0).all()
    alone = left.reshape(model.GROUPS, -1, 4, 24).mean(dim=1)
    torch.testing.assert_close(found[0, :, 3, :, :3], alone[..., :3])


@pytest.mark.torch
def test_training_repeats(load: Loader) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    pytest.importorskip("skimage")
    train = load("train")
    train.SCENES = 4
    batches = [next(train.batches()) for _ in range(2)]
    losses = []
    for batch in batches:
        torch.manual_seed(0)
        losses.append(train.loss(train.PlanesStereo(), batch).item())
    assert losses[0] == losses[1] > 0


def test_the_error_is_smaller_than_without_the_network() -> None:
    """The mean distance of the true values to their own median is the error of a constant."""
    report = evaluate(DenseRegression, ckpt=FOLDER / FILES[0], data=FOLDER / "data" / "val", target="onnx")
    assert report.samples == 32
    maps = [np.array(Image.open(file), float) / 256 for file in (FOLDER / "data/val/disp_occ_0").glob("*.png")]
    blind = np.mean([np.abs(one[one > 0] - np.median(one[one > 0])).mean() for one in maps])
    assert report.metric < 0.75 * blind
    assert report.secondary["epe_surest"] < report.metric
