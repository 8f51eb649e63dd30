from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from PIL import Image

from engine import EngineSpec, open_engine
from utils.pipeline import cli
from utils.preprocess.pytorch.classification import preprocess

DIGITS = Path(__file__).resolve().parents[2] / "example" / "classification" / "digits"
FILES = ("digits.onnx", "digits_dyn.onnx", "digits_float16_dyn.onnx")
SCRIPTS = ("export_onnx", "make_data", "model", "train")

Loader = Callable[[str], ModuleType]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loader]:
    """Import a script of the folder by name; before and afterwards no module of these common names is there."""
    monkeypatch.syspath_prepend(DIGITS)
    for name in SCRIPTS:
        sys.modules.pop(name, None)
    yield importlib.import_module
    for name in SCRIPTS:
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def held_out() -> tuple[np.ndarray, np.ndarray]:
    """The 360 committed images, preprocessed as the example scripts do, and their digits."""
    paths = sorted((DIGITS / "data" / "val").glob("*/*.png"))
    labels = np.array([int(path.parent.name) for path in paths])
    return preprocess(list(paths), dtype="float32", resize_shape=32, crop_shape=32), labels


def answers(name: str, x: np.ndarray) -> np.ndarray:
    dtype = "float16" if "float16" in name else "float32"
    with open_engine("onnx", EngineSpec(ckpt=DIGITS / name, dtype=dtype)) as engine:
        found = engine(x.astype(dtype))
    assert isinstance(found, np.ndarray)
    return found.astype(np.float32)


@pytest.mark.parametrize("name", FILES)
def test_top_1_on_the_held_out_images(name: str, held_out: tuple[np.ndarray, np.ndarray]) -> None:
    x, labels = held_out
    assert len(labels) == 360
    assert (answers(name, x).argmax(1) == labels).mean() >= 0.98


@pytest.mark.parametrize("name", FILES)
def test_metadata_of_the_files(name: str) -> None:
    model = onnx.load(DIGITS / name)
    onnx.checker.check_model(model, full_check=True)
    [value], [answer] = model.graph.input, model.graph.output
    assert (value.name, answer.name) == ("input", "output")
    shape = [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
    assert shape == [1 if name == "digits.onnx" else "batch", 3, 32, 32]
    notes = {prop.key: prop.value for prop in model.metadata_props}
    assert json.loads(notes["class_labels"]) == [str(digit) for digit in range(10)]
    sizes = json.loads(notes["preprocess"])
    assert (sizes["resize_shape"], sizes["crop_shape"]) == (32, 32)
    assert float(notes["max_relative_error"]) < (5e-2 if "float16" in name else 1e-3)
    assert json.loads(notes["provenance"])["source"] == "example/classification/digits/model.py"


def test_committed_files_are_below_one_megabyte() -> None:
    files = [DIGITS / name for name in (*FILES, "digits.pth")] + list(DIGITS.glob("data/val/*/*.png"))
    assert sum(path.stat().st_size for path in files) < 700_000


def test_the_images_are_those_make_data_writes(
    load: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.setattr(sys, "argv", ["make_data.py", "--out", str(tmp_path)])
    load("make_data").main()
    assert capsys.readouterr().out.endswith("360 images\n")
    committed, written = DIGITS / "data" / "val", tmp_path
    names = sorted(path.relative_to(committed) for path in committed.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(written) for path in written.glob("*/*.png"))
    for name in names:
        with Image.open(committed / name) as one, Image.open(written / name) as two:
            assert (one.mode, one.size) == ("L", (8, 8))
            assert one.tobytes() == two.tobytes()


def test_no_image_is_trained_on_and_held_out(load: Loader) -> None:
    pytest.importorskip("sklearn")
    make_data = load("make_data")
    labels = make_data.digits()[1]
    train, held_out = make_data.split(labels)
    assert sorted([*train, *held_out]) == list(range(1797))
    counts = np.bincount(labels[held_out])
    assert len(held_out) == 360
    assert (abs(counts - np.bincount(labels) * 360 / 1797) < 1).all()


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.parametrize(("name", "atol"), [*zip(FILES, (1e-4, 1e-4, 2e-2), strict=True)])
def test_file_outputs_equal_the_weights(
    name: str, atol: float, load: Loader, held_out: tuple[np.ndarray, np.ndarray]
) -> None:
    torch = pytest.importorskip("torch")
    model = load("model").DigitsNet().eval()
    model.load_state_dict(torch.load(DIGITS / "digits.pth", weights_only=True))
    with torch.no_grad():
        wanted = model(torch.from_numpy(held_out[0])).numpy()
    found = answers(name, held_out[0])
    np.testing.assert_allclose(found, wanted, atol=atol)
    np.testing.assert_array_equal(found.argmax(1), wanted.argmax(1))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.torch
def test_training_twice_gives_the_same_weights(load: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    train = load("train")
    monkeypatch.setattr(train, "EPOCHS", 2)
    x, y, *_ = train.load()
    assert len(x) == 1437
    states = []
    for _ in range(2):
        torch.manual_seed(0)
        states.append(train.train(x[:160], y[:160]).state_dict())
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.torch
def test_export_writes_the_committed_files_again(
    load: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnxsim")
    monkeypatch.setattr(sys, "argv", ["export_onnx.py", "--out", str(tmp_path)])
    assert load("export_onnx").main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(f"{tmp_path / name}: largest" in line for name, line in zip(FILES, lines, strict=True))
    for name in FILES:
        new, old = onnx.load(tmp_path / name), onnx.load(DIGITS / name)
        assert [node.op_type for node in new.graph.node] == [node.op_type for node in old.graph.node]
        assert {p.key for p in new.metadata_props} == {p.key for p in old.metadata_props}


@pytest.mark.torch
def test_export_without_weights_is_one_line_and_exit_code_2(
    load: Loader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnxsim")
    monkeypatch.setattr(sys, "argv", ["export_onnx.py", "--weights", "none.pth", "--out", str(tmp_path)])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # cli.run replaces it
    with pytest.raises(SystemExit, match="2"):
        cli.run(load("export_onnx").main)
    assert capsys.readouterr().err == "error: weights file none.pth does not exist; check the path\n"
