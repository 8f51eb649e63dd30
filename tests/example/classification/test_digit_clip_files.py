"""The committed files of the pair of encoders belong together: sizes, metadata, images, weights."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from types import ModuleType

import numpy as np
import onnx
import pytest
from support import ROOT, RunPython

from engine import EngineSpec, open_engine
from utils.datasets.image.captions import load_captions
from utils.datasets.loading import load_dataset

FOLDER = ROOT / "example" / "classification" / "digit_clip"
FILES = tuple(f"digit_clip_{name}{form}_dyn.onnx" for name in ("image", "text") for form in ("", "_float16"))
SCRIPTS = ("captions", "model", "scenes")


@pytest.fixture
def modules() -> Iterator[dict[str, ModuleType]]:
    """The folder's modules; afterwards none of these common names is left."""
    for name in SCRIPTS:
        sys.modules.pop(name, None)
    sys.path.insert(0, str(FOLDER))
    yield {name: importlib.import_module(name) for name in SCRIPTS}
    sys.path.remove(str(FOLDER))
    for name in SCRIPTS:
        sys.modules.pop(name, None)


def test_committed_files_are_within_size_limits() -> None:
    assert all((FOLDER / name).stat().st_size < 1_000_000 for name in (*FILES, "digit_clip.pth"))
    assert sum(path.stat().st_size for path in (FOLDER / "data").rglob("*") if path.is_file()) < 600_000


@pytest.mark.parametrize("name", FILES)
def test_metadata_of_the_onnx_files(name: str) -> None:
    model = onnx.load(FOLDER / name)
    onnx.checker.check_model(model, full_check=True)
    notes = {prop.key: json.loads(prop.value) for prop in model.metadata_props if prop.value.startswith(("[", "{"))}
    (given,) = model.graph.output
    assert [dim.dim_value for dim in given.type.tensor_type.shape.dim][1:] == [64]
    if "image" in name:
        assert notes["preprocess"]["crop_shape"] in (48, [48, 48])
        assert notes["image_text"]["template"] == ["a {}"]
    else:
        assert [one.name for one in model.graph.input] == ["input_ids", "attention_mask"]
        assert "three" in notes["tokenizer"]["model"]["vocab"]


def test_images_captions_and_labels_are_of_held_out_combinations(modules: dict[str, ModuleType]) -> None:
    pytest.importorskip("sklearn")
    known, new = modules["scenes"].combinations()
    assert (len(known), len(new), len({*known, *new})) == (160, 80, 240)
    found = load_captions({"data": FOLDER / "data"})
    assert [one.captions for one in found.samples] == [(one.caption,) for one in new]
    labels = load_dataset(FOLDER / "data").labels
    names = (FOLDER / "data/digits.txt").read_text(encoding="utf-8").split()
    assert [names[label] for label in labels] == [one.digit for one in new]


@pytest.mark.torch
def test_onnx_outputs_equal_the_weights(modules: dict[str, ModuleType]) -> None:
    torch = pytest.importorskip("torch")
    words = len(json.loads(modules["captions"].tokenizer())["model"]["vocab"])
    trained = modules["model"].DigitClip(words).eval()
    trained.load_state_dict(torch.load(FOLDER / "digit_clip.pth", weights_only=True))
    chance = np.random.default_rng(0)
    ids = chance.integers(2, words, (3, 8))
    mask = (np.arange(8) < [[8], [5], [3]]).astype(np.int64)
    given = {"image": [chance.normal(size=(3, 3, 48, 48)).astype(np.float32)], "text": [ids, mask]}
    for name, arrays in given.items():
        with torch.no_grad():
            wanted = getattr(trained, name)(*map(torch.from_numpy, arrays)).numpy()
        for form, dtype, least in (("", "float32", 1e-4), ("_float16", "float16", 0.01)):
            with open_engine(
                "onnx", EngineSpec(ckpt=FOLDER / f"digit_clip_{name}{form}_dyn.onnx", dtype=dtype)
            ) as engine:
                cast = [one.astype(dtype) if one.dtype.kind == "f" else one for one in arrays]
                found = np.asarray(engine(cast), np.float32)
            assert np.abs(found - wanted).max() < least


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "wanted"),
    [((), "RETRIEVAL"), (("--classes", str(FOLDER / "data/digits.txt")), "DIGITS")],
)
def test_metric_equals_the_readme(words: tuple[str, ...], wanted: str, run_python: RunPython) -> None:
    """One image may turn where another machine computes otherwise."""
    done = run_python(FOLDER / "example_valid.py", "--target", "onnx", *words)
    assert done.returncode == 0, done.stderr
    (metric,) = (line.split()[1] for line in done.stdout.splitlines() if line.startswith("eval_metric"))
    assert float(metric) == pytest.approx(FIGURES[wanted], abs=0.019)


FIGURES = {"RETRIEVAL": 0.7, "DIGITS": 0.325}
