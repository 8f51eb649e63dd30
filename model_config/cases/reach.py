"""How far the values of a case reach: what a step is given must not lead it out of its model's folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

MOST_CHARACTERS = 100_000
"""Characters of a step's command line; Linux takes some more."""

LONGEST_VALUE = 8000
"""Characters of one value on it."""


def leaves(text: str, folder: str) -> bool:
    """Say whether a text, as a path, leads out of a folder, links included.

    Args:
        folder: the folder's real path.
    """
    path = PurePosixPath(text)
    inside = Path(os.path.realpath(os.path.join(folder, text))).is_relative_to(folder)
    return path.is_absolute() or ".." in path.parts or not inside


def leaving(value: Any, folder: str) -> str | None:
    """Return the value, or the one of a list, that would lead a script out of its folder; ``None`` where none does.

    Which flags name files only the script knows, and a value may be another flag in disguise (``--resume=/x``). So any
    text counts that is a path out of the folder, or has one behind ``=`` or a comma.
    """
    for text in value if isinstance(value, list) else [value]:
        # What cannot be printed is refused as such, and halves of characters are in no path.
        if isinstance(text, str) and text.isprintable() and any(_is_out(part, folder) for part in _parts(text)):
            return text
    return None


def _parts(text: str) -> Iterator[str]:
    """Yield what of a text may be a path."""
    yield text
    yield from (part.strip() for part in re.split(r"[=,]", text)[1:])


def _is_out(text: str, folder: str) -> bool:
    home = text.partition("/")[0].startswith("~") and ("/" in text or text == "~")  # where a script expands it
    return home or leaves(text.strip(), folder)


def characters(params: Mapping[str, Any]) -> int:
    """Return how many characters parameters have on a command line."""
    values = [one for value in params.values() for one in (value if isinstance(value, list) else [value])]
    return sum(len(str(key)) + 3 for key in params) + sum(len(str(value)) + 1 for value in values)
