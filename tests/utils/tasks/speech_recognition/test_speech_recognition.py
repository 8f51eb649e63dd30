"""Speech recognition with the recogniser of tones that ``teco new speech`` makes."""

from __future__ import annotations

import json
import subprocess
import sys
import wave
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine import ConfigError, DataError, EngineSpec, ModelError, open_engine
from toolkit.scaffold import create
from utils.preprocess.audio.features import features
from utils.preprocess.audio.reading import Recording
from utils.tasks.base import task_class
from utils.tasks.model import Model
from utils.tasks.speech_recognition.input import Alphabet, alphabet_of
from utils.tasks.speech_recognition.task import SPEECH_RECOGNITION, SpeechRecognition
from utils.tasks.speech_recognition.windows import Context, Windows


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model's folder, exported."""
    root = tmp_path_factory.mktemp("project")
    made = create("speech", "tones", root=root)
    path = root / made.folder
    subprocess.run([sys.executable, "export_onnx.py"], cwd=path, check=True, capture_output=True)
    return path


def options(**given) -> Namespace:
    values = {flag.key: flag.default for flag in SpeechRecognition.flags} | {"script": "single", "batch_size": 4}
    return Namespace(**values | given)


def heard(folder: Path, data: Path, sizes: tuple[int, ...] = (), **given) -> list:
    spec = EngineSpec(ckpt=folder / "tones_dyn.onnx", batch_size=4, dims={"frames": sizes} if sizes else {})
    with open_engine("onnx", spec) as engine:
        task, engines = SpeechRecognition(options(**given)).bind(Model.of(engine)), {"model": engine}
        dataset = task.load({"data": data})
        prepared = task.prepare(dataset.batch(range(len(dataset))).samples)
        task.state = task.setup(engines, dataset)
        return task.decode(task.infer(engines, task.collate([prepared]), prepared.contexts), prepared.contexts)


def bound(folder: Path, **given) -> SpeechRecognition:
    return SpeechRecognition(options(**given)).bind(stored(folder))


def test_legacy_task_gives_the_same_result(folder):
    """Its functions called one by one, and a class made of it by ``replace``."""
    data, how = folder / "data/recordings", options()
    wanted = heard(folder, data)
    with open_engine("onnx", EngineSpec(ckpt=folder / "tones_dyn.onnx", batch_size=4)) as engine:
        model, engines = Model.of(engine), {"model": engine}
        dataset = SPEECH_RECOGNITION.load({"data": data}, how)
        prepared = SPEECH_RECOGNITION.prepare(dataset.batch(range(len(dataset))).samples, model, how)
        state = SPEECH_RECOGNITION.setup(engines, dataset, how)
        arrays = SPEECH_RECOGNITION.collate([prepared], model)
        outputs = SPEECH_RECOGNITION.infer(engines, arrays, prepared.contexts, state)
        assert SPEECH_RECOGNITION.decode(outputs, prepared.contexts, model, how) == wanted
        other = replace(SPEECH_RECOGNITION, decode=lambda outputs, contexts, model, options: [options.script])
        task = task_class(other)(how).bind(model)
        task.state = task.setup(engines, dataset)
        assert np.array_equal(task.infer(engines, arrays, prepared.contexts), outputs)
        assert task.decode(outputs, prepared.contexts) == ["single"]


def write(file: Path, samples: np.ndarray, rate: int = 8000, channels: int = 1) -> Path:
    with wave.open(str(file), "wb") as out:
        out.setparams((channels, 2, rate, 0, "NONE", ""))
        out.writeframes(np.round(samples * 32767).astype("<i2").tobytes())
    return file


def test_words_have_times(folder):
    texts = [json.loads(row)["text"] for row in (folder / "data/recordings.jsonl").read_text().splitlines()]
    found = heard(folder, folder / "data/recordings")
    assert [one.text for one in found] == texts
    for one in found:
        assert [word.text for word in one.words] == one.text.split()
        times = [time for word in one.words for time in (word.start, word.end)]
        assert times == sorted(times)
        assert times[0] > 0
        assert times[-1] < one.seconds


@pytest.mark.parametrize(("sizes", "window"), [((), 0.3), ((64, 100), None), ((400,), 0.7)])
def test_windows_equal_the_whole_recording(folder, sizes, window):
    data = folder / "data/recordings"
    wanted, found = heard(folder, data), heard(folder, data, sizes, window=window)
    assert [one.text for one in found] == [one.text for one in wanted]
    assert [one.score for one in found] == pytest.approx([one.score for one in wanted], abs=1e-5)


