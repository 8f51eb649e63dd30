"""The scripts on clips: frames as samples, answers as a video, tracks of real digits, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support import DIGITS, ROOT

from engine import ConfigError, DataError
from tecoinfer_modelzoo import predict
from utils.datasets.synthetic.digit_scenes import written
from utils.datasets.synthetic.moving_digits import Mover, MovingDigits
from utils.pipeline.answers import main
from utils.postprocess.image.nms import overlaps
from utils.preprocess.image.images import open_image
from utils.tasks.base import Task
from utils.tasks.classification.task import Classification
from utils.tasks.dense_regression.task import DenseRegression
from utils.tasks.detection.task import Detection
from utils.tasks.text_classification import TextClassification
from utils.video.clip import open_frames

av = pytest.importorskip("av")

DETECTOR = ROOT / "example" / "detection" / "digit_detector"
SAMPLES = sorted((DETECTOR / "data" / "samples").glob("*.jpg"))

MakeClip = Callable[..., Path]


class Ran:
    """Runs a script in this process, on target onnx; keeps its result and what it printed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        self._patch, self._capsys, self._json = monkeypatch, capsys, tmp_path / "out.json"
        self.result: dict[str, Any] = {}
        self.out = self.err = ""

    def __call__(self, *words: object, task: type[Task] = Detection, script: str = "multi", **defaults: Any) -> int:
        given = [*map(str, words), "--target", "onnx", "--json", str(self._json)]
        self._patch.setattr("sys.argv", [script, *given])
        defaults = {"ckpt": DETECTOR / "digit_detector_dyn.onnx", "batch_size": 4, **defaults}
        code = main("", task, script, **defaults)
        self.out, self.err = self._capsys.readouterr()
        self.result = json.loads(self._json.read_text())
        return code

    @property
    def answers(self) -> list[Any]:
        return [one["answer"] for one in self.result["answers"]]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Ran:
    return Ran(monkeypatch, capsys, tmp_path)


