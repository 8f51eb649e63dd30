"""Small words about texts: errors of others in one line of ours, shapes, and the word that was meant."""

from __future__ import annotations

import sys
from collections.abc import Iterable


def one_line(text: object) -> str:
    """Return a text, or an error's, with all white space as single blanks."""
    return " ".join(str(text).split())


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
