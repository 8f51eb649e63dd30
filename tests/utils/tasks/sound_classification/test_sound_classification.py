"""Sound classification: with the template's network of tones, and with networks of other inputs."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from constructed_models import NAME, options, written
from onnx import ModelProto, helper, numpy_helper, parser, save
from support import made

from engine import ConfigError, EngineSpec, ModelError, TensorSpec, open_engine
from utils.pipeline import answers, valid
from utils.preprocess.audio.features import FilterBank, LogMel, features, settings_to_json
from utils.tasks.model import Model
from utils.tasks.sound_classification.input import Layout
from utils.tasks.sound_classification.task import SoundClassification

RATE = 8000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The template's folder, exported."""
    return written(SoundClassification, tmp_path_factory.mktemp("tones"))


def write(file: Path, samples: np.ndarray, rate: int = RATE) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(file), "wb") as out:
        out.setparams((1, 2, rate, 0, "NONE", ""))
        out.writeframes(np.round(np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())
    return file


def tone(frequency: float, seconds: float) -> np.ndarray:
    return 0.4 * np.sin(2 * np.pi * frequency * np.arange(round(RATE * seconds)) / RATE)


def network(text: str, weights: dict[str, Any], notes: dict[str, Any]) -> ModelProto:
    model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')
    model.graph.initializer.extend(numpy_helper.from_array(np.array(value), name) for name, value in weights.items())
    helper.set_model_props(model, {key: json.dumps(value) for key, value in notes.items()})
    return model


LOUDNESS = """loud (float[batch,400] sound) => (float[batch,2] logits)
{ squares = Mul(sound, sound) power = ReduceMean<axes=[1], keepdims=1>(squares) both = Mul(power, signs)
  logits = Add(both, bias) }"""


def loudness(file: Path, **notes: Any) -> Path:
    """Write a network of samples: class 1, ``loud``, from a mean power of 0.01 on."""
    weights = {"signs": np.float32([[-1000, 1000]]), "bias": np.float32([[10, -10]])}
    save(network(LOUDNESS, weights, {"class_labels": ["quiet", "loud"], "sample_rate": RATE} | notes), file)
    return file


def run(script: str, ckpt: Path, data: Path, result: Path, *argv: str) -> dict[str, Any]:
    words = ["--target", "onnx", *argv, "--json", str(result)]
    where: dict[str, Any] = {"argv": words, "ckpt": ckpt, "data_path": data, "batch_size": 4}
    if script == "valid":
        assert valid.main(None, SoundClassification, **where) == 0
    else:
        assert answers.main(None, SoundClassification, script, **where) == 0
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def test_tones_of_the_template(folder: Path, tmp_path: Path) -> None:
    found = run("valid", folder / f"{NAME}_dyn.onnx", folder / "data/val", tmp_path / "r.json")
    assert (found["metric_name"], found["metric"], found["samples"]) == ("top1", 1.0, 20)
    assert found["secondary"]["macro_f1"] == 1.0
    assert found["figures"]["sound_seconds"] == pytest.approx(13.6)


def test_answers_and_drawings(folder: Path, tmp_path: Path) -> None:
    words = ("--topk", "2", "--save", str(tmp_path / "out"))
    found = run("multi", folder / f"{NAME}_dyn.onnx", folder / "data/val/high", tmp_path / "r.json", *words)
    assert [one["answer"][0]["label"] for one in found["answers"]] == ["high"] * 5
    assert all(one["answer"][0]["score"] > one["answer"][1]["score"] for one in found["answers"])
    assert len(list((tmp_path / "out").glob("*.png"))) == 5


def test_saved_predictions(folder: Path, tmp_path: Path) -> None:
    words = ("--save_predictions", str(tmp_path / "p.jsonl"))
    run("valid", folder / f"{NAME}_dyn.onnx", folder / "data/val", tmp_path / "r.json", *words)
    rows = [json.loads(row) for row in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert len(rows) == 20
    assert all(row["label"] == row["predicted"] for row in rows)


def test_a_waveform_model_and_windows_of_a_long_recording(tmp_path: Path) -> None:
    """Three quarters of the recording are silent: the mean over its windows is quiet, the maximum loud."""
    ckpt = loudness(tmp_path / "loud.onnx")
    write(tmp_path / "data/a.wav", np.concatenate([np.zeros(1200), tone(500, 0.05)]))
    for pool, label in (("mean", "quiet"), ("max", "loud")):
        found = run("multi", ckpt, tmp_path / "data", tmp_path / "r.json", "--pool", pool, "--hop", "0.05")
        best = max(found["answers"][0]["answer"], key=lambda one: one["score"])
        assert best["label"] == label or pool == "max"
    task = made(SoundClassification, options(SoundClassification, "multi", hop=0.05))
    with open_engine("onnx", EngineSpec(ckpt=ckpt)) as engine:
        task.bind(Model.of(engine))
        prepared = task.prepare(task.load({"data": tmp_path / "data"}).samples)
        outputs = task.infer({"model": engine}, [prepared.arrays[0]], prepared.contexts)
    assert prepared.contexts[0].windows == 4
    assert outputs[0] == pytest.approx([0.75, 0.25], abs=0.01)


def test_full_scale_and_stored_settings(tmp_path: Path) -> None:
    """A network for 16-bit values hears nothing in samples of -1..1, unless the factor is stored or given."""
    weights = {"signs": np.float32([[-1e-6, 1e-6]]), "bias": np.float32([[10, -10]])}
    data = write(tmp_path / "data/a.wav", tone(500, 0.05))
    for notes, argv, label in (
        ({}, (), "quiet"),
        ({"sound_classification": {"full_scale": 32768}}, (), "loud"),
        ({}, ("--full_scale", "32768"), "loud"),
    ):
        known = {"class_labels": ["quiet", "loud"], "sample_rate": RATE} | notes
        save(network(LOUDNESS, weights, known), tmp_path / "m.onnx")
        found = run("single", tmp_path / "m.onnx", data, tmp_path / "r.json", *argv)
        assert found["answers"][0]["answer"][0]["label"] == label


BANDS = """bands (float[batch,SHAPE] features) => (float[batch,3] logits)
{ three = ReduceMean<axes=[TIME], keepdims=0>(features) logits = LAST(three) }"""


@pytest.mark.parametrize(
    ("shape", "time", "reshape"), [("9,3", 1, "Identity"), ("3,9", 2, "Identity"), ("1,9,3", 2, "Flatten")]
)
def test_axes_of_features(tmp_path: Path, shape: str, time: int, reshape: str) -> None:
    settings = LogMel(rate=RATE, fft=256, window=200, hop=80, bands=3, log="ln", floor=1e-5)
    text = BANDS.replace("SHAPE", shape).replace("TIME", str(time)).replace("LAST", reshape)
    model = network(text, {}, {"features": json.loads(settings_to_json(settings))})
    save(model, tmp_path / "m.onnx")
    with open_engine("onnx", EngineSpec(ckpt=tmp_path / "m.onnx")) as engine:
        described = Model.of(engine)
        layout = Layout.of(described, options(SoundClassification))
        samples = tone(500, 0.08).astype(np.float32)
        rows = layout.windows(samples, 100, "float32")
        found = engine(rows)
    assert layout.length == len(samples) == 640
    assert found[0] == pytest.approx(features(samples, settings).mean(axis=0), abs=1e-4)


def test_frames_that_the_features_lack_are_filled(tmp_path: Path) -> None:
    """As of AST: Kaldi's filter bank gives 998 frames of 10 s, and the input has 1024."""
    settings = FilterBank(rate=RATE, window=200, hop=80, bands=4, full_scale=1.0)
    notes = {"seconds": 0.1, "padding": 0.0, "mean": 2.0, "std": 4.0}
    model = network(
        BANDS.replace("SHAPE", "12,4").replace("TIME", "1").replace("LAST", "Identity").replace("batch,3", "batch,4"),
        {},
        {"features": json.loads(settings_to_json(settings)), "sound_classification": notes},
    )
    save(model, tmp_path / "m.onnx")
    with open_engine("onnx", EngineSpec(ckpt=tmp_path / "m.onnx")) as engine:
        layout = Layout.of(Model.of(engine), options(SoundClassification))
    samples = tone(500, 0.1).astype(np.float32)
    (found,) = layout.windows(samples, 100, "float32")
    own = features(samples, settings)
    assert (len(own), found.shape) == (8, (12, 4))
    assert found[:8] == pytest.approx((own - 2) / 4, abs=1e-5)
    assert (found[8:] == -0.5).all()


@pytest.mark.parametrize("way", ["bands", "clip"])
def test_normalised_features(tmp_path: Path, way: str) -> None:
    settings = LogMel(rate=RATE, fft=256, window=200, hop=80, bands=3, log="ln", floor=1e-5)
    save(network(BANDS.replace("SHAPE", "9,3").replace("TIME", "1").replace("LAST", "Identity"), {},
                 {"features": json.loads(settings_to_json(settings))}), tmp_path / "m.onnx")  # fmt: skip
    with open_engine("onnx", EngineSpec(ckpt=tmp_path / "m.onnx")) as engine:
        layout = Layout.of(Model.of(engine), options(SoundClassification, normalize=way))
    (found,) = layout.windows(np.random.default_rng(0).normal(0, 0.1, 640).astype(np.float32), 100, "float32")
    axis = 0 if way == "bands" else None
    assert found.mean(axis=axis) == pytest.approx(0, abs=1e-5)
    assert found.std(axis=axis) == pytest.approx(1, abs=1e-3)


def test_several_classes(tmp_path: Path) -> None:
    """Independent scores: mAP in valid, and in answers all classes from the threshold on."""
    ckpt = loudness(tmp_path / "loud.onnx", sound_classification={"multi_label": True})
    rows = []
    for place, (loud, labels) in enumerate(((0.2, ["loud"]), (0.15, ["loud", "quiet"]), (0.05, ["quiet"]))):
        write(tmp_path / f"{place}.wav", loud * tone(500, 0.05) / 0.4)
        rows.append(json.dumps({"audio_filepath": f"{place}.wav", "labels": labels}) + "\n")
    (tmp_path / "list.jsonl").write_text("".join(rows))
    found = run("valid", ckpt, tmp_path / "list.jsonl", tmp_path / "r.json")
    assert (found["metric_name"], found["metric"]) == ("map", 1.0)
    answer = run("single", ckpt, tmp_path / "0.wav", tmp_path / "s.json", "--threshold", "0.9")["answers"][0]
    assert [one["label"] for one in answer["answer"]] == ["loud"]
    task = made(SoundClassification, options(SoundClassification, metric="macro_f1", multi_label=True))
    dataset = task.load({"data": tmp_path / "list.jsonl"})
    with open_engine("onnx", EngineSpec(ckpt=ckpt)) as engine, pytest.raises(ConfigError, match="--metric map"):
        task.bind(Model.of(engine)).metric(dataset)


def test_labels_that_the_model_lacks(folder: Path, tmp_path: Path) -> None:
    write(tmp_path / "data/low/a.wav", tone(300, 0.5))
    write(tmp_path / "data/hiss/b.wav", np.random.default_rng(0).normal(0, 0.1, 4000))
    ckpt = folder / f"{NAME}_dyn.onnx"
    found = run("valid", ckpt, tmp_path / "data", tmp_path / "r.json", "--unknown", "noise")
    assert found["metric"] == 1.0
    task = made(SoundClassification, options(SoundClassification, unknown="hum"))
    with open_engine("onnx", EngineSpec(ckpt=ckpt)) as engine, pytest.raises(ConfigError, match="--unknown hum"):
        task.bind(Model.of(engine)).metric(task.load({"data": tmp_path / "data"}))


def test_classes_of_a_model_without_labels(tmp_path: Path) -> None:
    """Those of the data set, by number: ESC-50's table has one."""
    ckpt = loudness(tmp_path / "loud.onnx", class_labels=None)
    model = network(
        LOUDNESS, {"signs": np.float32([[-1000, 1000]]), "bias": np.float32([[10, -10]])}, {"sample_rate": RATE}
    )
    save(model, ckpt)
    write(tmp_path / "set/audio/a.wav", tone(500, 0.05))
    write(tmp_path / "set/audio/b.wav", 0.01 * tone(500, 0.05))
    (tmp_path / "set/meta").mkdir()
    (tmp_path / "set/meta/esc50.csv").write_text("filename,fold,target,category\na.wav,1,1,bell\nb.wav,1,0,rain\n")
    assert run("valid", ckpt, tmp_path / "set", tmp_path / "r.json")["metric"] == 1.0


WRONG: dict[str, tuple[str, dict[str, Any], type[Exception], str]] = {
    "no rate": ("float[batch,400] x", {}, ModelError, "sample_rate"),
    "an image": ("float[batch,3,8,8] x", {"sample_rate": 8000}, ModelError, "N x S or N x 1 x S"),
    "any length": ("float[batch,samples] x", {"sample_rate": 8000}, ConfigError, "--seconds"),
    "bands": ("float[batch,9,4] x", {"features": {"kind": "log_mel", "bands": 3}}, ModelError, "3 bands"),
    "a note": ("float[batch,400] x", {"sample_rate": 8000, "sound_classification": {"std": 0}}, ModelError, "std 0"),
    "frames of samples": (
        "float[batch,400] x",
        {"sample_rate": 8000, "sound_classification": {"fill": "frames"}},
        ModelError,
        "fixed number of frames",
    ),
    "a text": (
        "float[batch,400] x",
        {"sample_rate": 8000, "sound_classification": {"fill": "x"}},
        ModelError,
        "fill 'x'",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_models_that_are_refused(name: str, tmp_path: Path) -> None:
    taken, notes, error, text = WRONG[name]
    sizes = [one.strip() for one in taken.partition("[")[2].partition("]")[0].split(",")]
    shape = tuple(int(size) if size.isdecimal() else None for size in sizes)
    metadata = {key: json.dumps(value) for key, value in notes.items()}
    model = Model(tmp_path / "m.onnx", (TensorSpec("x", "float32", shape),), metadata=metadata)
    with pytest.raises(error, match=text):
        Layout.of(model, options(SoundClassification))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"topk": 0}, "--topk 0"),
        ({"seconds": 0.0}, "--seconds 0"),
        ({"hop": -1.0}, "--hop -1"),
        ({"threshold": 2.0}, "--threshold 2"),
    ],
)
def test_options_that_are_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        made(SoundClassification, options(SoundClassification, **given)).check()
