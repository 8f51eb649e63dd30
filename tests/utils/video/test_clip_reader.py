"""Clips by PyAV: frames by number in any order and from several threads, and files that cannot be read."""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine import ConfigError, DataError, ImageError
from utils.preprocess.image.images import open_image, upright_size
from utils.video import packages
from utils.video.clip import Clip, open_frames
from utils.video.names import FramePath
from utils.video.reader import FEWEST, frame_at, reader_of

av = pytest.importorskip("av")

MakeClip = Callable[..., Path]
Moving = Callable[..., list[Image.Image]]

FORMS = {
    "B frames": ("clip.mp4", "libx264", {"g": 12, "bf": 3}),
    "one key frame": ("clip.mkv", "libx264", {"g": 1000}),
    "key frames only": ("clip.mov", "mjpeg", {"form": "yuvj420p"}),
    "AVI without times": ("clip.avi", "mpeg4", {"g": 9, "bf": 2}),
    "VP8": ("clip.webm", "libvpx", {"g": 20, "deadline": "realtime", "cpu-used": 8}),
    "VP9": ("clip.webm", "libvpx-vp9", {"g": 20, "deadline": "realtime", "cpu-used": 8}),
    "transport stream": ("clip.ts", "libx264", {"g": 12}),
}


def plainly(file: Path) -> list[np.ndarray]:
    """Return all frames as PyAV's own loop gives them."""
    with av.open(str(file)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


@pytest.mark.parametrize("form", FORMS)
def test_frames_by_number_are_those_of_a_plain_loop(
    form: str, make_clip: MakeClip, tmp_path: Path, moving: Moving
) -> None:
    name, codec, how = FORMS[form]
    if codec not in av.codecs_available:
        pytest.skip(f"this FFmpeg lacks {codec}")
    file = make_clip(tmp_path / name, moving(36), codec, **how)
    expected = plainly(file)
    assert len(expected) == 36
    clip = open_frames(file)
    assert (len(clip), clip.size, clip.rate) == (36, (96, 64), Fraction(25))
    shuffled = random.Random(1).sample(range(36), 36)
    for order in (range(36), range(35, -1, -5), shuffled, range(0, 36, 13)):
        for number in order:
            np.testing.assert_array_equal(np.asarray(clip.image(number)), expected[number], f"frame {number}")


def test_a_frame_of_vp8_that_is_not_shown(make_clip: MakeClip, tmp_path: Path, moving: Moving) -> None:
    """Encoders store such frames as references for others; they have times, and are not frames of the clip."""
    whole, file = make_clip(tmp_path / "whole.webm", moving(8), "libvpx", deadline="realtime"), tmp_path / "clip.webm"
    with av.open(str(whole)) as source, av.open(str(file), "w") as container:
        stream = container.add_stream_from_template(source.streams.video[0])
        for number, packet in enumerate(one for one in source.demux(video=0) if one.size):
            data = bytearray(bytes(packet))
            if number == 3:
                data[0] &= ~0x10
            copy = av.Packet(bytes(data))
            copy.pts, copy.dts, copy.time_base = packet.pts, packet.dts, packet.time_base
            copy.is_keyframe, copy.stream = packet.is_keyframe, stream
            container.mux(copy)
    expected, clip = plainly(file), open_frames(file)
    assert len(expected) == len(clip) == 7
    for number, frame in enumerate(expected):
        np.testing.assert_array_equal(np.asarray(clip.image(number)), frame)


def test_a_lossless_clip_has_the_pixels_of_its_images(make_clip: MakeClip, tmp_path: Path, moving: Moving) -> None:
    frames = moving(5)
    clip = open_frames(make_clip(tmp_path / "clip.mkv", frames, "ffv1", form="bgr0"))
    assert [clip.image(number).tobytes() for number in range(5)] == [image.tobytes() for image in frames]


def test_a_long_gap_is_crossed_by_seeking(make_clip: MakeClip, tmp_path: Path, moving: Moving) -> None:
    file = make_clip(tmp_path / "clip.mp4", moving(200), g=20)
    clip, expected = Counted(file), plainly(file)
    np.testing.assert_array_equal(np.asarray(clip.image(190)), expected[190])
    assert clip.taken <= 20  # from the key frame 180
    np.testing.assert_array_equal(np.asarray(clip.image(45)), expected[45])
    assert clip.taken <= 40


class Counted(Clip):
    """A clip that counts the frames decoded."""

    taken = 0

    def decoded(self) -> Any:
        self.taken += 1
        return super().decoded()

    def _restart(self) -> None:
        super()._restart()
        self.taken = 0


def test_few_frames_are_held(make_clip: MakeClip, tmp_path: Path, moving: Moving) -> None:
    clip = open_frames(make_clip(tmp_path / "clip.mp4", moving(100)))
    for number in range(100):
        clip.image(number)
        assert len(clip._kept) <= FEWEST
    clip.keep(40)
    clip.selected = range(0, 100, 10)
    for number in clip.selected:
        clip.image(number)
    assert {*clip._kept} >= {50, 60, 70, 80, 90}
    assert not {number for number in clip._kept if number % 10} & {*range(1, 84)}


def test_several_threads(make_clip: MakeClip, tmp_path: Path, moving: Moving) -> None:
    file = make_clip(tmp_path / "clip.mp4", moving(60), g=10)
    expected, clip = plainly(file), open_frames(file)
    order = [*range(4, 60), *range(4)] * 2
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(clip.image, order))
    for number, image in zip(order, found, strict=True):
        np.testing.assert_array_equal(np.asarray(image), expected[number])


