"""Speech that is recognised as it comes: the words are those of the whole recording."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings, strategies as st
from support import ROOT, RunPython

from engine import ConfigError, EngineSpec, ModelError, open_engine
from utils.preprocess.audio.reading import read_sound
from utils.tasks.model import Model
from utils.tasks.speech_recognition.stream import WordStream
from utils.tasks.speech_recognition.task import SpeechRecognition

FOLDER = ROOT / "example" / "speech" / "prompts_ctc"
CKPT = FOLDER / "prompts_ctc_dyn.onnx"
SAMPLES = sorted((FOLDER / "data" / "samples").glob("*.wav"))


def options(**given_: object) -> Namespace:
    values = {flag.key: flag.default for flag in SpeechRecognition.flags} | {"script": "single", "batch_size": 1}
    return Namespace(**values | given_)


def whole(engine, file: Path) -> str:
    task, engines = SpeechRecognition(options()).bind(Model.of(engine)), {"model": engine}
    dataset = task.load({"data": file})
    prepared = task.prepare(dataset.batch(range(1)).samples)
    task.state = task.setup(engines, dataset)
    outputs = task.infer(engines, task.collate([prepared]), prepared.contexts)
    (heard,) = task.decode(outputs, prepared.contexts)
    return heard.text


@settings(max_examples=6, deadline=None)
@given(
    file=st.sampled_from(SAMPLES),
    sizes=st.lists(st.integers(200, 9000), min_size=1, max_size=6),
    chunk=st.sampled_from((0.03, 0.1, 0.48, 2.0)),
)
def test_a_stream_gives_the_words_of_the_whole_recording(file: Path, sizes: list[int], chunk: float) -> None:
    samples = read_sound(file).samples
    with open_engine("onnx", EngineSpec(ckpt=CKPT, batch_size=1)) as engine:
        stream, words, place, turn = WordStream(engine, options(), chunk=chunk), list[str](), 0, 0
        while place < len(samples):
            size = sizes[turn % len(sizes)]
            words += stream.feed(samples[place : place + size])
            place, turn = place + size, turn + 1
        words += stream.finish()
        assert " ".join(words) == whole(engine, file)
        assert stream.seconds == pytest.approx(len(samples) / 8000)
        assert stream.chunks >= stream.seconds / chunk - 1


def test_words_come_before_the_end() -> None:
    samples = read_sound(SAMPLES[0]).samples
    with open_engine("onnx", EngineSpec(ckpt=CKPT, batch_size=1)) as engine:
        stream = WordStream(engine, options())
        assert stream.feed(samples)
        assert stream.delay == pytest.approx(0.48 + 0.63)
        assert WordStream(engine, options()).finish() == []
        silent = WordStream(engine, options())
        assert silent.feed(np.zeros(16000, np.float32)) + silent.finish() == []


def test_unsupported_streams_are_rejected() -> None:
    with open_engine("onnx", EngineSpec(ckpt=CKPT, batch_size=1)) as engine:
        with pytest.raises(ConfigError, match="greedy"):
            WordStream(engine, options(decoder="beam"))
        with pytest.raises(ConfigError, match=r"chunk of 0\.01 s"):
            WordStream(engine, options(), chunk=0.01)
    spec = EngineSpec(ckpt=CKPT, batch_size=1, dims={"frames": (306,)})
    with open_engine("onnx", spec) as engine:
        WordStream(engine, options(), chunk=1.8)
        with pytest.raises(ConfigError, match=r"180, .*63 .*1\.8 s"):
            WordStream(engine, options(), chunk=2)


@pytest.mark.parametrize("missing", ["reach", "stride"])
def test_model_of_whole_recordings_is_rejected(missing: str, tmp_path: Path) -> None:
    model = onnx.load(CKPT)
    for prop in model.metadata_props:
        if prop.key == "speech_recognition":
            kept = {key: value for key, value in json.loads(prop.value).items() if key not in (missing, "margin")}
            prop.value = json.dumps(kept)
    onnx.save(model, tmp_path / "other.onnx")
    with (
        open_engine("onnx", EngineSpec(ckpt=tmp_path / "other.onnx", batch_size=1)) as engine,
        pytest.raises(ModelError, match="reach"),
    ):
        WordStream(engine, options())


def test_the_script_prints_words_and_how_long_a_chunk_took(run_python: RunPython) -> None:
    done = run_python(FOLDER / "stream.py", FOLDER / "data/samples/vm-next.wav", "--piece", "700")
    assert done.returncode == 0, done.stderr
    *words, last = done.stdout.splitlines()
    with open_engine("onnx", EngineSpec(ckpt=CKPT, batch_size=1)) as engine:
        assert " ".join(" ".join(words).split()) == whole(engine, FOLDER / "data/samples/vm-next.wav")
    assert "ms (median)" in last
    assert "s late at most" in last
