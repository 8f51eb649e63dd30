"""AST from a folder of transformers and PANNs from a file of weights: the task's probabilities are PyTorch's own."""

from __future__ import annotations

import json
import warnings
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine import Array, ConfigError, DataError, ModelError
from utils.export.networks.random_weights import RANDOM
from utils.export.networks.sound import panns
from utils.export.networks.sound.sound_models import ARCHS, SoundModel, export_sound_model, read_labels, sound_model
from utils.export.networks.torchvision_models import import_torchvision
from utils.pipeline import answers
from utils.preprocess.audio.features import features
from utils.tasks.sound_classification.task import SoundClassification

pytestmark = pytest.mark.torch

SECONDS = (0.4, 1.0, 1.27)
"""Lengths of the recordings, all within a window of AST."""


def recordings(folder: Path, rate: int, seconds: tuple[float, ...] = SECONDS) -> list[Array]:
    """Write recordings and return their samples: tones in noise, of 16 bits."""
    rng = np.random.default_rng(1)
    folder.mkdir()
    found = []
    for place, length in enumerate(seconds):
        times = np.arange(round(rate * length)) / rate
        sound = 0.3 * np.sin(2 * np.pi * (300 + 700 * place) * times) + rng.normal(0, 0.05, len(times))
        levels = np.round(sound * 32767).astype("<i2")
        with wave.open(str(folder / f"{place}.wav"), "wb") as out:
            out.setparams((1, 2, rate, 0, "NONE", ""))
            out.writeframes(levels.tobytes())
        found.append(levels.astype(np.float32) / 32768)
    return found


def check(model: SoundModel, folder: Path, wanted: Array, count: int) -> None:
    """Run an export through the task on two targets, and compare the probabilities of all classes."""
    results = export_sound_model(model, folder / "m", forms=["dyn"], exporter="torchscript")
    assert [one.error for one in results] == [None]
    assert model.labels is not None
    for target, dtype, most in (("onnx", "float32", 1e-3), ("sdaa", "float32", 1e-3), ("sdaa", "float16", 2e-2)):
        flags = ["--threshold", "0"] if model.note["multi_label"] else ["--topk", str(count)]
        words = ["--target", target, "--dtype", dtype, *flags, "--json", str(folder / "r.json")]
        where: dict[str, Any] = {"ckpt": folder / "m_dyn.onnx", "data_path": folder / "sounds", "batch_size": 4}
        assert answers.main(None, SoundClassification, "multi", argv=words, **where) == 0
        rows = json.loads((folder / "r.json").read_text())["answers"]
        found = [{one["label"]: one["score"] for one in row["answer"]} for row in rows]
        np.testing.assert_allclose([[row[name] for name in model.labels] for row in found], wanted, atol=most)


