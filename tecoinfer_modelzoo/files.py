"""Files that must be whole or not there: atomic writing, and hashes that say what a file was made from."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tecoinfer_modelzoo.errors import DataError

MOST_BYTES = 4 << 30
"""Bytes of a file that is read as a whole: MS MARCO's passages have 3 GB, and a hole of 10 GB is none of data."""

_CHUNK = 2**20

_SPECIAL = "it is a pipe, a socket or a device, and no file"

_PATIENCE = 5.0
"""Seconds that a pipe which nobody reads yet is waited for."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; what is none is not waited for, as a pipe without a writer would be.

    Raises:
        OSError: it cannot be opened, or is a folder, a pipe, a socket or a device.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, "no file has such a name", str(path)) from error
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise OSError(errno.EINVAL, _SPECIAL, str(path)) from error
        raise
    try:
        _refuse_special(os.fstat(handle).st_mode, path)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def check_regular(path: str | os.PathLike[str]) -> None:
    """Raise where a path is there and leads to no regular file: for readers that open a file by its name themselves.

    Raises:
        OSError: it is a folder, a pipe, a socket or a device.
    """
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return  # whoever opens it says what is wrong
    _refuse_special(mode, path)


def _refuse_special(mode: int, path: str | os.PathLike[str]) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", os.fspath(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, _SPECIAL, os.fspath(path))


def read_regular(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file.

    Args:
        path: the file. most: bytes that it may have.

    Raises:
        OSError: it cannot be read, is no regular file, or is larger.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"it has {size} bytes, and {most} are read at most; divide it", str(path))
        content = file.read(size + 1) or b""
        if len(content) > size:  # it has grown, or is one of those that the kernel makes as they are read
            content += file.read(most + 1 - len(content)) or b""
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes; divide it", str(path))
    return content


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

    A new file has the permissions that the umask leaves, one that takes another's place has those of that.

    Args:
        path: the file to write. suffix: how the name of the file beside it ends.

    Raises:
        OSError: the folder cannot be written.
    """
    special = path.exists() and not path.is_file() and not path.is_dir()  # /dev/stdout, a pipe: written to, kept
    place, mode = (Path(tempfile.gettempdir()), 0o600) if special else (path.parent, 0o666)
    temporary = _new_file(place, f".{path.name[:40]}-", suffix, mode)
    try:
        yield temporary
        if special:
            _pour(path, temporary.read_bytes())
        else:
            same_access(path, temporary)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _new_file(place: Path, prefix: str, suffix: str, mode: int) -> Path:
    """Make an empty file of a name that is free, with what the umask leaves of the permissions."""
    while True:
        path = place / f"{prefix}{os.urandom(6).hex()}{suffix}"
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
        except FileExistsError:
            continue
        return path


def same_access(path: Path, new: Path) -> None:
    """Give a new file the permissions, and where that is allowed the owner, of the regular file whose place it takes.

    Where there is none, it keeps its own.

    Raises:
        OSError: the permissions cannot be changed.
    """
    try:
        old, own = os.stat(path), os.stat(new)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(old.st_mode):
        return
    if (old.st_uid, old.st_gid) != (own.st_uid, own.st_gid):
        with suppress(PermissionError):
            os.chown(new, old.st_uid, old.st_gid)
    os.chmod(new, stat.S_IMODE(old.st_mode) & 0o777)


def _pour(path: Path, content: bytes) -> None:
    """Write into a pipe or a device; whoever reads a pipe may come a little later, and nobody waits for ever."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
            break
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    os.set_blocking(handle, True)
    with os.fdopen(handle, "wb") as file:
        file.write(content)


def hash_files(*paths: Path, chunk: int = _CHUNK) -> str:
    """Return the SHA-256 of the files' contents, one after another, in hexadecimal.

    Args:
        paths: the files. chunk: bytes that are read at once, and held.

    Raises:
        OSError: one cannot be read.
    """
    digest = hashlib.sha256()
    for path in paths:
        with open_regular(path) as file:
            while some := file.read(chunk):
                digest.update(some)
    return digest.hexdigest()


def no_file(path: str | os.PathLike[str]) -> str:
    """Return what a path is that is no regular file, as a message goes on after it: ``is a folder``, for one."""
    try:
        check_regular(path)
    except IsADirectoryError:
        return "is a folder"
    except OSError:
        return "is a pipe, a socket or a device, and no file"
    return "does not exist"


def text_of(path: Path, errors: str = "strict") -> str:
    """Return the text of a regular file in UTF-8, with or without a byte order mark; line ends become line feeds.

    Args:
        errors: what becomes of bytes that are no UTF-8, as :meth:`bytes.decode` takes it.

    Raises:
        OSError: it cannot be read, is none, or is too large. ValueError: it is no UTF-8.
    """
    text = read_regular(path).decode("utf-8-sig", errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def size_and_time(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return a file's bytes and when it was changed, in ns; -1 for both where it cannot be looked at."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return -1, -1
    return found.st_size, found.st_mtime_ns


def utf8_text(path: Path, flag: str = "") -> str:
    """Return the text of a regular file in UTF-8, with or without a byte order mark, its line ends as they are.

    Args:
        flag: that named the file, for messages.

    Raises:
        DataError: it cannot be read, is none, or is no UTF-8.
    """
    where = f"{flag} {path}".lstrip()
    try:
        return read_regular(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: byte {error.start} is not UTF-8 text; save the file as UTF-8") from error
    except OSError as error:
        raise DataError(f"{where} cannot be read: {error.strerror or error}; check the path") from error
