"""Iteration over the files of an archive: zip (wheels), tar (sdists, npm) and Debian packages; nothing is written, and
links, devices and sparse files are distinguished from regular files.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import shutil
import stat
import subprocess
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from utils.fetch.package import FetchError

DAMAGED = (
    EOFError,
    OSError,  # also of gzip and bz2
    RuntimeError,  # an encrypted zip file
    NotImplementedError,  # a zip file with an unknown compression
    UnicodeError,
    ValueError,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)
"""Exceptions raised for a damaged archive."""

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".txz", ".tar.zst")
SUFFIXES = (".zip", ".whl", ".deb", *TAR_SUFFIXES)
"""File name suffixes of supported archives."""


@dataclass(frozen=True)
class Entry:
    """One entry of an archive; ``stream`` opens a regular file (``plain``) and must be read before the next entry."""

    name: str
    plain: bool
    stream: Callable[[], IO[bytes]]


def is_archive(name: str) -> bool:
    """Return whether a file name is that of a supported archive."""
    return name.lower().endswith(SUFFIXES)


def entries(path: Path, name: str, most: int) -> Iterator[Entry]:
    """Yield the entries of an archive except folders; the suffix of its file name gives the format.

    Raises FetchError if it unpacks to more than ``most`` bytes, including skipped files, or zstd is not installed; one
    of :data:`DAMAGED` if it is damaged.
    """
    lower = name.lower()
    if lower.endswith((".zip", ".whl")):
        yield from _zip(path)
        return
    with path.open("rb") as file:
        inner, inside = _data_of_deb(file) if lower.endswith(".deb") else (file, lower)
        opener = _OPENERS.get(inside[inside.rfind(".") :], _zstd if inside.endswith(".zst") else nullcontext)
        with opener(inner) as plain:
            yield from _tar(plain, most)


def _zip(path: Path) -> Iterator[Entry]:
    with zipfile.ZipFile(path) as archive:
        for found in archive.infolist():
            kind = stat.S_IFMT(found.external_attr >> 16)
            if not found.is_dir():
                # Type 0 is a regular file, written on a system without file types.
                yield Entry(found.filename, kind in (0, stat.S_IFREG), lambda one=found: archive.open(one))  # type: ignore[misc]


def _tar(file: IO[bytes], most: int) -> Iterator[Entry]:
    limited = _limited(file, most, f"the archive unpacks to more than {most} bytes; the package is rejected")
    with tarfile.open(fileobj=limited, mode="r|", errorlevel=2) as archive:
        for found in archive:
            if not found.isdir():
                plain = found.isreg() and not found.issparse()
                yield Entry(found.name, plain, lambda one=found: cast("IO[bytes]", archive.extractfile(one)))  # type: ignore[misc]


class _Limited(io.RawIOBase):
    """The next ``size`` bytes of a file; with ``error``, FetchError is raised if there are more."""

    def __init__(self, file: IO[bytes], size: int, error: str) -> None:
        self._file, self._left, self._error = file, size, error

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer and return the number of bytes."""
        found = self._file.read(len(buffer) if self._error else min(len(buffer), self._left))
        self._left -= len(found)
        if self._left < 0:
            raise FetchError(self._error)
        buffer[: len(found)] = found
        return len(found)


def _limited(file: IO[bytes], size: int, error: str = "") -> IO[bytes]:
    return cast("IO[bytes]", io.BufferedReader(cast("Any", _Limited(file, size, error))))


_OPENERS: Mapping[str, Callable[[IO[bytes]], Any]] = {
    ".gz": gzip.open,
    ".tgz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".txz": lzma.open,
    ".lzma": lzma.open,
}
"""Decompressors by file name suffix."""


@contextmanager
def _zstd(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Decompress by the program zstd, as Python supports it only since 3.14."""
    program = shutil.which("zstd")
    if program is None:
        raise FetchError("the archive needs zstd, which is not installed; run: apt-get install zstd")
    pipe = subprocess.PIPE
    with subprocess.Popen([program, "-dcq"], stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None  # noqa: S101 -- both are pipes, for the type checker
        assert process.stdout is not None  # noqa: S101
        feeder = threading.Thread(target=_feed, args=(file, process.stdin), daemon=True)
        feeder.start()
        try:
            yield process.stdout
        finally:
            process.kill()
            feeder.join()


def _feed(file: IO[bytes], pipe: IO[bytes]) -> None:
    try:
        with pipe:
            shutil.copyfileobj(file, pipe, 2**20)
    except (BrokenPipeError, ValueError):
        return  # the program ended early, which the reader of its output detects


_AR_HEADER = 60


def _data_of_deb(file: IO[bytes]) -> tuple[IO[bytes], str]:
    """Return the data archive of a Debian package, and its name.

    A package is an ``ar`` archive (deb(5), ar(5)): 8 bytes of magic, then for each part a header of 60 bytes of text
    (name in 0 to 16, size in 48 to 58, a backtick and a newline at the end), then its content, padded to even length.
    """
    if file.read(8) != b"!<arch>\n":
        raise ValueError("not an ar archive")
    while header := file.read(_AR_HEADER):
        if len(header) < _AR_HEADER or header[58:] != b"`\n":
            raise ValueError("a part of the ar archive has a damaged header")
        name, size = header[:16].decode("ascii").strip().rstrip("/"), int(header[48:58].decode("ascii"))
        if size < 0:
            raise ValueError("a part of the ar archive has a negative size")
        if name.startswith("data.tar"):
            return _limited(file, size), name
        file.seek(size + size % 2, io.SEEK_CUR)
    raise ValueError("the ar archive does not contain data.tar")
