"""Checks that the values of a case do not lead a step out of its model's folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

MOST_CHARACTERS = 100_000
"""Maximum characters of a step's command line; the limit of Linux is higher."""

LONGEST_VALUE = 8000
"""Maximum characters of one value."""


def leaves(text: str, folder: str) -> bool:
    """Return whether a text, as a path, leads out of a folder, with links resolved.

    Args:
        folder: the real path of the folder.
    """
    path = PurePosixPath(text)
    inside = Path(os.path.realpath(os.path.join(folder, text))).is_relative_to(folder)
    return path.is_absolute() or ".." in path.parts or not inside


def leaving(value: Any, folder: str) -> str | None:
    """Return the value, or the item of a list, that leads out of the folder; ``None`` if there is none.

    The flags that take files are unknown here, and a value may contain another flag (``--resume=/x``). So any text
    counts that is a path out of the folder, or has one after ``=`` or a comma.
    """
    for text in value if isinstance(value, list) else [value]:
        # Non-printable values are reported separately, and paths contain no surrogates.
        if isinstance(text, str) and text.isprintable() and any(_is_out(part, folder) for part in _parts(text)):
            return text
    return None


def _parts(text: str) -> Iterator[str]:
    """Yield the parts of a text that may be paths."""
    yield text
    yield from (part.strip() for part in re.split(r"[=,]", text)[1:])


def _is_out(text: str, folder: str) -> bool:
    home = text.partition("/")[0].startswith("~") and ("/" in text or text == "~")  # in case a script expands it
    return home or leaves(text.strip(), folder)


def characters(params: Mapping[str, Any]) -> int:
    """Return the number of characters of parameters on a command line."""
    values = [one for value in params.values() for one in (value if isinstance(value, list) else [value])]
    return sum(len(str(key)) + 3 for key in params) + sum(len(str(value)) + 1 for value in values)
