"""The committed files of espcn_x2 belong together: images, weights, ONNX files, PSNR."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from PIL import Image
from support import ROOT

from engine import EngineSpec, open_engine
from tecoinfer_modelzoo import evaluate
from utils.datasets.synthetic.digit_scenes import PHOTOS
from utils.tasks.image_restoration.task import ImageRestoration

FOLDER = ROOT / "example" / "restoration" / "espcn_x2"
FILES = ("espcn_x2_dyn.onnx", "espcn_x2_float16_dyn.onnx")
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


def test_the_held_out_images_equal_make_data(load: Loader) -> None:
    pytest.importorskip("skimage")
    make_data = load("make_data")
    from utils.datasets.synthetic.digit_scenes import photo_path

    found = {path.name: np.asarray(Image.open(path)) for path in (FOLDER / "data/val/HR").glob("*.png")}
    assert len(found) == sum(make_data.COUNTS.values())
    photos = {Path(one.file).stem: one for one in PHOTOS}
    assert all(photos[name].part == "val" for name in make_data.COUNTS)
    for name, count in make_data.COUNTS.items():
        if name == "retina":  # another release of libjpeg may decode it otherwise
            continue
        squares = make_data.squares(Image.open(photo_path(photos[name])), count)
        for number, square in enumerate(squares):
            if name != "rocket":
                np.testing.assert_array_equal(found[f"{name}_{number}.png"], np.asarray(square))


def test_committed_files_are_small_and_their_licences_named() -> None:
    assert all((FOLDER / name).stat().st_size < 200_000 for name in (*FILES, "espcn_x2.pth"))
    assert sum(path.stat().st_size for path in (FOLDER / "data").rglob("*") if path.is_file()) < 500_000
    text = (FOLDER / "LICENSES.md").read_text(encoding="utf-8")
    for stem in {path.stem.partition("_")[0] for path in (FOLDER / "data").rglob("*.*g")}:
        assert f"`{stem}." in text


@pytest.mark.parametrize("name", FILES)
def test_metadata_of_the_onnx_files(name: str) -> None:
    model = onnx.load(FOLDER / name)
    onnx.checker.check_model(model, full_check=True)
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*model.graph.input, *model.graph.output)
    }
    assert shapes == {"input": [0, 3, 64, 64], "output": [0, 3, 128, 128]}  # 0: a symbol
    notes = json.loads({prop.key: prop.value for prop in model.metadata_props}["restoration"])
    assert (notes["scale"], notes["y_channel"], notes["crop_border"]) == (2, True, 2)


@pytest.mark.torch
def test_onnx_outputs_equal_the_weights(load: Loader) -> None:
    torch = pytest.importorskip("torch")
    network = load("model").Espcn().eval()
    network.load_state_dict(torch.load(FOLDER / "espcn_x2.pth", weights_only=True))
    x = np.random.default_rng(0).random((2, 3, 64, 64), np.float32)
    with torch.no_grad():
        wanted = network(torch.from_numpy(x)).numpy()
    with open_engine("onnx", EngineSpec(ckpt=FOLDER / FILES[0])) as engine:
        np.testing.assert_allclose(engine(x), wanted, atol=1e-5)


@pytest.mark.torch
def test_the_receptive_field(load: Loader) -> None:
    """A pixel changes the output at most RADIUS pixels of the input away, so tiles may overlap by twice that."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    network, radius = load("model").Espcn().eval(), load("model").RADIUS
    x = torch.rand(1, 3, 32, 32)
    y = x.clone()
    y[:, :, 16, 16] += 1
    with torch.no_grad():
        changed = (network(x) != network(y)).any(dim=1)[0].nonzero()
    assert changed.min(dim=0).values.tolist() == [2 * (16 - radius)] * 2
    assert changed.max(dim=0).values.tolist() == [2 * (16 + radius) + 1] * 2


@pytest.mark.torch
def test_training_repeats(load: Loader) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("skimage")
    train = load("train")
    low, high = next(train.batches(1))
    again = next(train.batches(1))
    assert torch.equal(low, again[0])
    assert torch.equal(high, again[1])
    assert (low.shape, high.shape) == ((train.BATCH, 3, train.SIDE // 2, train.SIDE // 2), (train.BATCH, 3, 80, 80))
    image = train.halved(Image.fromarray((255 * high[0].permute(1, 2, 0)).round().byte().numpy()))
    assert torch.equal(train.as_input([image])[0], low[0])


def test_it_is_better_than_the_bicubic_filter() -> None:
    report = evaluate(ImageRestoration, ckpt=FOLDER / FILES[0], data=FOLDER / "data" / "val", target="onnx")
    assert report.samples == 20
    assert report.metric > report.secondary["input_psnr"] + 0.5
