"""Cameras of Linux (Video4Linux): ``camera:0`` is ``/dev/video0``, read by PyAV."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image

from engine import ConfigError, ImageError
from utils.video.packages import av, errors, reason
from utils.video.reader import FrameReader


def open_frames(path: Path) -> Live:
    """Open a camera. Raises ConfigError if there is none of this number, or it cannot be opened."""
    device = Path(f"/dev/video{path.name.partition(':')[2]}")
    if not device.exists():
        others = sorted(Path("/dev").glob("video[0-9]*"))
        known = ", ".join(f"camera:{one.name.removeprefix('video')}" for one in others) or "none"
        raise ConfigError(f"{path}: there is no camera {device} (found: {known}); connect it, or pass another one")
    return Live(path, str(device), "v4l2")


class Live(FrameReader):
    """Frames that arrive in real time, numbered as they arrive.

    Args:
        path: name of the source. device, form: as FFmpeg opens it.

    Raises:
        ConfigError: it cannot be opened; or, when a frame is read, it stopped.
    """

    def __init__(self, path: Path, device: str, form: str) -> None:
        super().__init__(path)
        try:
            self._container = av().open(device, format=form)
            self._frames: Iterator[Any] = self._container.decode(video=0)
            first, why = next(self._frames, None), "no frame arrived"
        except errors() as error:
            first, why = None, reason(error)
        if first is None:
            raise ConfigError(f"{path}: {device} cannot be opened ({why}); check the camera")
        stream = self._container.streams.video[0]
        self.rate, self.time_base = stream.average_rate, stream.time_base
        self._waiting, self._number, self._times = [first], 0, dict[int, int]()
        self._first = first.pts or 0
        self.size = self.converted(first).size

    def __len__(self) -> int:
        return sys.maxsize

    def decoded(self) -> tuple[int, Any] | None:
        """Return the next frame. Raises ConfigError if the camera stopped."""
        frame, why = None, "it ended"
        try:
            frame = self._waiting.pop() if self._waiting else next(self._frames, None)
        except errors() as error:
            why = reason(error)
        if frame is None:
            raise ConfigError(f"{self.path}: delivers no more frames ({why}); check the camera")
        number, self._number = self._number, self._number + 1
        self._times[number] = frame.pts if frame.pts is not None else number
        self._times.pop(number - 2 * self._most, None)
        return number, frame

    def seek(self, number: int) -> int:
        """Return the number of the next frame. Raises ImageError for an earlier frame."""
        if number < self._next:
            raise ImageError(f"{self.name(number)}: removed from memory, later frames were read; use fewer --workers")
        return self._next

    def converted(self, frame: Any) -> Image.Image:
        """Return a decoded frame as an RGB image."""
        image: Image.Image = frame.to_image()
        return image

    def ticks(self, number: int) -> int:
        """Return the time of a frame that was read lately, since the first one."""
        return self._times[number] - self._first
