"""Writing of images as a video, H.264 in MP4, by PyAV."""

from __future__ import annotations

import hashlib
import os
import secrets
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

from PIL import Image

from engine import ConfigError
from utils.video.packages import av, errors, reason

ENCODERS = {"libx264": {"crf": "18", "preset": "veryfast"}, "libopenh264": {}, "mpeg4": {"qscale": "3"}}
"""Encoders by name, with their options; the first one that the installed FFmpeg has is used."""

USUAL_RATE = Fraction(25)
"""Frames per second that a video states if its source has no rate; frames have their own times."""


def answers_file(folder: Path, source: Path) -> Path:
    """Return the file for the answers to a source's frames: its name with ``-answers.mp4``.

    If this file exists, and is not the video of the same source, a hash of the source's path is added to the name.
    """
    stem, comment = source.stem.replace(":", "-"), comment_of(source)
    first = folder / f"{stem}-answers.mp4"
    own = not first.exists() or _comment(first) == comment
    return first if own else folder / f"{stem}-answers-{comment[:12]}.mp4"


def comment_of(source: Path) -> str:
    """Return the comment of a video by which its source is known: a hash of the path."""
    return hashlib.sha256(os.fsencode(source.resolve())).hexdigest()


class VideoWriter:
    """A video file, which replaces an earlier one when it is closed.

    Args:
        file: MP4; its folder is created if missing. size: width and height in pixels.
        rate: frames per second; ``None``: unknown. time_base: unit of the frames' times, in seconds.
        comment: stored in the file.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(
        self, file: Path, size: tuple[int, int], rate: Fraction | None, time_base: Fraction, comment: str = ""
    ) -> None:
        self._file, self._size, self._base = file, size, time_base
        self._first: int | None = None
        self._draft = file.parent / f".{secrets.token_hex(8)}.tmp"
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._container = av().open(str(self._draft), "w", format="mp4")
            self._container.metadata["comment"] = comment
            self._stream = self._opened(rate or USUAL_RATE)
        except errors() as error:
            raise self._failed(error) from error

    def _opened(self, rate: Fraction) -> Any:
        name = next(one for one in ENCODERS if one in av().codecs_available)
        stream = self._container.add_stream(name, rate=rate, options=ENCODERS[name])
        stream.width, stream.height = self._size
        odd = any(side % 2 for side in self._size)  # chroma of 4:2:0 needs even sides
        stream.pix_fmt = "yuv444p" if odd and name == "libx264" else "yuv420p"
        stream.codec_context.time_base = self._base
        return stream

    def add(self, image: Image.Image, ticks: int) -> None:
        """Add an RGB image at a time in units of the time base, later than that of the one before.

        The first image is at time 0; one of another size is resized. Raises ConfigError if it cannot be written.
        """
        if image.size != self._size:
            image = image.resize(self._size, Image.Resampling.BILINEAR)
        self._first = ticks if self._first is None else self._first
        try:
            frame = av().VideoFrame.from_image(image)
            frame.pts, frame.time_base = ticks - self._first, self._base
            self._container.mux(self._stream.encode(frame))
        except errors() as error:
            raise self._failed(error) from error

    def close(self) -> Path:
        """Write the rest, and return the file. Raises ConfigError if it cannot be written."""
        try:
            self._container.mux(self._stream.encode(None))
            self._container.close()
            return self._draft.replace(self._file)
        except errors() as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> ConfigError:
        with suppress(OSError):
            self._draft.unlink(missing_ok=True)
        return ConfigError(f"cannot write the video {self._file} ({reason(error)}); choose another folder")


def _comment(file: Path) -> str | None:
    """Return the comment of a video; ``None`` for any other file."""
    try:
        with av().open(str(file)) as container:
            found: str | None = container.metadata.get("comment")
            return found
    except errors():  # not a video
        return None
