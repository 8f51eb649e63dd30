"""Which content a file has: its SHA-256, remembered as long as what the kernel says of the file stays the same.

A file's size and time of modification can be set back after a change; its change time (``ctime``) cannot, but by
setting the clock. So a hash is remembered by all three and the inode. As a clock of the kernel moves in steps of some
milliseconds, two changes of a file may have one time: a file that was changed just before is hashed again.
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
"""Nanoseconds since a file's last change after which its hash is remembered."""

KEPT_BYTES = 1 << 25
"""Bytes of a file from which its hash is worth an entry of the cache: 70 ms of hashing."""

_KIND, _CHUNK, _AGAIN = "hashes", 1 << 20, 3

T = TypeVar("T")


class Stamp(NamedTuple):
    """What changes whenever a file does."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        """Take it from what ``stat`` says."""
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    @property
    def settled(self) -> bool:
        """Whether the last change is so long ago that another one would have another time."""
        return 0 <= max(self.mtime_ns, self.ctime_ns) < time.time_ns() - SETTLED


def stamp_of(path: Path) -> Stamp:
    """Return a file's stamp; links are followed.

    Raises:
        OSError: there is no such file.
    """
    return Stamp.of(os.stat(path))


class Content(NamedTuple):
    """A file's SHA-256 in hexadecimal, the stamp it has with this content, and whether a searched text is in it."""

    sha256: str
    stamp: Stamp
    found: bool


_known: dict[tuple[Stamp, bytes], Content] = {}


def content_of(path: Path, search: bytes = b"") -> Content:
    """Return what a regular file holds; it is read only where that is not known by its stamp.

    Args:
        path: the file. search: a text whose presence is looked for in the same pass.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    with open_regular(path) as file:
        for _ in range(_AGAIN):
            stamp = Stamp.of(os.fstat(file.fileno()))
            if (known := _recalled(stamp, search)) is not None:
                return known
            was_settled = stamp.settled
            file.seek(0)
            found = _read(file.read, search)
            if Stamp.of(os.fstat(file.fileno())) == stamp:  # it was not changed while it was read
                content = Content(found[0], stamp, found[1])
                if was_settled:
                    _remember(content, search)
                return content
    raise OSError(f"{path} changes while it is read")


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
    if (known := _known.get((stamp, search))) is not None or stamp.size < KEPT_BYTES:
        return known
    entry = read_entry(_KIND, _key(stamp, search))
    if entry is None:
        return None
    try:
        found = Content(text(entry["sha256"]), stamp, bool(whole(entry["found"])))
    except Problems:
        return None
    _known[stamp, search] = found
    return found


def _remember(content: Content, search: bytes) -> None:
    _known[content.stamp, search] = content
    if content.stamp.size >= KEPT_BYTES:
        entry: dict[str, Any] = {"sha256": content.sha256, "found": int(content.found)}
        write_entry(_KIND, _key(content.stamp, search), entry)
