"""Clips: video files, decoded by PyAV (FFmpeg's libraries).

Frames are numbered from 0 in the order of their times. The file is read once to list the times of its frames (8 bytes
each), without decoding; from then on frames are decoded as they are needed. A format without such times is decoded once
to count its frames. A rotation stored by the camera is applied.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from engine import Array, DataError, ImageError
from tecoinfer_modelzoo.files import check_regular
from utils.video.packages import av, errors, reason
from utils.video.reader import FrameReader

_UPRIGHT = {90: Image.Transpose.ROTATE_90, 180: Image.Transpose.ROTATE_180, 270: Image.Transpose.ROTATE_270}
"""Transposition for each rotation of a clip in degrees, counterclockwise."""

SHOWN_FRAME = 0x10
"""Bit of the first byte of a VP8 frame: without it, the frame is only a reference for others (RFC 6386, 9.1)."""


def open_frames(path: Path) -> Clip:
    """Open a clip. Raises DataError if it cannot be read, and ConfigError if PyAV is not installed."""
    return Clip(path)


class Clip(FrameReader):
    """Frames of a video file.

    Raises:
        DataError: the file is missing, damaged, or without a video stream or a frame.
    """

    def __init__(self, path: Path) -> None:
        self._file = path
        self._container, self._stream = self._opened()
        self._frames: Iterator[Any] = iter(())
        self._times, self._keys = self._listed()
        self._count = len(self._times) if len(self._times) else self._counted()
        if not self._count:
            raise DataError(f"{path}: has a video stream without a frame; record or convert it again")
        self.rate = self._stream.average_rate or self._stream.guessed_rate
        self.time_base = self._stream.time_base if len(self._times) else 1 / (self.rate or Fraction(25))
        super().__init__(path)
        self._restart()
        first = self.decoded()
        if first is None:
            raise DataError(f"{path}: none of its frames can be decoded; record or convert it again")
        self.size = self.converted(first[1]).size
        self._restart()

    def __len__(self) -> int:
        return self._count

    def _opened(self) -> tuple[Any, Any]:
        try:
            check_regular(self._file)
            container = av().open(str(self._file))
        except errors() as error:
            if isinstance(error, FileNotFoundError):
                raise DataError(f"data path {self._file} does not exist; check the path") from error
            fix = "record or convert it again"
            raise DataError(f"{self._file}: cannot be read as a clip ({reason(error)}); {fix}") from error
        if not container.streams.video:
            kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "an empty file"
            raise DataError(f"{self._file}: has no video stream, only {kinds}; pass a clip with images")
        stream = container.streams.video[0]
        if stream.codec_context is None:
            raise DataError(f"{self._file}: its video has a codec that FFmpeg does not know; convert it to H.264")
        limit = Image.MAX_IMAGE_PIXELS
        if limit is not None and stream.width * stream.height > limit:
            size = f"{stream.width}x{stream.height}"
            raise DataError(f"{self._file}: frames of {size} exceed the limit of {limit} pixels; reduce its size")
        stream.thread_type = "AUTO"
        return container, stream

    def _packets(self) -> Iterator[Any]:
        """Yield the packets of the video stream; a damaged file ends early."""
        with suppress(*errors()):
            yield from self._container.demux(self._stream)

    def _listed(self) -> tuple[Array, Array]:
        """Return the sorted times of all frames, int64 in units of the stream, and the numbers of key frames.

        Both are empty if the times are incomplete.
        """
        times, keys = array("q"), array("q")
        nothing = np.empty(0, np.int64), np.empty(0, np.int64)
        for packet in self._packets():
            if not packet.size or packet.is_discard or self._is_hidden(packet):
                continue
            if packet.pts is None:
                return nothing
            times.append(packet.pts)
            if packet.is_keyframe:
                keys.append(packet.pts)
        found = np.unique(np.asarray(times, np.int64))
        return (found, np.searchsorted(found, np.unique(keys))) if len(found) == len(times) else nothing

    def _is_hidden(self, packet: Any) -> bool:
        """Return whether a packet of VP8 is not shown."""
        return self._stream.codec_context.name in ("vp8", "libvpx") and not bytes(packet)[0] & SHOWN_FRAME

    def _counted(self) -> int:
        """Return the number of frames by decoding all of them."""
        self._restart()
        return sum(1 for _ in self._frames)

    def _restart(self) -> None:
        self._container.close()
        self._container, self._stream = self._opened()
        self._frames = self._decoding(0)

    def _decoding(self, number: int) -> Iterator[tuple[int, Any]]:
        """Yield the frames from the container's position on, with their numbers; damaged ones are left out.

        ``number``: that of the first one, if times are unknown.
        """
        for packet in self._packets():
            found = []
            with suppress(*errors()):  # damaged data, of which the next packet is independent
                found = packet.decode()
            for frame in found:
                if not len(self._times):
                    yield number, frame
                    number += 1
                    continue
                place = int(np.searchsorted(self._times, frame.pts)) if frame.pts is not None else self._count
                if place < self._count and self._times[place] == frame.pts:
                    yield place, frame

    def decoded(self) -> tuple[int, Any] | None:
        """Return the next frame in order, with its number."""
        return next(self._frames, None)

    def seek(self, number: int) -> int:
        """Continue at the last key frame before a frame, unless decoding is already there or beyond."""
        keys = self._keys[: np.searchsorted(self._keys, number, "right")]
        nearest = int(keys[-1]) if len(keys) else 0
        if nearest <= self._next <= number:
            return self._next
        if nearest:
            self._container.seek(int(self._times[nearest]), stream=self._stream)
            # frames before the key frame would refer to frames that were not decoded
            frames = (one for one in self._decoding(0) if one[0] >= nearest)
            first = next(frames, None)
            if first is not None and first[0] <= number:
                self._frames = _with_first(first, frames)
                return first[0]
        self._restart()
        return 0

    def converted(self, frame: Any) -> Image.Image:
        """Return a decoded frame as an upright RGB image."""
        try:
            image: Image.Image = frame.to_image()
        except errors() as error:
            raise ImageError(f"{self.path}: a frame cannot be converted ({reason(error)})") from error
        turn = _UPRIGHT.get(round(getattr(frame, "rotation", 0)) % 360)
        return image if turn is None else image.transpose(turn)

    def ticks(self, number: int) -> int:
        """Return the time of a frame since the first one."""
        return int(self._times[number] - self._times[0]) if len(self._times) else number


def _with_first(first: Any, others: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from others