def test_times_of_a_clip_with_a_varying_rate(make_clip: MakeClip, tmp_path: Path, moving: Moving) -> None:
    clip = open_frames(make_clip(tmp_path / "clip.mkv", moving(4), times=[10, 11, 15, 40]))
    assert [float(clip.ticks(number) * clip.time_base) for number in range(4)] == pytest.approx([0, 0.04, 0.2, 1.2])


def test_the_path_of_a_frame_is_that_of_an_image(make_clip: MakeClip, tmp_path: Path, moving: Moving) -> None:
    file = make_clip(tmp_path / "clip.mp4", moving(3))
    path = FramePath.of(file, 2)
    assert str(path) == f"{file}#000002"
    assert path.is_file()
    assert path.exists()
    assert not path.parent.is_file()
    assert not FramePath(tmp_path / "other.png").exists()
    assert open_image(str(path)).tobytes() == frame_at(str(path)).tobytes()
    assert upright_size(path) == (96, 64)
    assert reader_of(file) is reader_of(file)
    with pytest.raises(ImageError, match="six digits"):
        frame_at(str(file))
    with pytest.raises(ConfigError, match="not a clip or a camera"):
        reader_of(tmp_path / "clip.png")


def test_a_rotated_clip_is_upright(make_clip: MakeClip, tmp_path: Path, moving: Moving) -> None:
    class Turned(Clip):
        def converted(self, frame: Any) -> Image.Image:
            return super().converted(TurnedFrame(frame, 90))

    file = make_clip(tmp_path / "clip.mkv", moving(2), "ffv1", form="bgr0")
    clip = Turned(file)
    assert clip.size == (64, 96)
    assert clip.image(1).tobytes() == moving(2)[1].transpose(Image.Transpose.ROTATE_90).tobytes()


class TurnedFrame:
    """A frame with the rotation that a telephone stores."""

    def __init__(self, frame: Any, rotation: int) -> None:
        self._frame, self.rotation = frame, rotation

    def to_image(self) -> Image.Image:
        return self._frame.to_image()


def test_frames_of_another_size(tmp_path: Path, moving: Moving) -> None:
    data = io.BytesIO()
    for size in ((96, 64), (96, 64), (48, 32)):
        moving(1, size)[0].save(data, "JPEG")
    (tmp_path / "clip.mjpeg").write_bytes(data.getvalue())
    clip = open_frames(tmp_path / "clip.mjpeg")
    assert clip.image(1).size == (96, 64)
    with pytest.raises(ConfigError, match=r"clip\.mjpeg#000002: is 48x32, and the first frame 96x64.*--frames :2"):
        clip.image(2)


def test_files_that_cannot_be_read(make_clip: MakeClip, sound: Path, tmp_path: Path, moving: Moving) -> None:
    whole = make_clip(tmp_path / "whole.mp4", moving(9)).read_bytes()
    files = {
        "missing.mp4": (None, "does not exist; check the path"),
        "empty.mp4": (b"", r"cannot be read as a clip \(.+\); record or convert it again"),
        "text.mp4": (b"no video " * 50, r"cannot be read as a clip \(.+\); record or convert it again"),
        "cut.mp4": (whole[: len(whole) // 2], r"cannot be read as a clip \(.+\); record or convert it again"),
        "sound.mp4": (sound.read_bytes(), "has no video stream, only audio; pass a clip with images"),
    }
    for name, (content, line) in files.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=line) as raised:
            open_frames(tmp_path / name)
        assert str(tmp_path / name) in str(raised.value)
        assert "\n" not in str(raised.value)
    with pytest.raises(DataError, match="without a frame"):
        open_frames(_without_frames(tmp_path / "none.mkv"))


def _without_frames(file: Path) -> Path:
    """Write a clip with sound, and a video stream of which no frame was written."""
    with av.open(str(file), "w") as container:
        stream, sound = container.add_stream("libx264", rate=25), container.add_stream("aac", rate=16000)
        stream.width, stream.height, stream.pix_fmt = 96, 64, "yuv420p"
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts = 16000, 0
        container.mux(sound.encode(frame))
        container.mux(sound.encode(None))
    return file


def test_damaged_frames_are_errors_of_these_frames(make_clip: MakeClip, tmp_path: Path, moving: Moving) -> None:
    images = moving(12)
    file = make_clip(tmp_path / "clip.mov", images, "png", form="rgb24")
    data = bytearray(file.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 40] = b"\xff" * 40
    file.write_bytes(bytes(data))
    clip, lost = open_frames(file), dict[int, str]()
    for number, image in enumerate(images):
        try:
            assert clip.image(number).tobytes() == image.tobytes()
        except ImageError as error:
            lost[number] = str(error)
    assert 1 <= len(lost) <= 2
    assert 0 not in lost
    assert all(text.startswith(f"{file}#{number:06d}: cannot be decoded") for number, text in lost.items())


def test_without_pyav(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clip.mp4").write_bytes(b"any")
    monkeypatch.setitem(sys.modules, "av", None)
    packages.av.cache_clear()
    line = r"^video needs the package av, which is not installed; run: pip install .*video"
    with pytest.raises(ConfigError, match=line):
        open_frames(tmp_path / "clip.mp4")
    packages.av.cache_clear()
