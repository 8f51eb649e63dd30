"""Time and memory limits of a command, from its options or the environment."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as in typing, which takes some milliseconds
if TYPE_CHECKING:
    from collections.abc import Sequence

FLAGS = {"--time_limit": "TECO_TIME_LIMIT", "--memory_limit": "TECO_MEMORY_LIMIT"}
"""Option -> environment variable that is used if the option is missing."""

CALL = 3600.0
"""Maximum duration of a call of native code in seconds without a time limit."""


class Limits:
    """Limits: seconds of wall time, bytes of private memory, and (without ``seconds``) seconds of a native call."""

    __slots__ = ("call", "memory", "seconds")

    def __init__(self, seconds: float | None = None, memory: float | None = None, call: float = CALL) -> None:
        self.seconds, self.memory, self.call = seconds, memory, call


def limits_of(words: Sequence[str] = ()) -> Limits:
    """Return the limits from options before ``--``, or the environment; raise ValueError for invalid numbers."""
    found = {}
    for flag, variable in FLAGS.items():
        where, text = _given(flag, words) or (variable, os.environ.get(variable, ""))
        found[flag] = positive_number(where, text) if text or where == flag else None
    memory = found["--memory_limit"]
    return Limits(found["--time_limit"], None if memory is None else memory * 2**30)


def positive_number(name: str, text: str) -> float:
    """Parse a positive number; raise ValueError if the text is not one; the message contains ``name``."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1e9:
        raise ValueError(f"{name} {text[:80]!r} must be a number above 0 and up to 1e9")
    return value


def _given(flag: str, words: Sequence[str]) -> tuple[str, str] | None:
    """Return an option and its last value on the command line; ``None`` if it is missing."""
    found = None
    for place, word in enumerate(words):
        if word == "--":
            break
        if word == flag:
            found = flag, words[place + 1] if place + 1 < len(words) else ""
        elif word.startswith(f"{flag}="):
            found = flag, word[len(flag) + 1 :]
    return found
