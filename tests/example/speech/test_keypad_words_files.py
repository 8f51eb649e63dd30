"""The committed files of the keypad words belong together: sizes, metadata, clips, weights."""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import onnx
import pytest
from support import ROOT, RunPython

from engine import EngineSpec, open_engine
from utils.datasets.audio.labelled import load_labelled
from utils.preprocess.audio.reading import read_sound
from utils.tasks.model import Model
from utils.tasks.options import Options
from utils.tasks.sound_classification.input import Layout

FOLDER = ROOT / "example" / "speech" / "keypad_words"
FILES = ("keypad_words_dyn.onnx", "keypad_words_float16_dyn.onnx")
SCRIPTS = ("model", "prompts", "words")


@pytest.fixture
def network() -> Iterator[ModuleType]:
    """The folder's ``model.py``; afterwards no module of these common names is left."""
    for name in SCRIPTS:
        sys.modules.pop(name, None)
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module("model")
    sys.path.remove(str(FOLDER))
    for name in SCRIPTS:
        sys.modules.pop(name, None)


def test_committed_files_are_within_size_limits() -> None:
    assert all((FOLDER / name).stat().st_size < 600_000 for name in (*FILES, "keypad_words.pth"))
    assert sum(path.stat().st_size for path in (FOLDER / "data").rglob("*") if path.is_file()) < 750_000


@pytest.mark.parametrize("name", FILES)
def test_metadata_of_the_onnx_files(name: str) -> None:
    model = onnx.load(FOLDER / name)
    onnx.checker.check_model(model, full_check=True)
    (taken,), (given,) = model.graph.input, model.graph.output
    shapes = [[dim.dim_param or dim.dim_value for dim in one.type.tensor_type.shape.dim] for one in (taken, given)]
    assert (taken.name, shapes[0][1:]) == ("features", [101, 40])
    assert (given.name, shapes[1][1:]) == ("logits", [19])
    notes = {prop.key: json.loads(prop.value) for prop in model.metadata_props if prop.value.startswith(("[", "{"))}
    assert notes["class_labels"][:3] == ["zero", "one", "two"]
    assert notes["features"]["rate"] == 8000


def test_clips_and_their_list() -> None:
    found = load_labelled({"data": FOLDER / "data"})
    assert len(found) == len(list((FOLDER / "data").rglob("*.wav"))) == 203
    assert not found.rejected
    counts = Counter(found.targets)
    labels = json.loads(described(FILES[0]).metadata["class_labels"])
    assert set(counts) == set(labels)
    assert counts["_unknown_"] == 40
    assert max(count for label, count in counts.items() if label != "_unknown_") == 12
    assert len(set(found.units or ())) == 54


def described(name: str) -> Model:
    with open_engine("onnx", EngineSpec(ckpt=FOLDER / name)) as engine:
        return Model.of(engine)


@pytest.mark.torch
def test_onnx_outputs_equal_the_weights(network: ModuleType) -> None:
    torch = pytest.importorskip("torch")
    trained = network.KeypadWords(19).eval()
    trained.load_state_dict(torch.load(FOLDER / "keypad_words.pth", weights_only=True))
    sounds = [read_sound(path).samples for path in sorted((FOLDER / "data/seven").glob("*.wav"))]
    for name, dtype, least in ((FILES[0], "float32", 1e-3), (FILES[1], "float16", 0.1)):
        with open_engine("onnx", EngineSpec(ckpt=FOLDER / name, dtype=dtype)) as engine:
            layout = Layout.of(Model.of(engine), Options())
            heard = np.concatenate([layout.windows(one, 4000, "float32") for one in sounds])
            found = engine(heard.astype(dtype))
        with torch.no_grad():
            wanted = trained(torch.from_numpy(heard)).numpy()
        assert np.abs(np.asarray(found, np.float32) - wanted).max() < least


@pytest.mark.slow
@pytest.mark.parametrize("words", [("onnx",), ("sdaa", "--ckpt", FILES[1])])
def test_metric_equals_the_readme(words: tuple[str, ...], run_python: RunPython) -> None:
    """Top-1 accuracy; one clip may turn where another machine computes otherwise."""
    here = [str(FOLDER / word) if (FOLDER / word).is_file() else word for word in words]
    done = run_python(FOLDER / "example_valid.py", "--target", *here)
    assert done.returncode == 0, done.stderr
    (metric,) = (line.split()[1] for line in done.stdout.splitlines() if line.startswith("eval_metric"))
    assert float(metric) == pytest.approx(ACCURACY, abs=0.0075)


ACCURACY = 0.793103
