"""Facts about source files that a check derives from their contents alone, kept for the next check.

Most of the time of a check in which no case has changed went into parsing the same files again. A fact is stored under
the hash of the content it was derived from, so the content is read and hashed in every check, and a changed file has
no stored fact, whatever its size and times. All facts are dropped when the code of the check or Python changes.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

from tecoinfer_modelzoo.cache import read_entry, write_entry
from tecoinfer_modelzoo.files import hash_files

KIND = "check_sources"
"""Folder name in the cache."""

_SPARE = 2000
"""Number of facts kept although the last check did not need them, such as those of another branch."""


class Remembered:
    """Facts by key, JSON values; read from the cache at once, written by :meth:`save`.

    Args:
        stored: use the facts of earlier checks.
    """

    def __init__(self, *, stored: bool = True) -> None:
        self._name = _code()
        self._old: dict[str, Any] = (read_entry(KIND, self._name) or {}) if stored else {}
        self._used: dict[str, Any] = {}
        self._is_new = False

    def find(self, key: str) -> Any:
        """Return the fact stored under a key; ``None`` if there is none."""
        found = self._used.get(key)
        if found is None and (found := self._old.get(key)) is not None:
            self._used[key] = found
        return found

    def keep(self, key: str, fact: Any) -> None:
        """Store a fact, which must not be ``None``."""
        self._used[key] = fact
        self._is_new = True

    def save(self) -> None:
        """Write the facts to the cache if there are new ones; the oldest of those not used are dropped."""
        if self._is_new:
            others = [(key, fact) for key, fact in self._old.items() if key not in self._used]
            write_entry(KIND, self._name, dict(others[-_SPARE:]) | self._used)


def key_of(what: str, name: str, content: bytes) -> str:
    """Return the key of a fact: its kind, the name it also depends on, and the hash of the content."""
    return f"{what} {hashlib.sha256(content).hexdigest()} {name}"


def _code() -> str:
    """Return the hash of the code that derives the facts, and of Python's version."""
    code = hash_files(*sorted(Path(__file__).parent.rglob("*.py")))
    return hashlib.sha256(f"{sys.version} {code}".encode()).hexdigest()
