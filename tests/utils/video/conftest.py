from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

MakeClip = Callable[..., Path]
Moving = Callable[..., list[Image.Image]]


@pytest.fixture(scope="session")
def moving() -> Moving:
    """A function that returns images that all differ, with smooth areas and edges: a square moves over a ramp."""

    def made(count: int, size: tuple[int, int] = (96, 64)) -> list[Image.Image]:
        across, down = np.meshgrid(np.arange(size[0]), np.arange(size[1]))
        found = []
        for number in range(count):
            pixels = np.stack([across * 2, down * 3, (across + down + number * 3) % 256], axis=-1).clip(0, 255)
            left = number * 2 % (size[0] - 16)
            pixels[20:36, left : left + 16] = (255, number % 256, 0)
            found.append(Image.fromarray(pixels.astype(np.uint8)))
        return found

    return made


@pytest.fixture(scope="session")
def make_clip() -> MakeClip:
    """A function that writes images as a clip with PyAV's own calls, and returns the file."""
    av = pytest.importorskip("av")

    def write(
        file: Path,
        frames: Sequence[Image.Image],
        codec: str = "libx264",
        *,
        form: str = "yuv420p",
        rate: int = 25,
        times: Sequence[int] | None = None,
        **options: Any,
    ) -> Path:
        with av.open(str(file), "w") as container:
            stream = container.add_stream(codec, rate=rate, options={key: str(one) for key, one in options.items()})
            stream.width, stream.height = frames[0].size
            stream.pix_fmt = form
            for number, image in enumerate(frames):
                frame = av.VideoFrame.from_image(image)
                frame.pts = number if times is None else times[number]
                frame.time_base = Fraction(1, rate)
                container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
        return file

    return write


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with sound only."""
    av = pytest.importorskip("av")
    file = tmp_path_factory.mktemp("sound") / "sound.mp4"
    with av.open(str(file), "w") as container:
        stream = container.add_stream("aac", rate=16000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts = 16000, 0
        container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return file
