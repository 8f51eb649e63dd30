"""Limits of time and memory of a command, from its flags or the environment."""

from __future__ import annotations

import os

TYPE_CHECKING = False  # as in typing, which takes some milliseconds
if TYPE_CHECKING:
    from collections.abc import Sequence

FLAGS = {"--time_limit": "TECO_TIME_LIMIT", "--memory_limit": "TECO_MEMORY_LIMIT"}
"""Each flag, and the variable that is asked where it is not given."""

CALL = 3600.0
"""Seconds that one call of native code may take where no limit of time is given."""


class Limits:
    """What a command may use before it is ended.

    Attributes:
        seconds: of wall time; ``None``: as long as it works.
        memory: bytes that its processes hold for themselves; ``None``: what the system gives.
        call: seconds that one call of native code may take where ``seconds`` is ``None``.
    """

    __slots__ = ("call", "memory", "seconds")

    def __init__(self, seconds: float | None = None, memory: float | None = None, call: float = CALL) -> None:
        self.seconds, self.memory, self.call = seconds, memory, call


def limits_of(words: Sequence[str] = ()) -> Limits:
    """Return the limits that flags ask for, or the environment.

    Args:
        words: of a command line; those behind ``--`` are not looked at.

    Raises:
        ValueError: a limit is not a positive number.
    """
    found = {}
    for flag, variable in FLAGS.items():
        where, text = _given(flag, words) or (variable, os.environ.get(variable, ""))
        found[flag] = positive_number(where, text) if text or where == flag else None
    memory = found["--memory_limit"]
    return Limits(found["--time_limit"], None if memory is None else memory * 2**30)


def positive_number(name: str, text: str) -> float:
    """Read a positive number.

    Raises:
        ValueError: it is none; the text names it.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1e9:
        raise ValueError(f"{name} {text[:80]!r} must be a number above 0 and up to 1e9")
    return value


def _given(flag: str, words: Sequence[str]) -> tuple[str, str] | None:
    """Return a flag and its value, the last one given; ``None`` where it is not there."""
    found = None
    for place, word in enumerate(words):
        if word == "--":
            break
        if word == flag:
            found = flag, words[place + 1] if place + 1 < len(words) else ""
        elif word.startswith(f"{flag}="):
            found = flag, word[len(flag) + 1 :]
    return found
