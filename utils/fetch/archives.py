"""The files of an archive, one after another: zip (wheels), tar (sdists, npm) and Debian's packages.

Nothing is written here, and nothing is followed: a link, a device or a sparse file is told apart from a plain file.
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
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from utils.fetch.errors import FetchError

DAMAGED = (
    EOFError,
    OSError,  # gzip's and bz2's, too
    RuntimeError,  # a zip file with a password
    NotImplementedError,  # a zip file with a compression of its own
    UnicodeError,
    ValueError,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What reading a damaged archive raises."""

TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".txz", ".tar.zst")
SUFFIXES = (".zip", ".whl", ".deb", *TAR_SUFFIXES)
"""How the names of archives end that can be read."""


@dataclass(frozen=True)
class Entry:
    """One entry of an archive, to be read before the next one is asked for.

    Attributes:
        name: its path. plain: whether it is a plain file. stream: its content, of a plain file.
    """

    name: str
    plain: bool
    stream: Callable[[], IO[bytes]]


def is_archive(name: str) -> bool:
    """Say by its name whether a file is an archive that can be read."""
    return name.lower().endswith(SUFFIXES)


def entries(path: Path, name: str, most: int) -> Iterator[Entry]:
    """Yield what is in an archive, folders left out.

    Args:
        path: the archive. name: its name, whose end says what it is.
        most: bytes it may unpack to, those included that nobody keeps.

    Raises:
        FetchError: it unpacks to more, or needs a program that is not installed.
        Exception: one of :data:`DAMAGED`.
    """
    lower = name.lower()
    if lower.endswith((".zip", ".whl")):
        yield from _zip(path)
        return
    with path.open("rb") as file, ExitStack() as stack:
        if lower.endswith(".deb"):
            inner, inner_name = _data_of_deb(file)
            yield from _tar(stack.enter_context(_decompressed(inner, inner_name)), most)
        else:
            yield from _tar(stack.enter_context(_decompressed(file, lower)), most)


def _zip(path: Path) -> Iterator[Entry]:
    with zipfile.ZipFile(path) as archive:
        for found in archive.infolist():
            kind = stat.S_IFMT(found.external_attr >> 16)
            if not found.is_dir():
                # A type of 0: written by a system without such types, so a plain file.
                yield Entry(found.filename, kind in (0, stat.S_IFREG), lambda one=found: archive.open(one))  # type: ignore[misc]


def _tar(file: IO[bytes], most: int) -> Iterator[Entry]:
    limited = cast("IO[bytes]", io.BufferedReader(cast("Any", _Limited(file, most))))
    with tarfile.open(fileobj=limited, mode="r|", errorlevel=2) as archive:
        for found in archive:
            if not found.isdir():
                plain = found.isreg() and not found.issparse()
                yield Entry(found.name, plain, lambda one=found: cast("IO[bytes]", archive.extractfile(one)))  # type: ignore[misc]


class _Limited(io.RawIOBase):
    """A stream that ends with an error behind so many bytes."""

    def __init__(self, file: IO[bytes], most: int) -> None:
        self._file, self._left, self._most = file, most, most

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer and return how many bytes came."""
        found = self._file.read(len(buffer))
        self._left -= len(found)
        if self._left < 0:
            raise FetchError(f"the archive unpacks to more than {self._most} bytes; such a package is not taken")
        buffer[: len(found)] = found
        return len(found)


_OPENERS: Mapping[str, Callable[[IO[bytes]], Any]] = {
    ".gz": gzip.open,
    ".tgz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".txz": lzma.open,
    ".lzma": lzma.open,
}
"""What reads a compressed file, by the end of its name."""


@contextmanager
def _decompressed(file: IO[bytes], name: str) -> Iterator[IO[bytes]]:
    opener = _OPENERS.get(name[name.rfind(".") :], _zstd if name.endswith(".zst") else nullcontext)
    with opener(file) as plain:
        yield plain


@contextmanager
def _zstd(file: IO[bytes]) -> Iterator[IO[bytes]]:
    """Read zstd by the program, as Python has it only since 3.14."""
    program = shutil.which("zstd")
    if program is None:
        raise FetchError("the archive is compressed by zstd, which is not installed; run: apt-get install zstd")
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
        return  # the program ended before all was read, which its reader sees


_AR_HEADER = 60


def _data_of_deb(file: IO[bytes]) -> tuple[IO[bytes], str]:
    """Return the archive of the files that a Debian package installs, and its name.

    A package is an ``ar`` archive (deb(5), ar(5)): 8 bytes of magic, then for each part a header of 60 bytes of text
    (name in 0 to 16, size in 48 to 58, a backtick and a newline at the end), then its content, padded to even length.
    """
    if file.read(8) != b"!<arch>\n":
        raise ValueError("no ar archive")
    while header := file.read(_AR_HEADER):
        if len(header) < _AR_HEADER or header[58:] != b"`\n":
            raise ValueError("a part of the ar archive has a damaged header")
        name, size = header[:16].decode("ascii").strip().rstrip("/"), int(header[48:58].decode("ascii"))
        if size < 0:
            raise ValueError("a part of the ar archive has a negative size")
        if name.startswith("data.tar"):
            return cast("IO[bytes]", io.BufferedReader(cast("Any", _Part(file, size)))), name
        file.seek(size + size % 2, io.SEEK_CUR)
    raise ValueError("the ar archive has no data.tar")


class _Part(io.RawIOBase):
    """The next so many bytes of a file."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._left = file, size

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into a buffer and return how many bytes came."""
        found = self._file.read(min(len(buffer), self._left))
        self._left -= len(found)
        buffer[: len(found)] = found
        return len(found)
