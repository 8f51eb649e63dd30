"""The committed files of the digit segmenter belong together: scenes, masks, weights, ONNX files, metric."""

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
from utils.datasets.synthetic.digit_scenes import PHOTOS

FOLDER = ROOT / "example" / "segmentation" / "digit_unet"
FILES = ("digit_unet_dyn.onnx", "digit_unet_float16_dyn.onnx")
SCRIPTS = ("export_onnx", "make_data", "model", "train")
CLASSES = 11

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


def answers(name: str, x: np.ndarray) -> np.ndarray:
    dtype = "float16" if "float16" in name else "float32"
    with open_engine("onnx", EngineSpec(ckpt=FOLDER / name, dtype=dtype)) as engine:
        found = engine(x.astype(dtype))
    assert isinstance(found, np.ndarray)
    return found.astype(np.float32)


def scenes(count: int) -> np.ndarray:
    """The first committed scenes as the network's input."""
    images = [np.asarray(Image.open(path)) for path in sorted((FOLDER / "data/val/images").glob("*.jpg"))[:count]]
    return ((np.stack(images).transpose(0, 3, 1, 2) / np.float32(255)) - np.float32(0.5)) / np.float32(0.25)


def masks(count: int | None) -> np.ndarray:
    """The first committed masks."""
    return np.stack([np.array(Image.open(path)) for path in sorted((FOLDER / "data/val/masks").glob("*.png"))[:count]])


def test_scenes_equal_make_data(load: Loader) -> None:
    """Any twenty-fifth one; images only nearly, for another Pillow may encode and decode them otherwise."""
    pytest.importorskip("sklearn")
    pytest.importorskip("skimage")
    from utils.datasets.synthetic.digit_scenes import compose, sources

    make_data = load("make_data")
    made_of, found = sources("val"), masks(None)
    assert len(found) == len(list((FOLDER / "data/val/images").glob("*.jpg"))) == make_data.SCENES
    for number in range(0, make_data.SCENES, 25):
        made = compose(made_of, make_data.SEED, number)
        np.testing.assert_array_equal(found[number], made.mask)
        with Image.open(FOLDER / f"data/val/images/{number:04d}.jpg") as image:
            assert np.abs(np.asarray(image, np.int64) - made.image).mean() < 5


def test_every_class_is_in_the_masks_and_no_other() -> None:
    counts = np.bincount(masks(None).ravel())
    assert len(counts) == CLASSES
    assert counts.min() > 5000
    with Image.open(FOLDER / "data/val/masks/0000.png") as mask:
        assert mask.mode == "P"
        assert len(set(mask.convert("RGB").get_flattened_data())) == len(np.unique(np.array(mask)))


def test_committed_files_are_within_size_limits() -> None:
    assert all((FOLDER / name).stat().st_size < 1_500_000 for name in (*FILES, "digit_unet.pth"))
    assert sum(path.stat().st_size for path in (FOLDER / "data").rglob("*") if path.is_file()) < 5_000_000


def test_the_photographs_licences_are_named() -> None:
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
    assert shapes == {"input": ["batch", 3, 160, 160], "logits": ["batch", CLASSES, 160, 160]}
    notes = {prop.key: prop.value for prop in model.metadata_props}
    assert json.loads(notes["class_labels"]) == ["background", *(str(digit) for digit in range(10))]
    image = json.loads(notes["preprocess"])
    assert (image["mean"], image["std"], image["crop_shape"]) == ([0.5] * 3, [0.25] * 3, 160)
    assert json.loads(notes["provenance"])["source"] == "example/segmentation/digit_unet/model.py"


@pytest.mark.torch
def test_onnx_outputs_equal_the_weights(load: Loader) -> None:
    torch = pytest.importorskip("torch")
    network = load("model").DigitUNet().eval()
    network.load_state_dict(torch.load(FOLDER / "digit_unet.pth", weights_only=True))
    x = scenes(4)
    with torch.no_grad():
        logits = network(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(answers(FILES[0], x), logits, atol=2e-3)
    assert (answers(FILES[1], x).argmax(1) == logits.argmax(1)).mean() > 0.999


@pytest.mark.slow
@pytest.mark.torch
def test_logits_combine_ink_and_digit(load: Loader) -> None:
    """P(background) is 1 - P(ink), and the digits share P(ink) as the second head says."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    network = load("model").DigitUNet().eval()
    x = torch.randn(2, 3, 32, 48)
    with torch.no_grad():
        ink, digit = network.raw(x)
        shares = torch.softmax(network(x), dim=1)
    torch.testing.assert_close(shares[:, :1], 1 - torch.sigmoid(ink))
    torch.testing.assert_close(shares[:, 1:], torch.sigmoid(ink) * torch.softmax(digit, dim=1))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.torch
def test_training_starts_from_the_detector_and_repeats(load: Loader) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    pytest.importorskip("skimage")
    from utils.datasets.synthetic.digit_scenes import compose, sources
    from utils.export.networks.training import Plan, fit

    train = load("train")
    made_of = sources("train")
    batches = [[compose(made_of, 2, 2 * place + one, varied=True) for one in range(2)] for place in range(2)]
    states = []
    for _ in range(2):
        torch.manual_seed(0)
        network = train.DigitUNet()
        taken = train.start(network, train.START)
        detector = torch.load(train.START, weights_only=True)
        assert taken == sum(name in network.state_dict() for name in detector) > 50
        assert torch.equal(network.state_dict()["mix.0.weight"], detector["mix.0.weight"])
        averaged = fit(
            network,
            lambda batch, network=network: train.loss(network, batch),
            iter(batches),
            Plan(2),
            lambda step, late, averaged: None,
        )
        states.append(averaged.state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert not torch.equal(states[0]["mix.0.weight"], detector["mix.0.weight"])


@pytest.mark.slow
@pytest.mark.long
def test_mean_iou_of_the_committed_files() -> None:
    wanted = masks(None)
    x = scenes(len(wanted))
    for name in FILES:
        found = np.concatenate([answers(name, x[start : start + 25]).argmax(1) for start in range(0, len(x), 25)])
        counts = np.bincount(wanted.ravel() * np.int64(CLASSES) + found.ravel(), minlength=CLASSES**2)
        counts = counts.reshape(CLASSES, CLASSES)
        right = counts.diagonal()
        assert (right / (counts.sum(0) + counts.sum(1) - right)).mean() >= 0.88
