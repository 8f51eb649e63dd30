"""The committed files of the prompts' recogniser belong together: sizes, what they say of themselves, lists, metric."""

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
from utils.fetch import UnreachableError, fetched
from utils.preprocess.audio.features import features, settings_of
from utils.preprocess.audio.reading import read_sound
from utils.tasks.model import Model

FOLDER = ROOT / "example" / "speech" / "prompts_ctc"
FILES = ("prompts_ctc_dyn.onnx", "prompts_ctc_float16_dyn.onnx")
SCRIPTS = ("language", "model", "prompts", "train")


def rows(name: str) -> list[dict[str, str]]:
    return [json.loads(row) for row in (FOLDER / "data" / name).read_text(encoding="utf-8").splitlines()]


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
    assert all((FOLDER / name).stat().st_size < 2_000_000 for name in (*FILES, "prompts_ctc.pth"))
    assert (FOLDER / FILES[1]).stat().st_size < 1_050_000
    assert sum((FOLDER / name).stat().st_size for name in ("words.txt", "prompts.arpa")) < 200_000
    assert sum(path.stat().st_size for path in (FOLDER / "data").rglob("*") if path.is_file()) < 500_000


@pytest.mark.parametrize("name", FILES)
def test_metadata_of_the_onnx_files(name: str) -> None:
    model = onnx.load(FOLDER / name)
    onnx.checker.check_model(model, full_check=True)
    (taken,), (given,) = model.graph.input, model.graph.output
    shapes = [[dim.dim_param or dim.dim_value for dim in one.type.tensor_type.shape.dim] for one in (taken, given)]
    assert (taken.name, shapes[0]) == ("features", ["batch", "frames", 40])
    assert (given.name, shapes[1][-1]) == ("logits", 29)
    notes = {prop.key: json.loads(prop.value) for prop in model.metadata_props}
    assert len(notes["vocabulary"]) in (28, 29)
    assert notes["features"]["rate"] == 8000
    assert {key: notes["speech_recognition"][key] for key in ("stride", "reach")} == {"stride": 3, "reach": 63}


def test_lists_words_and_samples_are_consistent() -> None:
    held_out, samples = rows("held_out.jsonl"), rows("samples.jsonl")
    assert (len(held_out), len(samples)) == (38, 8)
    texts = {row["audio_filepath"].rpartition("/")[2]: row["text"] for row in held_out}
    assert sum(len(text.split()) for text in texts.values()) == 392
    assert all(texts[row["audio_filepath"].rpartition("/")[2]] == row["text"] for row in samples)
    words = (FOLDER / "words.txt").read_text(encoding="utf-8").split()
    assert len(words) == len(set(words)) == 635
    assert sum(word not in set(words) for text in texts.values() for word in text.split()) == 44


@pytest.mark.torch
def test_onnx_outputs_equal_the_weights(network: ModuleType) -> None:
    torch = pytest.importorskip("torch")
    trained = network.PromptsCTC(29).eval()
    trained.load_state_dict(torch.load(FOLDER / "prompts_ctc.pth", weights_only=True))
    for name, dtype, least in ((FILES[0], "float32", 1e-3), (FILES[1], "float16", 0.1)):
        with open_engine("onnx", EngineSpec(ckpt=FOLDER / name, dtype=dtype)) as engine:
            settings = settings_of(Model.of(engine).stored)
            heard = features(read_sound(FOLDER / "data/samples/vm-next.wav").samples, settings)[None, :300]
            found = engine(heard.astype(dtype))
        with torch.no_grad():
            wanted = trained(torch.from_numpy(heard.astype(np.float32))).numpy()
        assert isinstance(found, np.ndarray)
        assert found.shape == wanted.shape == (1, (heard.shape[1] - 126) // 3, 29)
        assert np.abs(found.astype(np.float32) - wanted).max() < least


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("onnx",), 0.627551),
        (("sdaa", "--ckpt", FILES[1]), 0.627551),
        (("onnx", "--decoder", "beam", "--lexicon", "words.txt", "--language_model", "prompts.arpa"), 0.395408),
    ],
)
def test_metric_equals_the_readme(words: tuple[str, ...], wanted: float, run_python: RunPython) -> None:
    """WER on the held-out prompts; a word or two may turn where another machine computes otherwise."""
    try:
        fetched("voices_en")
    except UnreachableError as error:
        pytest.skip(f"the held-out recordings cannot be fetched: {error}")
    here = [str(FOLDER / word) if (FOLDER / word).is_file() else word for word in words]
    done = run_python(FOLDER / "example_valid.py", "--target", *here)
    assert done.returncode == 0, done.stderr
    (metric,) = (line.split()[1] for line in done.stdout.splitlines() if line.startswith("eval_metric"))
    assert float(metric) == pytest.approx(wanted, abs=0.006)
