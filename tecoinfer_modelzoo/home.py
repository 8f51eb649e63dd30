"""The user's home folder; the user of a container may have none (no ``HOME`` and a user id without a name)."""

from __future__ import annotations

import os
from pathlib import Path


def home_folder() -> Path | None:
    """Return the user's home folder, which may not exist; ``None`` if it is undefined."""
    found = os.path.expanduser("~") if os.environ.get("HOME", "~") else "~"
    return None if found == "~" else Path(found)


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path with a leading ``~`` or ``~USER`` expanded; unchanged if the home folder is unknown."""
    return Path(os.path.expanduser(path))
