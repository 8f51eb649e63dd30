"""Speaker verification through its scripts: every kind of data, what is drawn, and every bad recording."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import soundfile
import soxr
from constructed_models import NAME, options, written
from PIL import Image

from engine import Array, ConfigError, DataError, ModelError
from utils.pipeline import answers, valid
from utils.tasks.model import Model
from utils.tasks.speaker_verification.task import Notes, SpeakerVerification, similarity


def task(**given: Any) -> SpeakerVerification:
    return SpeakerVerification(options(SpeakerVerification, **given))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(SpeakerVerification, tmp_path_factory.mktemp("hums"))


def run(script: str, result: Path, folder: Path, data: Any, *argv: str) -> tuple[int, dict[str, Any]]:
    main = valid.main if script == "valid" else lambda *a, **k: answers.main(*a, script, **k)
    argv = (*argv, "--target", "onnx", "--json", str(result))
    size = 1 if script == "single" else 16
    code = main(None, SpeakerVerification, ckpt=folder / f"{NAME}_dyn.onnx", data_path=data, batch_size=size, argv=argv)
    return code, json.loads(result.read_text())


def hum(tiny: Path, name: str = "ada", number: int = 1) -> tuple[Array, int]:
    samples, rate = soundfile.read(tiny / "data" / name / f"{name}_{number}.wav", dtype="float32")
    return samples, rate


def test_all_speakers_are_separated(tiny: Path, tmp_path: Path) -> None:
    code, found = run("valid", tmp_path / "r.json", tiny, tiny / "data", "--workers", "2")
    assert (code, found["metric_name"], found["metric"], found["samples"]) == (0, "eer", 0.0, 32 * 31 // 2)
    assert found["secondary"]["min_dcf_0.01"] == found["secondary"]["min_dcf_0.05"] == 0
    assert (found["secondary"]["auc"], found["secondary"]["speakers"]) == (1.0, 8)
    code, found = run("valid", tmp_path / "b.json", tiny, tiny / "data", "--pairs", "balanced", "--of_each", "3")
    assert (code, found["samples"]) == (0, 48)


def test_two_recordings_have_a_readable_answer(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A stereo file of another rate is heard like the mono one; the drawing has both and the score."""
    samples, rate = hum(tiny)
    soundfile.write(tmp_path / "other.flac", np.stack([soxr.resample(samples, rate, 48000)] * 2, axis=1), 48000)
    data = {"first": tmp_path / "other.flac", "second": tiny / "data" / "ada" / "ada_2.wav"}
    with pytest.warns(UserWarning, match="averaged|resampled"):
        code, found = run("single", tmp_path / "r.json", tiny, data, "--save", str(tmp_path / "out"))
    answer = found["answers"][0]["answer"]
    assert (code, answer["same"], answer["threshold"]) == (0, True, 0.8)
    assert answer["similarity"] > 0.8
    assert f"same speaker  {answer['similarity']:.2f} (at least 0.8" in capsys.readouterr().out
    (file,) = (tmp_path / "out").iterdir()
    drawn = np.asarray(Image.open(file).convert("RGB")).astype(int)
    for colour in ((60, 190, 255), (255, 170, 60), (120, 255, 90)):
        assert (np.abs(drawn - colour).max(axis=-1) < 3).sum() > 50
    data["second"] = tiny / "data" / "kira" / "none.wav"
    with pytest.raises(DataError, match="does not exist"):
        run("single", tmp_path / "r.json", tiny, data)
    data["second"] = tiny / "data" / "hugo" / "hugo_1.wav"
    code, found = run("single", tmp_path / "r.json", tiny, data)
    assert (code, found["answers"][0]["answer"]["same"]) == (0, False)


