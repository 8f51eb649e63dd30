"""Files that must be whole or not there: atomic writing, and hashes that say what a file was made from."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CHUNK = 2**20


def write_file(path: Path, *parts: bytes) -> None:
    """Write the parts, one after another, as a file; on any failure the file that was there is left as it was.

    Raises:
        OSError: the folder cannot be written, or the disk is full.
    """
    with in_place_of(path) as temporary, temporary.open("wb") as file:
        for part in parts:
            file.write(part)


@contextmanager
def in_place_of(path: Path, suffix: str = "") -> Iterator[Path]:
    """Yield an empty file beside ``path`` that takes its place if the block ends well, and is gone if it does not.

    Args:
        path: the file to write. suffix: how the name of the file beside it ends.

    Raises:
        OSError: the folder cannot be written.
    """
    special = path.exists() and not path.is_file() and not path.is_dir()  # /dev/stdout, a pipe: written to, kept
    place = None if special else path.parent
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", suffix=suffix, dir=place)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        if special:
            path.write_bytes(temporary.read_bytes())
        else:
            temporary.chmod(0o644)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def hash_files(*paths: Path) -> str:
    """Return the SHA-256 of the files' contents, one after another, in hexadecimal.

    Raises:
        OSError: one cannot be read.
    """
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()