def ast(folder: Path, **config: Any) -> tuple[Any, Any]:
    """Return AST of transformers with random weights, and its extractor, both saved in a folder."""
    pytest.importorskip("transformers")
    import_torchvision()
    import transformers

    names = ["bark", "rain", "bell", "horn"]
    torch.manual_seed(0)
    model = transformers.ASTForAudioClassification(
        transformers.ASTConfig(
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=48,
            max_length=128,
            id2label=dict(enumerate(names)),
            label2id={name: place for place, name in enumerate(names)},
            **config,
        )
    ).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(std=0.3)
    model.save_pretrained(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of the filters without a frequency
        read = transformers.ASTFeatureExtractor(max_length=128, mean=-5.0, std=3.5)
    read.save_pretrained(folder)
    return model, read


@pytest.mark.slow
@pytest.mark.parametrize("kind", [None, "multi_label_classification"])
def test_ast_through_the_task_equals_transformers(kind: str | None, tmp_path: Path) -> None:
    golden, read = ast(tmp_path, **({} if kind is None else {"problem_type": kind}))
    sounds = recordings(tmp_path / "sounds", 16000)
    with torch.no_grad():
        logits = golden(**read(sounds, sampling_rate=16000, return_tensors="pt")).logits
    wanted = (logits.softmax(dim=1) if kind is None else logits.sigmoid()).numpy()
    assert wanted.std(axis=0).max() > 0.02, "answers that differ by recording"
    check(sound_model(str(tmp_path)), tmp_path, wanted, 4)


def spectrogram(samples: Array, rate: int) -> torch.Tensor:
    """Return decibels of the mel energies of whole recordings, computed by PyTorch: T x 64."""
    points, hop, _ = panns.RATES[rate]
    window = torch.hann_window(points)
    spectrum = torch.stft(
        torch.from_numpy(samples), points, hop, window=window, pad_mode="reflect", return_complex=True
    )  # fmt: skip
    filters = torch.from_numpy(panns.settings_at(rate).bank.copy()).float()
    return (10 * torch.log10((filters @ spectrum.abs() ** 2).clamp(min=1e-10))).T


@pytest.mark.slow
def test_cnn10_through_the_task_equals_pytorch(tmp_path: Path) -> None:
    """From a checkpoint as the published ones are: with the front end's weights, and module names of that code."""
    network = panns.random_network("cnn10", 5)
    rate = 16000
    points = panns.RATES[rate][0]
    front = {
        "spectrogram_extractor.stft.conv_real.weight": torch.zeros(points // 2 + 1, 1, points),
        "logmel_extractor.melW": torch.from_numpy(panns.settings_at(rate).bank.T.copy()).float(),
    }
    torch.save({"iteration": 7, "model": {**network.state_dict(), **front}}, tmp_path / "Cnn10.pth")
    labels = ["bark", "rain", "bell", "horn", "hum"]
    sounds = recordings(tmp_path / "sounds", rate, (0.5, 0.8, 1.0))
    whole = [np.pad(one, (0, rate - len(one))) for one in sounds]
    bands = torch.stack([spectrogram(one, rate) for one in whole])
    with torch.no_grad():
        wanted = network(bands).sigmoid().numpy()
    assert wanted.std(axis=0).max() > 0.01, "answers that differ by recording"
    model = sound_model(str(tmp_path / "Cnn10.pth"), labels=labels, seconds=1.0, multi_label=True)
    assert (model.frames, model.settings.rate, model.source) == (101, rate, "PANNs cnn10")
    np.testing.assert_allclose(features(whole[0], model.settings), bands[0].numpy(), atol=2e-3)
    check(model, tmp_path, wanted, 5)


def test_the_keys_of_the_published_weights() -> None:
    state = panns.Panns("cnn10", 527).state_dict()
    shapes = {key: tuple(value.shape) for key, value in state.items() if not key.endswith("num_batches_tracked")}
    assert len(shapes) == 4 * (2 + 8) + 4 + 4
    assert shapes["bn0.running_mean"] == (64,)
    assert shapes["conv_block1.conv1.weight"] == (64, 1, 3, 3)
    assert shapes["conv_block4.conv2.weight"] == (512, 512, 3, 3)
    assert (shapes["fc1.weight"], shapes["fc_audioset.weight"]) == ((512, 512), (527, 512))


@pytest.mark.slow
@pytest.mark.parametrize("arch", ARCHS[:2])
def test_random_weights_and_all_forms(arch: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    model = sound_model(RANDOM, arch, labels=["a", "b", "c"], seconds=None if arch == "ast" else 0.5)
    assert (model.name, model.weights) == (arch, RANDOM)
    results = export_sound_model(model, tmp_path / "m", batch=2)
    assert [one.error for one in results] == [None] * 3


def weights(folder: Path, **changed: Any) -> str:
    state = {**panns.Panns("cnn10", 3).state_dict(), **changed}
    torch.save({key: value for key, value in state.items() if value is not None}, folder / "w.pth")
    return str(folder / "w.pth")


def test_files_of_panns_that_are_refused(tmp_path: Path) -> None:
    kernel, filters = "spectrogram_extractor.stft.conv_real.weight", "logmel_extractor.melW"
    for changed, given, text in (
        ({"fc_audioset.weight": None}, {}, "no fc_audioset.weight"),
        ({"conv_block2.bn1.weight": None}, {}, "missing conv_block2.bn1.weight"),
        ({kernel: torch.zeros(401, 1, 800)}, {}, "800 points"),
        ({kernel: torch.zeros(513, 1, 1024)}, {"rate": 16000}, "for 32000 Hz; leave out --rate"),
        ({filters: torch.zeros(513, 64)}, {}, "mel filters"),
        ({filters: torch.zeros(257, 64)}, {}, "mel filters"),
        ({}, {"labels": ["a", "b"]}, "3 classes, and there are 2 labels"),
        ({}, {"seconds": 0.1}, "--seconds 0.1"),
    ):
        with pytest.raises((ModelError, ConfigError), match=text) as caught:
            sound_model(weights(tmp_path, **changed), **given)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)
    with pytest.raises(ModelError, match=r"none\.pth does not exist"):
        sound_model(str(tmp_path / "none.pth"))
    made = sound_model(weights(tmp_path), rate=8000)
    assert (made.settings.rate, made.frames, made.note["multi_label"]) == (8000, 1001, False)


@pytest.mark.slow
def test_folders_that_are_refused(tmp_path: Path) -> None:
    ast(tmp_path)
    file = tmp_path / "preprocessor_config.json"
    for content, text in (('{"max_length": 64}', "max_length 64"), ('{"std": 0}', "std 0"), ("[", "cannot be read")):
        file.write_text(content)
        with pytest.raises(ModelError, match=text):
            sound_model(str(tmp_path))
    file.unlink()
    with pytest.raises(ConfigError, match="--seconds 2"):
        sound_model(str(tmp_path), seconds=2.0)
    (tmp_path / "config.json").write_text('{"model_type": "wav2vec2"}')
    with pytest.raises(ConfigError, match="wav2vec2"):
        sound_model(str(tmp_path))


def test_lists_of_labels(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("bark\n\nrain \n")
    (tmp_path / "a.csv").write_text('index,mid,display_name\n0,/m/1,Bark\n1,/m/2,"Rain, heavy"\n')
    assert read_labels(tmp_path / "a.txt") == ["bark", "rain"]
    assert read_labels(tmp_path / "a.csv") == ["Bark", "Rain, heavy"]
    (tmp_path / "b.csv").write_text("index,name\n0,Bark\n")
    for name, error in (("b.csv", ConfigError), ("none.txt", DataError)):
        with pytest.raises(error, match=f"--labels .*{name}"):
            read_labels(tmp_path / name)
