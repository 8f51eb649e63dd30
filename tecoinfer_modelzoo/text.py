"""Small words about texts: errors of others in one line of ours, shapes, and the word that was meant."""

from __future__ import annotations

import sys
from collections.abc import Iterable


def one_line(text: object) -> str:
    """Return a text, or an error's, with all white space as single blanks."""
    try:
        return " ".join(str(text).split())
    except Exception as error:  # noqa: BLE001 - an error of somebody else's code may fail at telling what it is
        return f"{type(text).__name__}, whose text raises {type(error).__name__}"


_KEPT = "\n"
_CONTROL = [*range(0x20), *range(0x7F, 0xA0)]
_TURNING = [0x61C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF]
"""Marks that turn the text around, lines' and paragraphs' ends, and one without any width (Unicode Annex 9)."""
_WRITTEN_OUT = {code: chr(code).encode("unicode_escape").decode() for code in (*_CONTROL, *_TURNING)}

_LONGEST_WORD = 200
"""Letters of a word that is compared with known ones."""

MOST_SHOWN = 1200
"""Characters of a line for people; of a longer one the middle is left out."""


def printable(text: str, keep: str = _KEPT) -> str:
    """Return a text with what would move a terminal's cursor, colour it or turn the text around as escapes.

    Args:
        keep: control characters that stay. A file's name, which may hold any, is shown with ``keep=""``.
    """
    if text.isprintable():  # nearly always, and quicker to see; all of ours are not
        return text
    return text.translate({code: shown for code, shown in _WRITTEN_OUT.items() if chr(code) not in keep})


def shortened(text: str, most: int = MOST_SHOWN, *, end: bool = True) -> str:
    """Return a line that has more than ``most`` characters without its middle, and say how many are left out.

    Args:
        end: ``False``: only its beginning is shown, ``most`` characters with the three dots behind it.
    """
    if len(text) <= most:
        return text
    if not end:
        return f"{text[: most - 3]}..."
    head, tail = most * 2 // 3, most // 4
    return f"{text[:head]} [... {len(text) - head - tail} characters ...] {text[-tail:]}"


def shown_value(value: object, most: int = 80) -> str:
    """Return a wrong value as a message shows it: on one line, and not all of one that is long or nested."""
    import reprlib  # only an error needs it

    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = most
    try:
        text = one_line(short.repr(value))
    except ValueError:  # Python writes no whole number of thousands of digits, which YAML and JSON may hold
        return "a number of thousands of digits"
    return shortened(text, most, end=False)


def reason_of(error: BaseException) -> str:
    """Return an error's text in one line; the name of its type where it has none."""
    return one_line(error) or type(error).__name__


def typed_reason(error: BaseException, most: int | None = None) -> str:
    """Return an error's type and text in one line, such as ``ValueError: bad header``; its type where it has no text.

    Args:
        most: characters of the text; ``None`` for all.
    """
    text, name = one_line(error)[:most], type(error).__name__
    return f"{name}: {text}" if text else name


def shape_text(sizes: Iterable[int | str | None]) -> str:
    """Return a shape in words, such as ``Nx3x224x224``: ``N`` for an open dimension, ``scalar`` where there is none."""
    return "x".join("N" if size is None else str(size) for size in sizes) or "scalar"


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Return the known word that is most like this one; ``None`` where none is.

    Args:
        cutoff: least likeness, from 0 to 1, as :func:`difflib.get_close_matches` measures it.
    """
    import difflib  # only an error needs it

    if len(word) > _LONGEST_WORD:
        return None
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """Return `` did you mean 'x'?``, with a blank in front, for the :func:`nearest` known word; else nothing."""
    near = nearest(word, known, cutoff)
    return "" if near is None else f" did you mean {near!r}?"


def level_of_user() -> int:
    """Return the ``stacklevel`` with which the function that asks warns at the line that called the zoo's engine.

    How many calls lie between is another number on every target. Where all are the engine's, it is the outermost.
    """
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "engine":
        level, frame = level + 1, frame.f_back
    return level
