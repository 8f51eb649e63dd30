"""SHA-256 of file contents, cached while device, inode, size, mtime and ctime stay the same.

Size and mtime can be restored after a change; ctime can only be changed by setting the clock. The kernel's clock has a
resolution of some milliseconds, so two changes may have the same time: a recently changed file is hashed again.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tecoinfer_modelzoo.cache import read_entry, write_entry
from tecoinfer_modelzoo.files import open_regular
from tecoinfer_modelzoo.json_types import Problems, text, whole

SETTLED = 2_000_000_000
"""Minimum age of a file's last change, in nanoseconds, for its hash to be cached."""

KEPT_BYTES = 1 << 25
"""Minimum file size, in bytes, for a cache entry on disk: hashing it takes about 70 ms."""

_KIND, _CHUNK, _AGAIN = "hashes", 1 << 20, 3

T = TypeVar("T")


class Stamp(NamedTuple):
    """Identity and state of a file as ``stat`` reports them."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        """Return the stamp of a ``stat`` result."""
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    @property
    def settled(self) -> bool:
        """Whether the last change is old enough that another change would have another time."""
        return 0 <= max(self.mtime_ns, self.ctime_ns) < time.time_ns() - SETTLED


def stamp_of(path: Path) -> Stamp:
    """Return a file's stamp; links are followed. Raise OSError if the file does not exist."""
    return Stamp.of(os.stat(path))


class Content(NamedTuple):
    """SHA-256 of a file in hexadecimal, the file's stamp, and whether the searched bytes occur in it."""

    sha256: str
    stamp: Stamp
    found: bool


_cached: dict[tuple[Stamp, bytes], Content] = {}


def content_of(path: Path, search: bytes = b"") -> Content:
    """Return hash, stamp and presence of ``search`` of a regular file, which is only read if its stamp is not cached.

    Raises OSError if the file cannot be read, is not a regular file, or keeps changing.
    """
    with open_regular(path) as file:
        for _ in range(_AGAIN):
            stamp = Stamp.of(os.fstat(file.fileno()))
            if (cached := _recalled(stamp, search)) is not None:
                return cached
            was_settled = stamp.settled
            file.seek(0)
            found = _read(file.read, search)
            if Stamp.of(os.fstat(file.fileno())) == stamp:  # unchanged while it was read
                content = Content(found[0], stamp, found[1])
                if was_settled:
                    _remember(content, search)
                return content
    raise OSError(f"{path} changed while it was read")


def _read(read: Callable[[int], bytes], search: bytes) -> tuple[str, bool]:
    digest, there, tail = hashlib.sha256(), not search, b""
    while chunk := read(_CHUNK):
        digest.update(chunk)
        if not there:
            there = search in (joined := tail + chunk)
            tail = joined[-len(search) :]
    return digest.hexdigest(), bool(search) and there


def _key(stamp: Stamp, search: bytes) -> str:
    return hashlib.sha256(repr((tuple(stamp), search)).encode()).hexdigest()


def _recalled(stamp: Stamp, search: bytes) -> Content | None:
    if (cached := _cached.get((stamp, search))) is not None or stamp.size < KEPT_BYTES:
        return cached
    entry = read_entry(_KIND, _key(stamp, search))
    if entry is None:
        return None
    try:
        found = Content(text(entry["sha256"]), stamp, bool(whole(entry["found"])))
    except Problems:
        return None
    _cached[stamp, search] = found
    return found


def _remember(content: Content, search: bytes) -> None:
    _cached[content.stamp, search] = content
    if content.stamp.size >= KEPT_BYTES:
        entry: dict[str, Any] = {"sha256": content.sha256, "found": int(content.found)}
        write_entry(_KIND, _key(content.stamp, search), entry)
