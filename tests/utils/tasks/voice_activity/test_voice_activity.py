"""Voice activity with Silero's network: streams as the whole, batches as single ones, bad recordings, every answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image
from support import ROOT, RunPython

from engine import ConfigError, Engine, EngineSpec, ModelError, TensorSpec, open_engine
from utils.pipeline import answers, valid
from utils.postprocess.audio.speech_segments import Rules, speech_segments
from utils.preprocess.audio.reading import read_sound
from utils.preprocess.audio.resampling import resampled
from utils.preprocess.audio.wav import write_mu_law
from utils.tasks.model import Model
from utils.tasks.voice_activity.steps import Layout, Segment, Voices, VoiceStream
from utils.tasks.voice_activity.task import VoiceActivity, within

FOLDER = ROOT / "example/speech/silero_vad"
CKPT, DATA = FOLDER / "silero_vad_dyn.onnx", FOLDER / "data"


@pytest.fixture(scope="module")
def silero() -> Iterator[Engine]:
    with open_engine("onnx", EngineSpec(ckpt=CKPT, batch_size=1)) as engine:
        yield engine


@pytest.fixture(scope="module")
def layout(silero: Engine) -> Layout:
    return Layout.of(Model.of(silero), SimpleNamespace(rate=16000))


SOUND = read_sound(DATA / "samples/two_phrases_it.wav").samples


def whole(engine: Engine, layout: Layout, sound: np.ndarray) -> list[Segment]:
    """Segments of a recording at once, by what the task calls."""
    count = layout.chunks(len(sound))
    chunks = np.pad(sound, (0, count * layout.chunk - len(sound))).reshape(count, 1, layout.chunk)
    voices = Voices(engine, layout, 1)
    scores = [float(voices.hear(chunk)[0]) for chunk in chunks]
    found = speech_segments(scores, Rules(layout.rate, layout.chunk), len(sound))
    return [Segment(start / layout.rate, end / layout.rate) for start, end in found]


@settings(max_examples=5, deadline=None)
@given(st.lists(st.integers(0, 30_000), max_size=9), st.integers(0, 60_000))
def test_stream_equals_the_whole_recording(silero: Engine, layout: Layout, sizes: list[int], cut: int) -> None:
    sound = SOUND[20_000 : len(SOUND) - cut]
    stream, found, at = VoiceStream(silero, layout, Rules()), [], 0
    for size in sizes:
        found += stream.feed(sound[at : at + size])
        at += size
    found += stream.feed(sound[at:]) + stream.finish()
    assert found == whole(silero, layout, sound)
    assert stream.seconds == len(sound) / 16000


def test_a_stream_of_another_rate(silero: Engine, layout: Layout) -> None:
    pytest.importorskip("soxr")
    sound = SOUND[::2].copy()
    stream, found = VoiceStream(silero, layout, Rules(), rate=8000), []
    for start in range(0, len(sound), 999):
        found += stream.feed(sound[start : start + 999])
    found += stream.finish()
    assert found == whole(silero, layout, resampled(sound, 8000, 16000))
    assert len(found) == 2


def run(script: str, data: Path | str, result: Path, *words: str, ckpt: Path = CKPT) -> tuple[int, dict[str, Any]]:
    argv = ["--json", str(result), "--target", "onnx", *words]
    main = valid.main if script == "valid" else answers.main
    how = {} if script == "valid" else {"script": script}
    code = main(None, VoiceActivity, argv=argv, ckpt=ckpt, data_path=data, batch_size=4, **how)  # type: ignore[operator]
    return code, json.loads(result.read_text()) if result.exists() else {}


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The list of four recordings, a voice each."""
    file = tmp_path_factory.mktemp("vad") / "few.jsonl"
    rows = [json.loads(line) for line in (DATA / "val.jsonl").read_text().splitlines()][::8]
    for row in rows:
        row["audio_filepath"] = str(DATA / row["audio_filepath"])
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_an_evaluation_has_its_figures(few: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = f"manifest={few}", f"audio={DATA}"
    code, found = run(
        "valid", few, tmp_path / "r.json", "--data_path", *data, "--save_predictions", f"{tmp_path}/p.rttm"
    )
    assert (code, found["samples"], found["metric_name"]) == (0, 4, "frame_auc")
    assert found["metric"] > 0.9
    assert found["secondary"]["f1"] > 0.85
    assert found["figures"]["sound_seconds"] == pytest.approx(4 * 157 * 512 / 16000)
    figures = found["figures"]
    assert figures["real_time_factor"] * figures["times_real_time"] == pytest.approx(1)
    assert 0 < figures["chunk_ms_median"] <= figures["chunk_ms_p99"]
    lines = (tmp_path / "p.rttm").read_text().splitlines()
    assert len(lines) >= 4
    assert all(len(line.split()) == 10 and line.startswith("SPEAKER ") for line in lines)
    assert "figures: sound_seconds 20.096" in capsys.readouterr().out


def test_batches_equal_single_recordings(few: Path, tmp_path: Path) -> None:
    """Shorter ones are filled up, and what comes behind their end is not used."""
    folder = tmp_path / "sounds"
    folder.mkdir()
    for place, seconds in enumerate((1.0, 4.7, 2.31)):
        write_mu_law(folder / f"{place}.wav", SOUND[20_000 : 20_000 + round(16000 * seconds)], 16000)
    _, together = run("multi", folder, tmp_path / "a.json")
    _, alone = run("multi", folder, tmp_path / "b.json", "--batch_size", "1")
    for one, other in zip(together["answers"], alone["answers"], strict=True):
        assert [one["answer"][key] for key in ("seconds", "speech_seconds")] == [
            other["answer"][key] for key in ("seconds", "speech_seconds")
        ]
        for mine, its in zip(one["answer"]["segments"], other["answer"]["segments"], strict=True):
            assert mine == pytest.approx(its, abs=1e-3)


def test_invalid_recordings_are_reported_and_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "sounds"
    folder.mkdir()
    write_mu_law(folder / "fine.wav", SOUND[:40_000], 16000)
    whole = (folder / "fine.wav").read_bytes()
    (folder / "cut.wav").write_bytes(whole[:20_000])
    (folder / "words.wav").write_text("these are words")
    (folder / "empty.wav").write_bytes(b"")
    (folder / "nothing.wav").write_bytes(whole[:54] + b"\0\0\0\0")
    code, found = run("multi", folder, tmp_path / "r.json")
    errors = capsys.readouterr().err
    assert code == 1
    assert [Path(one["name"]).name for one in found["answers"]] == ["fine.wav"]
    said = {Path(one["name"]).name: one["reason"] for one in found["failures"]}
    assert {name: said[name].rpartition(": ")[0] == "" for name in said}.keys() == {
        "cut.wav", "words.wav", "empty.wav", "nothing.wav",
    }  # fmt: skip
    assert "truncated: its header says 2.50 s, but it has 1.25 s" in said["cut.wav"]
    assert "Traceback" not in errors


def test_speech_after_the_end_fails_the_recording(few: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in few.read_text().splitlines()]
    rows[1]["segments"] = [[4.0, 9.0]]
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = f"manifest={tmp_path / 'm.jsonl'}", f"audio={DATA}"
    code, found = run("valid", few, tmp_path / "r.json", "--data_path", *data)
    assert (code, found["samples"]) == (1, 3)
    assert "speech until 9 s, and the recording is 5.02 s long" in found["failures"][0]["reason"]


@pytest.mark.filterwarnings("ignore:.*all samples are 0")
def test_answers_are_read_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_mu_law(tmp_path / "still.wav", np.zeros(16000), 16000)
    code, found = run("single", DATA / "samples/two_phrases_en.wav", tmp_path / "r.json", "--save", f"{tmp_path}/drawn")
    assert code == 0
    answer = found["answers"][0]["answer"]
    assert [len(answer["segments"]), round(answer["speech_seconds"], 1)] == [2, 1.9]
    assert "speech in 1.9" in capsys.readouterr().out
    with Image.open(tmp_path / "drawn" / "two_phrases_en.png") as image:
        shaded = (np.asarray(image.convert("RGB")) == (214, 236, 208)).all(axis=2).any(axis=0)
    assert shaded.mean() == pytest.approx(answer["speech_seconds"] / answer["seconds"], abs=0.03)
    code, found = run("single", tmp_path / "still.wav", tmp_path / "s.json", "--save", f"{tmp_path}/drawn")
    assert found["answers"][0]["answer"]["segments"] == []
    assert "no speech in 1.00 s" in capsys.readouterr().out


def test_other_rates_can_be_rejected(tmp_path: Path) -> None:
    write_mu_law(tmp_path / "a.wav", SOUND[::2], 8000)
    code, found = run("single", tmp_path / "a.wav", tmp_path / "r.json", "--other_rate", "refuse")
    assert code == 2
    assert "8000 Hz, but 16000 Hz are needed" in found["failures"][0]["reason"]


@pytest.mark.parametrize("flags", [["--threshold", "2"], ["--low_threshold", "0.9"], ["--pad", "-1"]])
def test_invalid_flags(flags: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=flags[0]):
        run("single", DATA / "samples/noise.wav", tmp_path / "r.json", *flags)


def test_other_models_are_rejected() -> None:
    def model(*shapes: tuple[int | None, ...], **metadata: str) -> Model:
        inputs = tuple(TensorSpec(f"x{i}", np.dtype(np.float32), shape) for i, shape in enumerate(shapes))
        return Model(Path("a.onnx"), inputs, inputs, metadata=metadata)

    options = SimpleNamespace(rate=8000)
    assert Layout.of(model((None, 288), (2, None, 128)), options).chunk == 256
    with pytest.raises(ModelError, match="takes 576 samples"):
        Layout.of(model((None, 576), (2, None, 128)), options)
    with pytest.raises(ModelError, match=r"sound \[N, samples\]"):
        Layout.of(model((None, 3, 32, 32)), options)
    with pytest.raises(ModelError, match="must have chunk and context"):
        Layout.of(model((None, 10), (2, None, 128), sample_rate="22050"), options)
    with pytest.raises(ModelError, match="must have chunk and context"):
        Layout.of(model((None, 10), (2, None, 128), voice_activity='{"chunk": "x"}'), options)


def test_frames_are_classified_by_their_middle() -> None:
    assert within([(0.05, 0.1), (0.1, 0.16), (0.3, 9.0)], 5, 0.1).tolist() == [True, True, False, True, True]


@pytest.mark.slow
def test_the_fetched_file_with_both_rates_is_taken(few: Path, tmp_path: Path) -> None:
    from utils.fetch import FetchError, fetched

    try:
        source = fetched("silero_vad") / "silero_vad/data/silero_vad_op18_ifless.onnx"
    except FetchError as error:
        pytest.skip(f"silero_vad cannot be fetched: {error}")
    data = f"manifest={few}", f"audio={DATA}"
    _, one = run("valid", few, tmp_path / "a.json", "--data_path", *data, ckpt=source)
    _, other = run("valid", few, tmp_path / "b.json", "--data_path", *data)
    assert one["metric"] == pytest.approx(other["metric"], abs=1e-6)
    _, card = run("valid", few, tmp_path / "c.json", "--data_path", *data, "--target", "sdaa", ckpt=source)
    assert card["metric"] == pytest.approx(other["metric"], abs=1e-3)


@pytest.mark.slow
def test_stream_script_equals_the_file(tmp_path: Path, run_python: RunPython) -> None:
    _, found = run("single", DATA / "samples/two_phrases_it.wav", tmp_path / "r.json")
    done = run_python(FOLDER / "stream.py", DATA / "samples/two_phrases_it.wav", "--piece", "700")
    lines = done.stdout.splitlines()
    segments = found["answers"][0]["answer"]["segments"]
    assert [float(line.split("-")[0]) for line in lines[:-1]] == [round(one["start"], 2) for one in segments]
    assert "7.01 s of sound; a piece took" in lines[-1]


@pytest.mark.slow
def test_float16_does_not_drift_over_minutes(layout: Layout, silero: Engine) -> None:
    """The state is carried in float16 from chunk to chunk: after minutes it is no further off than at the begin."""
    sound = np.tile(SOUND, 9)
    spec = EngineSpec(ckpt=CKPT, batch_size=4, dtype="float16")
    with open_engine("sdaa", spec) as card:
        voices = [Voices(engine, layout, 1) for engine in (silero, card)]
        chunks = sound[: len(sound) // 512 * 512].reshape(-1, 1, 512)
        scores = np.array([[float(one.hear(chunk)[0]) for one in voices] for chunk in chunks])
    off = np.abs(scores[:, 0] - scores[:, 1])
    assert off.max() < 0.02
    assert off[-len(off) // 3 :].max() <= off[: len(off) // 3].max() + 0.005
