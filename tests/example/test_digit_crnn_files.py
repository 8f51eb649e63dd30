"""The committed files of the digit reader belong together: lines, texts, weights, ONNX files, metric."""

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
from utils.datasets.image.text_lines import load_text_lines
from utils.datasets.synthetic.digit_scenes import PHOTOS
from utils.preprocess.image.images import open_image
from utils.preprocess.image.lines import LineForm, line_input

FOLDER = ROOT / "example" / "ocr" / "digit_crnn"
FILES = ("digit_crnn_dyn.onnx", "digit_crnn_float16_dyn.onnx")
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


def form() -> LineForm:
    notes = {prop.key: prop.value for prop in onnx.load(FOLDER / FILES[0]).metadata_props}
    kept = json.loads(notes["text_recognition"])
    sizes = (kept["height"], kept["min_width"], kept["max_width"], kept["multiple"])
    return LineForm(*sizes, kept["channel_order"], kept["pixel_values"], kept["interpolation"])


def test_lines_equal_make_data(load: Loader) -> None:
    """Any fiftieth one; images only nearly, for another Pillow may encode and decode them otherwise."""
    pytest.importorskip("sklearn")
    pytest.importorskip("skimage")
    from utils.datasets.synthetic.digit_lines import compose
    from utils.datasets.synthetic.digit_scenes import sources

    make_data, made_of = load("make_data"), sources("val")
    found = load_text_lines({"data": FOLDER / "data" / "val"})
    assert found.targets is not None
    assert len(found) == make_data.LINES
    for number in range(0, make_data.LINES, 50):
        made = compose(made_of, make_data.SEED, number)
        assert found.targets[number] == made.text
        with Image.open(found.samples[number]) as image:
            assert np.abs(np.asarray(image, np.int64) - made.image).mean() < 5


def test_every_digit_is_in_the_texts_and_a_line_has_three_to_seven() -> None:
    texts = load_text_lines({"data": FOLDER / "data" / "val"}).targets or []
    assert set("".join(texts)) == set("0123456789")
    assert {len(text) for text in texts} == {3, 4, 5, 6, 7}


def test_committed_files_are_within_size_limits() -> None:
    assert all((FOLDER / name).stat().st_size < 1_500_000 for name in (*FILES, "digit_crnn.pth"))
    assert sum(path.stat().st_size for path in (FOLDER / "data").rglob("*") if path.is_file()) < 2_000_000


def test_the_photographs_licences_are_named() -> None:
    text = (FOLDER / "LICENSES.md").read_text(encoding="utf-8")
    for photo in PHOTOS:
        assert f"`{Path(photo.file).name}`" in text
        assert photo.author.partition(" (")[0] in text


@pytest.mark.parametrize("name", FILES)
def test_metadata_of_the_onnx_files(name: str) -> None:
    model = onnx.load(FOLDER / name)
    onnx.checker.check_model(model, full_check=True)
    (taken,) = model.graph.input
    shape = [dim.dim_param or dim.dim_value for dim in taken.type.tensor_type.shape.dim]
    assert (taken.name, shape) == ("input", ["batch", 1, 32, "width"])
    notes = {prop.key: prop.value for prop in model.metadata_props}
    assert json.loads(notes["vocabulary"]) == [str(digit) for digit in range(10)]
    assert json.loads(notes["provenance"])["source"] == "example/ocr/digit_crnn/model.py"


def test_preprocessing_equals_training(load: Loader) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    train = load("train")
    image = open_image(FOLDER / "data" / "samples" / "0503.jpg")
    wanted = train.to_input([image]).numpy()[0]
    found, width = line_input(image, form())
    assert np.abs(found[..., :width] - wanted[..., :width]).max() < 1e-6
    assert not wanted[..., width:].any()


@pytest.mark.torch
def test_onnx_outputs_equal_the_weights(load: Loader) -> None:
    torch = pytest.importorskip("torch")
    network = load("model").DigitCRNN().eval()
    network.load_state_dict(torch.load(FOLDER / "digit_crnn.pth", weights_only=True))
    line, _ = line_input(open_image(FOLDER / "data" / "samples" / "0500.jpg"), form())
    with torch.no_grad():
        wanted = network(torch.from_numpy(line[None])).numpy()
    for name, dtype, least in ((FILES[0], "float32", 1e-4), (FILES[1], "float16", 2e-2)):
        with open_engine("onnx", EngineSpec(ckpt=FOLDER / name, dtype=dtype)) as engine:
            found = engine(line[None].astype(dtype))
        assert isinstance(found, np.ndarray)
        assert np.abs(found.astype(np.float32) - wanted).max() < least


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.torch
def test_training_repeats_and_learns(load: Loader) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    pytest.importorskip("skimage")
    from utils.export.networks.training import Plan, fit

    train, states, late = load("train"), [], list[float]()
    for _ in range(2):
        torch.manual_seed(0)
        network = train.DigitCRNN()
        made = fit(
            network,
            lambda lines, network=network: train.loss(network, lines),
            train.training_batches(1, 4),
            Plan(12, rate=0.001, warm=2, every=4),
            lambda step, loss, averaged: late.append(loss),
        )
        states.append(made.state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert late[2] < late[0]