def test_invalid_recordings_fail_their_trials(tiny: Path, tmp_path: Path) -> None:
    """Silence, too little speech, one cut short, a missing one: each is named with its reason, and the rest is done."""
    data = tmp_path / "data"
    shutil.copytree(tiny / "data" / "ada", data / "ada")
    shutil.copytree(tiny / "data" / "ben", data / "ben")
    samples, rate = hum(tiny)
    soundfile.write(data / "ada" / "ada_2.wav", np.resize(np.float32([1e-5, 2e-5]), rate), rate, "FLOAT")
    soundfile.write(data / "ada" / "ada_3.wav", samples[2400 : 2400 + rate // 5], rate)
    whole = (data / "ben" / "ben_1.wav").read_bytes()
    (data / "ben" / "ben_1.wav").write_bytes(whole[:3000])
    names = ("ada/ada_1", "ada/ada_2", "ada/ada_3", "ben/ben_1", "ben/ben_2", "ben/ben_9")
    lines = [f"0 {names[0]}.wav {name}.wav" for name in names[3:]] + [f"1 {names[0]}.wav {n}.wav" for n in names[1:3]]
    lines.append("1 ben/ben_2.wav ben/ben_3.wav")
    (data / "trials.txt").write_text("\n".join(lines) + "\n")
    code, found = run("valid", tmp_path / "r.json", tiny, data)
    assert (code, found["samples"]) == (1, 2)
    reasons = " ".join(
        f"{one['sample']}: {one['reason']}" if "sample" in one else str(one) for one in found["failures"]
    )
    for words in ("ada_2.wav: silence", "0.5 s of speech are needed", "truncated", "ben_9"):
        assert words in reasons


def test_all_pairs_of_recordings_of_a_folder(tiny: Path, tmp_path: Path) -> None:
    """Four recordings are six pairs; each is described once, so its sound counts once."""
    code, found = run("multi", tmp_path / "r.json", tiny, tiny / "data" / "ada")
    assert (code, len(found["answers"])) == (0, 6)
    lengths = [soundfile.info(file).duration for file in (tiny / "data" / "ada").glob("*.wav")]
    assert found["figures"]["sound_seconds"] == pytest.approx(sum(lengths))
    assert found["figures"]["real_time_factor"] > found["figures"]["model_real_time_factor"] > 0
    assert all(one["answer"]["same"] for one in found["answers"])


def test_speakers_by_name(tiny: Path) -> None:
    folders = {"ada__a": tiny / "data" / "ada", "ada__b": tiny / "data" / "ben", "cleo": tiny / "data" / "cleo"}
    found = task(of_each=2).load(folders)
    targets = found.batch(range(len(found))).targets
    assert targets is not None
    assert (len(found), sum(one.same for one in targets)) == (15, 7)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"first": "a"}, "first=FILE second=FILE"),
        ({"pairs": "a", "images": "b"}, r"pairs=FILE \[audio=FOLDER\]"),
        ({"audio": "a", "ada": "b"}, "audio=... .*pairs=FILE"),
    ],
)
def test_inconsistent_paths(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        task().load({name: Path(path) for name, path in given.items()})


def test_single_recording_is_rejected(tiny: Path) -> None:
    with pytest.raises(DataError, match="pass --data_path first="):
        task().load({"data": tiny / "data" / "ada" / "ada_1.wav"})


@pytest.mark.parametrize(
    ("flag", "value"),
    [("of_each", -1), ("shortest", -1.0), ("least_speech", float("nan")), ("threshold", 2.0), ("far", [0.0])],
)
def test_invalid_flags(flag: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"--{flag}"):
        task(**{flag: value}).check()


def test_other_models_are_rejected(tiny: Path, tmp_path: Path) -> None:
    model = onnx.load(tiny / f"{NAME}_dyn.onnx")
    kept = {entry.key: entry.value for entry in model.metadata_props}
    how = options(SpeakerVerification)
    with pytest.raises(ModelError, match="metadata 'features'"):
        Notes.of(Model(Path("x.onnx")), how)
    with pytest.raises(ConfigError, match="N x T x 20"):
        Notes.of(Model(Path("x.onnx"), metadata=kept), how)
    kept["verification"] = '{"threshold": "high"}'
    onnx.helper.set_model_props(model, kept)
    onnx.save(model, tmp_path / f"{NAME}_dyn.onnx")
    with pytest.raises(ModelError, match="threshold 'high' must be a number; export the model again"):
        run("multi", tmp_path / "r.json", tmp_path, tiny / "data" / "ada")


def test_similarity() -> None:
    one = np.array([1, 2, 3], np.float32)
    assert similarity(one, 2 * one) == pytest.approx(1)
    assert np.isnan(similarity(one, 0 * one))