def test_beam_search_uses_lexicon_and_language_model(folder, tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("door\nred\n")
    found = heard(folder, folder / "data/recordings", decoder="beam", lexicon=str(words))
    assert {word for one in found for word in one.text.split()} <= {"door", "red"}


def test_the_score_of_a_search_is_per_token(folder):
    """The text's probability is that of all its paths, so its root is no less than the likeliest path's alone."""
    from utils.postprocess.text.beam import beam_classes

    likely = np.array([[[0.1, 0.9], [0.9, 0.1], [0.2, 0.8]]], np.float32)
    ((classes, logarithm),) = beam_classes(likely, ["", "a"], logits=False)
    assert classes == [1, 1]
    assert logarithm == pytest.approx(np.log(0.9 * 0.9 * 0.8))
    for one, path in zip(
        heard(folder, folder / "data/recordings", decoder="beam"),
        heard(folder, folder / "data/recordings"),
        strict=True,
    ):
        assert one.text == path.text
        assert 0.5 < one.score <= 1


def test_silence_gives_an_empty_text(folder, tmp_path):
    with pytest.warns(UserWarning, match="silence"):
        (silent,) = heard(folder, write(tmp_path / "silence.wav", np.zeros(8000)))
    assert (silent.text, silent.words) == ("", ())
    with pytest.warns(UserWarning, match=r"short\.wav: 0\.000375 s long"):
        (short,) = heard(folder, write(tmp_path / "short.wav", np.array([1e-4, 2e-4, 1e-4])))
    assert short.text == ""
    artifact = bound(folder).show(Recording(tmp_path / "silence.wav"), silent)
    assert artifact.text.startswith("(nothing recognised)")


def stored(folder: Path) -> Model:
    with open_engine("onnx", EngineSpec(ckpt=folder / "tones_dyn.onnx")) as engine:
        return Model.of(engine)


def test_answers_are_drawn(folder, tmp_path):
    (one,) = heard(folder, folder / "data/recordings/tones_02.wav")
    task = bound(folder)
    (sample,) = task.load({"data": folder / "data/recordings/tones_02.wav"}).samples
    artifact = task.show(sample, one)
    assert artifact.answer["words"][0]["word"] == one.text.split()[0]
    assert artifact.save(tmp_path).suffix == ".png"


def test_features_piece_by_piece_and_windows_make_a_stream(folder):
    """A stream: frames as they are known, steps as soon as what they hang on is there."""
    from utils.preprocess.audio.features import FeatureStream, settings_of
    from utils.preprocess.audio.reading import read_sound

    model = stored(folder)
    settings = settings_of(model.stored)
    samples = read_sound(folder / "data/recordings/tones_05.wav").samples
    stream = FeatureStream(settings)
    pieces = [stream.feed(samples[at : at + 999], last=at + 999 >= len(samples)) for at in range(0, len(samples), 999)]
    frames = np.concatenate(pieces)
    assert np.array_equal(frames, features(samples, settings))
    with open_engine("onnx", EngineSpec(ckpt=folder / "tones_dyn.onnx", batch_size=1)) as engine:
        whole = Windows(model, options(batch_size=1), 0.01).run(engine, frames, [Context(len(frames), 1.0)])
        parts = Windows(model, options(batch_size=1, window=0.25), 0.01)
        assert len(parts.cut(0, len(frames))) > 5
        assert np.allclose(parts.run(engine, frames, [Context(len(frames), 1.0)])[0], whole[0], atol=1e-6)


def test_a_batch_of_one_and_many_windows_do_not_change_steps_of_a_model_without_margin():
    timing = {"stride": 4, "reach": None}
    model = Windows.__new__(Windows)
    from utils.tasks.speech_recognition.input import Timing

    model.timing, model.most, model._overlap, model._warned = (
        Timing(**timing, margin=0, padding=0.0, seconds=0.01),
        80,
        20,
        True,
    )
    cut = model.cut(0, 203)
    assert sum(window.keep for window in cut) == -(-203 // 4)
    assert all(window.length <= 80 and window.start >= 0 and window.stop <= 203 for window in cut)
    assert [window.start // 4 + window.skip for window in cut] == [0, *np.cumsum([w.keep for w in cut])[:-1].tolist()]


def test_tokens_of_pieces_and_of_wav2vec_are_written_as_words(folder):
    pieces = Alphabet((" th", "e", " cat"), 3)
    assert pieces.text([0, 1, 2]) == "the cat"
    metadata = {
        "vocabulary": json.dumps(["<pad>", "<s>", "|", "A", "B"]),
        "speech_recognition": json.dumps({"blank": 0, "delimiter": "|", "silent": ["<s>"]}),
    }
    own = alphabet_of(Model(Path("x.onnx"), metadata=metadata), options(), 5)
    assert own.text([3, 2, 1, 4, 3]) == "A BA"
    with pytest.raises(ConfigError, match=r"5 tokens .*x\.onnx 9 classes"):
        alphabet_of(Model(Path("x.onnx"), metadata=metadata), options(), 9)
    with pytest.raises(ConfigError, match="--alphabet FILE"):
        alphabet_of(Model(Path("x.onnx")), options(), 5)
    with pytest.raises(ModelError, match="blank 'x'"):
        alphabet_of(Model(Path("x.onnx"), metadata=metadata | {"speech_recognition": '{"blank": "x"}'}), options(), 5)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"lengths": [0]}, "--lengths 0 must be at least 1"),
        ({"window": -1.0}, "--window -1 must be a number of seconds above 0"),
        ({"beam_width": 0}, "--beam_width 0"),
        ({"lexicon": "x"}, "--lexicon needs --decoder beam"),
    ],
)
def test_invalid_flags_are_rejected(given, says):
    with pytest.raises(ConfigError, match=says):
        SpeechRecognition(options(**given)).check()


def test_unsupported_characters_are_listed(folder):
    diagnostics = bound(folder, normalize="plain").diagnostics()
    steps = np.ones((5, 6), np.float32)
    diagnostics.see([steps], [None], ["red ünd door"])
    assert "1 of 1 texts have characters that the model lacks (ü n)" in diagnostics.hints()[0]


def test_special_files_next_to_the_audio_are_errors(tmp_path: Path) -> None:
    import os

    from utils.postprocess.text.language_model import read_arpa
    from utils.tasks.common.recognised_text import lines_of

    os.mkfifo(tmp_path / "words.txt")
    with pytest.raises(DataError, match=r"--lexicon .*words\.txt .*pipe"):
        lines_of(tmp_path / "words.txt", "--lexicon")
    for line, said in (
        ("\\" + "9" * 5000 + "-grams:", "not a heading"),
        ("nan a", "invalid logarithm"),
        ("inf a", "invalid logarithm"),
    ):
        with pytest.raises(DataError, match=said) as caught:
            read_arpa(["\\1-grams:", line, "\\end\\"], "m")
        assert len(str(caught.value)) < 300
