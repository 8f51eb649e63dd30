"""Files that must be whole or not there: atomic writing, and hashes that say what a file was made from."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

_CHUNK = 2**20


def write_file(path: Path, *parts: bytes) -> None:
    """Write the parts, one after another, as a file; on any failure the file that was there is left as it was.

    Raises:
        OSError: the folder cannot be written, or the disk is full.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            for part in parts:
                file.write(part)
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
