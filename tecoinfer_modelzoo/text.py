"""Text helpers: errors as one line, escaping, shortening, shapes, and suggestions for misspelled names."""

from __future__ import annotations

import sys
from collections.abc import Iterable


def one_line(text: object) -> str:
    """Return a text or an error message with white space collapsed to single blanks."""
    try:
        return " ".join(str(text).split())
    except Exception as error:  # noqa: BLE001 - __str__ of a foreign error may raise anything
        return f"{type(text).__name__}, whose text raises {type(error).__name__}"


_KEPT = "\n"
_CONTROL = [*range(0x20), *range(0x7F, 0xA0)]
_BIDIRECTIONAL = [0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF]
"""Bidirectional formatting characters, line and paragraph separators, and the byte order mark (Unicode Annex 9)."""
_ESCAPES = {code: chr(code).encode("unicode_escape").decode() for code in (*_CONTROL, *_BIDIRECTIONAL)}
_LONGEST_WORD = 200  # maximum length of a word that is compared with others

MOST_SHOWN = 1200
"""Maximum length of a printed line; longer ones are shortened in the middle."""


def printable(text: str, keep: str = _KEPT) -> str:
    """Return a text with control, colour and reordering characters escaped, except ``keep`` (``""`` for file names)."""
    if text.isprintable():  # fast path for almost every text
        return text
    return text.translate({code: shown for code, shown in _ESCAPES.items() if chr(code) not in keep})


def shortened(text: str, most: int = MOST_SHOWN, *, end: bool = True) -> str:
    """Return a line of at most ``most`` characters, without its middle or (``end=False``) its end."""
    if len(text) <= most:
        return text
    if not end:
        return f"{text[: most - 3]}..."
    head, tail = most * 2 // 3, most // 4
    return f"{text[:head]} [... {len(text) - head - tail} characters ...] {text[-tail:]}"


def shown_value(value: object, most: int = 80) -> str:
    """Return an invalid value as text for a message: on one line, and shortened."""
    import reprlib  # only an error needs it

    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = most
    try:
        text = one_line(short.repr(value))
    except ValueError:  # Python does not print integers of more than 4300 digits
        return "a number of thousands of digits"
    return shortened(text, most, end=False)


def reason_of(error: BaseException) -> str:
    """Return an error message in one line; the name of its type if it is empty."""
    return one_line(error) or type(error).__name__


def typed_reason(error: BaseException, most: int | None = None) -> str:
    """Return an error's type and message (up to ``most`` characters), such as ``ValueError: bad header``."""
    text, name = one_line(error)[:most], type(error).__name__
    return f"{name}: {text}" if text else name


def shape_text(sizes: Iterable[int | str | None]) -> str:
    """Return a shape as text, such as ``Nx3x224x224``: ``N`` for a dynamic dimension, ``scalar`` for rank 0."""
    return "x".join("N" if size is None else str(size) for size in sizes) or "scalar"


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the most similar known word, with ``cutoff`` as in :func:`difflib.get_close_matches`; else ``None``."""
    import difflib  # only an error needs it

    if len(word) > _LONGEST_WORD:
        return None
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return `` did you mean 'x'?`` with a leading blank for the :func:`nearest` known word; else ""."""
    near = nearest(word, known, cutoff)
    return "" if near is None else f" did you mean {near!r}?"


def user_stacklevel() -> int:
    """Return the ``stacklevel`` with which the caller's warning refers to the line that called the engine.

    The number of frames between depends on the target; if all frames belong to the engine, the outermost is used.
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "engine":
        level, frame = level + 1, frame.f_back
    return level
