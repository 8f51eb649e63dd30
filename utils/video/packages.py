"""PyAV, which reads and writes video, in the extra ``video``; it is imported when it is needed."""

from __future__ import annotations

from functools import cache
from typing import Any

from tecoinfer_modelzoo.extra import extra


@cache
def av() -> Any:
    """Return the module ``av``. Raises ConfigError, with the command that installs it, if it is missing."""
    with extra("video", "video"):
        import av as found
    found.logging.set_level(found.logging.PANIC)  # FFmpeg's own messages; errors are raised
    return found


def errors() -> tuple[type[Exception], ...]:
    """Return the classes of the errors that PyAV raises for files, devices and data that it cannot use."""
    return av().FFmpegError, OSError, ValueError
