"""Names of frames: ``clip.mp4#000012`` is frame 12 of ``clip.mp4``, and is used like the path of an image file."""

from __future__ import annotations

import os
import re
from pathlib import Path, PosixPath
from typing import Any

from utils.video.sources import source_of

_FRAME = re.compile(r"(?s)(.+)#(\d{6,})")


def split(name: str) -> tuple[str, int] | None:
    """Return the source and the number of a frame's path or name; ``None`` for any other text."""
    found = _FRAME.fullmatch(name) if "#" in name else None
    return (found[1], int(found[2])) if found and source_of(found[1]) is not None else None


def is_frame(name: str) -> bool:
    """Return whether a path or a file name is that of a frame."""
    return split(name) is not None


def stem_of(path: str | os.PathLike[str]) -> str:
    """Return a file name without its ending; that of a frame is unchanged."""
    name = Path(path).name
    return name if is_frame(name) else Path(name).stem


class FramePath(PosixPath):
    """Path of a frame. It counts as an existing file, so that loaders take it for the path of an image."""

    @classmethod
    def of(cls, source: Path, number: int) -> FramePath:
        """Return the path of a frame of a source."""
        return cls(f"{source}#{number:06d}")

    def exists(self, **how: Any) -> bool:
        """Return true for a frame."""
        return is_frame(self.name) or super().exists(**how)

    def is_file(self, **how: Any) -> bool:
        """Return true for a frame."""
        return is_frame(self.name) or super().is_file(**how)
