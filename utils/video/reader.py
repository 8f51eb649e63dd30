"""Reading of frames by their numbers, in any order and by several threads, with few of them in memory."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

from PIL import Image

from engine import ConfigError, ImageError
from tecoinfer_modelzoo.files import size_and_time
from utils.video.names import FramePath, split
from utils.video.sources import source_of

FEWEST = 16
"""Least number of decoded frames that a reader keeps."""

FAR = 64
"""Number of frames from which on a reader seeks, instead of decoding those in between."""

OPEN = 4
"""Number of sources that stay open for frames that are read by their paths."""


class FrameReader(ABC):
    """Frames of a source. Subclasses decode in order, and may go back.

    Attributes:
        path: of the source, which the names of frames begin with.
        size: width and height of the upright frames in pixels.
        rate: mean number of frames per second; ``None``: unknown.
        time_base: unit of :meth:`ticks` in seconds.
        selected: numbers of the frames that are used; others are decoded only if the codec needs them.
    """

    path: Path
    size: tuple[int, int]
    rate: Fraction | None = None
    time_base = Fraction(1, 90_000)

    def __init__(self, path: Path) -> None:
        self.path, self.selected = path, range(len(self))
        self._kept: OrderedDict[int, Any] = OrderedDict()
        self._most, self._next, self._lock = FEWEST, 0, threading.Lock()

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of frames; of a live source a number that is never reached."""

    @abstractmethod
    def decoded(self) -> tuple[int, Any] | None:
        """Return the next frame in order, with its number; ``None`` at the end."""

    @abstractmethod
    def seek(self, number: int) -> int:
        """Let :meth:`decoded` continue at this frame or before it, and return the number that it continues at.

        Raises ImageError if the source cannot go back.
        """

    @abstractmethod
    def converted(self, frame: Any) -> Image.Image:
        """Return a decoded frame as an upright RGB image."""

    @abstractmethod
    def ticks(self, number: int) -> int:
        """Return the time of a frame since the first one, in units of :attr:`time_base`."""

    def keep(self, count: int) -> None:
        """Keep the last ``count`` decoded frames, as the threads of a run ask for them out of order, and again."""
        self._most = max(FEWEST, count)

    def name(self, number: int) -> str:
        """Return the name of a frame, which is its path."""
        return str(FramePath.of(self.path, number))

    def image(self, number: int) -> Image.Image:
        """Return a frame, mode RGB, upright. Thread-safe.

        Raises:
            ImageError: it cannot be decoded. ConfigError: it has another size than the first one.
        """
        with self._lock:
            frame = self._kept[number] if number in self._kept else self._read(number)
        image = self.converted(frame)
        if image.size != self.size:
            wide, first = ("x".join(map(str, size)) for size in (image.size, self.size))
            raise ConfigError(
                f"{self.name(number)}: is {wide}, and the first frame {first}; frames of one size are supported: "
                f"split the clip, or choose frames with --frames :{number}"
            )
        return image

    def _read(self, number: int) -> Any:
        if not self._next <= number < self._next + FAR:
            self._next = self.seek(number)
        while (found := self.decoded()) is not None:
            place, frame = found
            self._next = place + 1
            if place in self.selected:
                self._kept[place] = frame
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
            if place == number:
                return frame
            if place > number:
                break
        raise ImageError(f"{self.name(number)}: cannot be decoded (damaged, or missing in the file); leave it out")


_open: OrderedDict[tuple[str, tuple[int, int]], FrameReader] = OrderedDict()
_opening = threading.Lock()


def reader_of(path: Path) -> FrameReader:
    """Return the reader of a source, which frames of the source are read by; it stays open.

    Raises:
        ConfigError: the source is not one of :data:`~utils.video.sources.SOURCES`, or cannot be used here.
        DataError: it cannot be read.
    """
    kind = source_of(path)
    if kind is None:
        raise ConfigError(f"{path}: is not a clip or a camera; pass another path")
    key = str(path), size_and_time(path)
    with _opening:
        if key not in _open:
            _open[key] = import_module(kind.module).open_frames(path)
        _open.move_to_end(key)
        while len(_open) > OPEN:
            _open.popitem(last=False)
        return _open[key]


def frame_at(path: str) -> Image.Image:
    """Return the frame of a path such as ``clip.mp4#000012``, mode RGB, upright.

    Raises DataError or ConfigError as :func:`reader_of` and :meth:`FrameReader.image`.
    """
    found = split(path)
    if found is None:
        raise ImageError(f"{path}: is not the path of a frame; write CLIP#NUMBER, the number with six digits or more")
    return reader_of(Path(found[0])).image(found[1])
