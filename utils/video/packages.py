"""PyAV, which reads and writes video, in the extra ``video``; it is imported when it is needed."""

from __future__ import annotations

from functools import cache
from typing import Any

from tecoinfer_modelzoo.extra import extra
from tecoinfer_modelzoo.text import reason_of


@cache
def av() -> Any:
    """Return the module ``av``. Raises ConfigError, with the command that installs it, if it is missing."""
    with extra("video", "video"):
        import av as found
    found.logging.set_level(None)  # with another level, a message of a decoder's thread waits for the interpreter lock
    return found


def errors() -> tuple[type[Exception], ...]:
    """Return the classes of the errors that PyAV raises for files, devices and data that it cannot use."""
    return av().FFmpegError, OSError, ValueError


def reason(error: BaseException) -> str:
    """Return the reason of an error of PyAV, without the number and the file that its text has."""
    return getattr(error, "strerror", None) or reason_of(error)