@pytest.fixture(scope="module")
def lossless(make_clip: MakeClip, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The eight sample scenes of the digit detector as a clip without loss."""
    images = [Image.open(file).convert("RGB") for file in SAMPLES]
    return make_clip(tmp_path_factory.mktemp("clip") / "scenes.mkv", images, "ffv1", form="bgr0", rate=10)


def test_frames_are_prepared_as_the_same_images_in_files(lossless: Path, tmp_path: Path, ran: Ran) -> None:
    """Bit for bit: of a frame, and of the same frame saved as a PNG."""
    clip, folder = open_frames(lossless), tmp_path / "png"
    folder.mkdir()
    for number in range(len(clip)):
        clip.image(number).save(folder / f"{number:02d}.png")
    for task in (Detection, Classification):
        inputs: list[list[np.ndarray]] = []

        class Seen(task):  # type: ignore[valid-type, misc]
            def prepare(self, samples: Any, **out: Any) -> Any:
                found = super().prepare(samples, **out)
                inputs[-1].append(np.array(found.arrays[0]))  # noqa: B023
                return found

        how: dict[str, Any] = {"input_size": [160], "skip_postprocess": True} if task is Classification else {}
        for data in (lossless, folder):
            inputs.append([])
            assert ran("--data_path", data, "--workers", 0, task=Seen, **how) == 0
        frames, files = (np.concatenate(part) for part in inputs)
        assert len(frames) == 8
        np.testing.assert_array_equal(frames, files)


def test_answers_of_a_clip(lossless: Path, ran: Ran) -> None:
    assert ran("--data_path", lossless) == 0
    whole = ran.result
    assert [one["name"] for one in whole["answers"]] == [f"{lossless}#{number:06d}" for number in range(8)]
    assert [(one["frame"], one["seconds"]) for one in whole["answers"]] == [(n, n / 10) for n in range(8)]
    known = {"path": str(lossless), "width": 160, "height": 160, "frames_per_second": 10.0, "frames": 8}
    assert whole["video"] == {**known, "written": None}
    assert whole["figures"]["frames/s"] > 0
    assert "scenes.mkv#000003  3 objects" in ran.out or "scenes.mkv#000003  " in ran.out
    assert "figures: frames/s " in ran.out
    expected = ran.answers
    for workers, mode in ((0, "thread"), (3, "thread")):
        assert ran("--data_path", lossless, "--workers", workers, "--worker_mode", mode, "--batch_size", 3) == 0
        assert ran.answers == expected
    assert ran("--data_path", lossless, "--frames", "1:8:3", "--batch_size", 2) == 0
    assert [one["frame"] for one in ran.result["answers"]] == [1, 4, 7]
    assert ran.answers == expected[1::3]
    assert ran("--data_path", lossless, "--frames", "6", script="single", batch_size=1) == 0
    assert ran.answers == [expected[6]]
    assert ran("--data_path", lossless, script="single", batch_size=2) == 0
    assert ran.answers == expected[:2]


def test_answers_as_a_video(lossless: Path, tmp_path: Path, ran: Ran) -> None:
    folder = tmp_path / "drawn"
    assert ran("--data_path", lossless, "--save", folder, "--frames", "::2") == 0
    (file,) = folder.iterdir()
    assert file.name == "scenes-answers.mp4"
    assert ran.result["video"]["written"] == str(file)
    assert ran.out.count("written:") == 1
    assert f"written: {file}" in ran.out
    video, clip = open_frames(file), open_frames(lossless)
    assert (len(video), video.size, float(video.rate or 0)) == (4, clip.size, 5.0)
    assert [round(float(video.ticks(n) * video.time_base), 4) for n in range(4)] == [0.0, 0.2, 0.4, 0.6]
    apart = np.abs(np.asarray(video.image(0), int) - np.asarray(clip.image(0), int)).max(axis=-1)
    assert 0.02 < (apart > 60).mean() < 0.9  # boxes and names are drawn on it
    assert ran("--data_path", lossless, "--save", folder, "--save_frames") == 0
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["scenes-answers.mp4", *(f"scenes.mkv#{number:06d}.png" for number in range(8))]
    assert len(open_frames(file)) == 8


@pytest.mark.parametrize(
    ("words", "task", "script", "line"),
    [
        (["--data_path", "{clip}"], TextClassification, "multi", "task text_classification does not take a clip; pass"),
        (["--data_path", "camera:0"], TextClassification, "multi", "does not take a camera; pass"),
        (["--data_path", "{clip}"], Detection, "valid", "a clip has no labels to evaluate; use example_multi_batch.py"),
        (["--data_path", "{data}", "--frames", "3"], Detection, "multi", "--frames is for a clip or a camera"),
        (["--data_path", "{clip}", "--save_frames"], Detection, "multi", "add --save DIR"),
        (["--data_path", "camera:0", "--worker_mode", "process"], Detection, "multi", "use --worker_mode thread"),
        (["--data_path", "camera:0", "--dtype", "int8"], Detection, "multi", "record a clip and pass it"),
        (["--data_path", "{clip}", "--frames", "8:"], Detection, "multi", "has the frames 0 to 7, none of which"),
        (["--data_path", "camera:987"], Detection, "multi", "camera:987: there is no camera /dev/video987"),
        (["--data_path", "missing.mp4"], Detection, "multi", "missing.mp4 does not exist; check the path"),
    ],
)
def test_what_is_refused(
    words: list[str], task: type[Task], script: str, line: str, lossless: Path, ran: Ran, tmp_path: Path
) -> None:
    given = [word.format(clip=lossless, data=DETECTOR / "data" / "samples") for word in words]
    with pytest.raises((ConfigError, DataError)) as raised:
        ran(*given, task=task, script=script)
    assert line in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_wrong_range_is_one_line(ran: Ran, lossless: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        ran("--data_path", lossless, "--frames", "ten")
    assert "'ten' must be a number, or START:STOP:STEP" in capsys.readouterr().err


def crossing() -> MovingDigits:
    """Three real digits of the zoo: two that cross, and one that comes later."""
    rng, movers = np.random.default_rng(3), []
    for number, (label, start, velocity, frames) in enumerate(
        [
            (0, (6.0, 20.0), (3.0, 0.0), range(46)),
            (4, (110.0, 24.0), (-2.6, 0.2), range(46)),
            (6, (60.0, 108.0), (1.2, -0.3), range(15, 46)),
        ]
    ):
        small = Image.open(sorted((DIGITS / "data" / "val" / str(label)).glob("*.png"))[number])
        movers.append(Mover(number, label, written(rng, small, (40, 40)), start, velocity, frames))
    background = Image.new("RGB", (160, 160), (90, 110, 100))
    return MovingDigits(movers, background, seed=5)


def test_tracks_of_real_digits(make_clip: MakeClip, tmp_path: Path, ran: Ran) -> None:
    scene = crossing()
    frames = [scene.frame(number) for number in range(46)]
    clip = make_clip(tmp_path / "clip.mkv", [Image.fromarray(one.image) for one in frames], "ffv1", form="bgr0")
    most = max(float(overlaps(one.boxes[:1], one.boxes[1:2])[0, 0]) for one in frames if len(one.boxes) > 1)
    assert most > 0.3
    assert ran("--data_path", clip, "--track", "--score_threshold", 0.5) == 0
    tracks: dict[int, set[int]] = {0: set(), 1: set(), 2: set()}
    found = 0
    for truth, answer in zip(frames, ran.answers, strict=True):
        boxes = np.array([one["box"] for one in answer]).reshape(-1, 4)
        for number, label, row in zip(truth.numbers, truth.labels, overlaps(truth.boxes, boxes), strict=True):
            for place in np.flatnonzero(row > 0.5).tolist():
                if answer[place]["label"] == str(label):
                    tracks[number].add(answer[place]["track"])
                    found += 1
    assert found > 0.8 * sum(len(one.numbers) for one in frames)
    assert [len(seen) for seen in tracks.values()] == [1, 1, 1]
    assert len(set.union(*tracks.values())) == 3
    assert f"#{min(tracks[0])} 0 0." in ran.out
    assert open_image(SAMPLES[0]).size == (160, 160)


def test_tracks_of_a_folder_of_images(ran: Ran) -> None:
    assert ran("--data_path", DETECTOR / "data" / "samples", "--track") == 0
    numbers = [one["track"] for answer in ran.answers for one in answer]
    assert min(numbers) == 1
    assert all(len({one["track"] for one in answer}) == len(answer) for answer in ran.answers)


def test_frames_in_python(lossless: Path, tmp_path: Path) -> None:
    found = predict("digit_detector", lossless, frames="::5")
    assert [one.name for one in found] == [f"{lossless}#000000", f"{lossless}#000005"]
    (one,) = predict("digit_detector", [f"{lossless}#000005"])
    assert one.answer == found[1].answer
    assert found[1].save(tmp_path).name == "scenes.mkv#000005.png"
    with pytest.raises(ConfigError, match="save_frames=True is for the scripts"):
        predict("digit_detector", lossless, save_frames=True)


def test_a_model_of_two_images(lossless: Path, ran: Ran) -> None:
    stereo = ROOT / "example" / "segmentation" / "planes_stereo"
    with pytest.raises(DataError, match=r"its frames cannot be the samples of this model \(.* left and right images"):
        ran("--data_path", lossless, task=DenseRegression, ckpt=next(stereo.glob("*_dyn.onnx")), batch_size=1)
