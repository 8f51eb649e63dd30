"""Sources of frames that ``--data_path`` may name in place of images: the table :data:`SOURCES`.

A further kind of source is a module with a function ``open_frames(path)``, which returns a
:class:`~utils.video.reader.FrameReader`, and a row here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ENDINGS = (
    *(".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".m2ts", ".mts", ".wmv", ".flv"),
    *(".ogv", ".3gp", ".264", ".h264", ".265", ".hevc", ".mjpeg", ".mjpg", ".y4m"),
)
"""Endings, in any case, of the names of clips."""


class Source(NamedTuple):
    """A kind of source.

    Attributes:
        what: with its article, for messages.
        pattern: regular expression for the last part of a path.
        module: has ``open_frames(path) -> FrameReader``.
        live: frames arrive in real time: they cannot be read again, and their number is unknown.
    """

    what: str
    pattern: str
    module: str
    live: bool = False


SOURCES = [
    Source("a clip", rf"(?is).+({'|'.join(map(re.escape, ENDINGS))})", "utils.video.clip"),
    Source("a camera", r"camera:\d+", "utils.video.camera", live=True),
]
"""The kinds of sources, in the order in which they are tried."""


def source_of(path: str | Path) -> Source | None:
    """Return the kind of source of a path; ``None``: it is not a source of frames. Files are not read."""
    name = str(path).rpartition("/")[2]
    return next((one for one in SOURCES if re.fullmatch(one.pattern, name)), None)
