"""Videos that are written: size, times and images, names, and folders that cannot be written."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine import ConfigError
from utils.draw import answer_on_frame
from utils.video.clip import open_frames
from utils.video.writer import VideoWriter, answers_file, comment_of

pytest.importorskip("av")

Moving = Callable[..., list[Image.Image]]


@pytest.mark.parametrize("size", [(96, 64), (95, 63)])
def test_images_come_back_at_their_times(size: tuple[int, int], tmp_path: Path, moving: Moving) -> None:
    images, times = moving(6, size), [7, 8, 9, 20, 21, 50]
    writer = VideoWriter(tmp_path / "new" / "out.mp4", size, Fraction(10), Fraction(1, 10))
    for image, ticks in zip(images, times, strict=True):
        writer.add(image, ticks)
    clip = open_frames(writer.close())
    assert (len(clip), clip.size) == (6, size)
    assert [round(clip.ticks(n) * clip.time_base * 10) for n in range(6)] == [0, 1, 2, 13, 14, 43]
    for number, image in enumerate(images):
        apart = np.abs(np.asarray(clip.image(number), np.float32) - np.asarray(image, np.float32))
        assert apart.mean() < 6
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out.mp4"]


def test_the_rate_is_stated(tmp_path: Path, moving: Moving) -> None:
    writer = VideoWriter(tmp_path / "out.mp4", (96, 64), Fraction(30000, 1001), Fraction(1, 30000))
    for number, image in enumerate(moving(8)):
        writer.add(image, number * 1001)
    assert open_frames(writer.close()).rate == Fraction(30000, 1001)


def test_names_of_answers(tmp_path: Path, moving: Moving) -> None:
    source, other = tmp_path / "clip.mp4", tmp_path / "below" / "clip.mp4"
    file = answers_file(tmp_path, source)
    assert file == tmp_path / "clip-answers.mp4"
    writer = VideoWriter(file, (96, 64), None, Fraction(1, 25), comment_of(source))
    writer.add(moving(1)[0], 0)
    writer.close()
    assert answers_file(tmp_path, source) == file  # replaced by a second run on the same clip
    assert answers_file(tmp_path, other) == tmp_path / f"clip-answers-{comment_of(other)[:12]}.mp4"
    (tmp_path / "camera-0-answers.mp4").write_text("of the user")
    camera = Path("camera:0")
    assert answers_file(tmp_path, camera).name == f"camera-0-answers-{comment_of(camera)[:12]}.mp4"


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigError, match=r"cannot write the video .*taken/out\.mp4 .*choose another folder"):
        VideoWriter(tmp_path / "taken" / "out.mp4", (96, 64), None, Fraction(1, 25))


def test_an_answer_on_a_frame_keeps_its_size(moving: Moving) -> None:
    (image,) = moving(1)
    enlarged = image.resize((192, 128))
    assert answer_on_frame(image, [], (96, 64)).tobytes() == image.tobytes()
    assert answer_on_frame(enlarged, ["7  0.9"], (96, 64)).size == (96, 64)
    assert answer_on_frame(moving(1, (200, 64))[0], ["a"], (96, 64)).size == (200, 64)
    tiny = moving(1, (64, 64))[0].crop((0, 0, 2, 2))
    assert answer_on_frame(tiny, ["7  0.9"], (2, 2)).tobytes() == tiny.tobytes()  # no room for text
    found = np.asarray(answer_on_frame(image, ["a word " * 60], (96, 64)))
    changed = np.flatnonzero((found != np.asarray(image)).any(axis=(1, 2)))
    assert changed.min() >= 64 - 2 * 15 - 6  # at most two rows of text
