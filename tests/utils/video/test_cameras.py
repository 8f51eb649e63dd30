"""Cameras: a stream of images stands for one, as the machines of the tests have none."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from support import ROOT

from engine import ConfigError, ImageError
from utils.pipeline.answers import main
from utils.tasks.detection.task import Detection
from utils.video import camera, reader
from utils.video.camera import Live, open_frames
from utils.video.clip import open_frames as open_clip

pytest.importorskip("av")

DETECTOR = ROOT / "example" / "detection" / "digit_detector"


@pytest.fixture
def stream(tmp_path: Path, moving: Callable[..., list[Image.Image]]) -> Path:
    """Twelve images one after the other, as many cameras send them."""
    data = io.BytesIO()
    for image in moving(12):
        image.save(data, "JPEG")
    (tmp_path / "stream").write_bytes(data.getvalue())
    return tmp_path / "stream"


def test_frames_are_numbered_as_they_arrive(stream: Path) -> None:
    live = Live(Path("camera:7"), str(stream), "mjpeg")
    assert live.size == (96, 64)
    first = live.image(0).tobytes()
    assert live.image(3).tobytes() != first
    assert live.image(0).tobytes() == first  # one of the frames that are kept
    assert live.name(3) == "camera:7#000003"
    assert live.ticks(0) == 0
    assert live.ticks(3) > live.ticks(2) > 0
    for number in range(4, 12):
        live.image(number)
    with pytest.raises(ConfigError, match=r"camera:7: delivers no more frames \(it ended\); check the camera"):
        live.image(12)


def test_frames_that_are_gone(stream: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "FEWEST", 2)
    live = Live(Path("camera:7"), str(stream), "mjpeg")
    live.keep(1)
    live.image(8)
    with pytest.raises(ImageError, match=r"camera:7#000002: removed from memory"):
        live.image(2)


def test_a_camera_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match=r"camera:987: there is no camera /dev/video987 \(found: .+\); connect it"):
        open_frames(Path("camera:987"))


def test_a_device_that_is_not_a_camera(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"camera:1: .*other cannot be opened \(.+\); check the camera"):
        Live(Path("camera:1"), str(tmp_path / "other"), "mjpeg")


def test_the_script_ends_after_a_count_or_with_the_stream(
    stream: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(camera, "open_frames", lambda path: Live(path, str(stream), "mjpeg"))
    monkeypatch.setattr(reader, "_open", type(reader._open)())
    out, drawn = tmp_path / "out.json", tmp_path / "drawn"
    words = ["--data_path", "camera:3", "--target", "onnx", "--batch_size", "2", "--json", str(out)]
    monkeypatch.setattr("sys.argv", ["multi", *words, "--frames", ":7", "--save", str(drawn)])
    assert main("", Detection, "multi", ckpt=DETECTOR / "digit_detector_dyn.onnx") == 0
    result = json.loads(out.read_text())
    assert [one["name"] for one in result["answers"]] == [f"camera:3#{number:06d}" for number in range(7)]
    assert result["video"]["frames"] is None
    assert len(open_clip(drawn / "camera-3-answers.mp4")) == 7
    monkeypatch.setattr(reader, "_open", type(reader._open)())
    monkeypatch.setattr("sys.argv", ["multi", *words, "--save", str(drawn)])
    with pytest.raises(ConfigError, match="delivers no more frames"):
        main("", Detection, "multi", ckpt=DETECTOR / "digit_detector_dyn.onnx")
    result = json.loads(out.read_text())
    assert result["finished"] is False
    assert len(open_clip(drawn / "camera-3-answers.mp4")) == len(result["answers"]) > 0
    capsys.readouterr()
