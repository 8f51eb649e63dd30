"""The user's home folder, which a container's user may not have: no ``HOME``, and a number without a name."""

from __future__ import annotations

import os
from pathlib import Path


def home_folder() -> Path | None:
    """Return the user's home folder, which need not exist; ``None`` where the user has none."""
    found = os.path.expanduser("~") if os.environ.get("HOME", "~") else "~"
    return None if found == "~" else Path(found)


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path with ``~`` or ``~USER`` at its beginning replaced; as it is where there is no such home folder."""
    return Path(os.path.expanduser(path))
