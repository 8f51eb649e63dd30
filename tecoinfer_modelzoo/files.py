"""Reading of regular files, atomic writing, and hashes of file contents."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tecoinfer_modelzoo.errors import DataError

MOST_BYTES = 4 << 30
"""Largest file that is read as a whole, in bytes; the passages of MS MARCO have 3 GB."""

_CHUNK = 2**20
_SPECIAL = "it is a pipe, a socket or a device, not a regular file"
_PIPE_TIMEOUT = 5.0  # seconds to wait for the reader of a named pipe


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading without blocking on a pipe; raise OSError for folders, pipes and devices."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, "the name contains a null byte", str(path)) from error
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
    """Raise OSError if an existing path is not a regular file; for readers that open a file by name themselves."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return  # reported when the file is opened
    _refuse_special(mode, path)


def _refuse_special(mode: int, path: str | os.PathLike[str]) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", os.fspath(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, _SPECIAL, os.fspath(path))


def read_regular(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file; raise OSError if it is unreadable or larger than ``most`` bytes."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"it has {size} bytes, the limit is {most}; split it", str(path))
        content = file.read(size + 1) or b""
        if len(content) > size:  # it has grown, or is a virtual file such as those of /proc
            content += file.read(most + 1 - len(content)) or b""
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes; split it", str(path))
    return content


def write_file(path: Path, *parts: bytes) -> None:
    """Write the concatenated parts to a file atomically; on failure, raise OSError and keep an existing file."""
    with atomic_replacement(path) as temporary, temporary.open("wb") as file:
        for part in parts:
            file.write(part)


@contextmanager
def atomic_replacement(path: Path, suffix: str = "") -> Iterator[Path]:
    """Yield an empty temporary file that replaces ``path`` if the block succeeds, and is removed otherwise.

    A new file gets the permissions of the umask; a replacement keeps those of the replaced file. Raises OSError if the
    folder is not writable.
    """
    import tempfile  # here and in hash_files: an evaluation with target onnx needs neither

    special = path.exists() and not path.is_file() and not path.is_dir()  # /dev/stdout, a pipe: not replaced
    place, mode = (Path(tempfile.gettempdir()), 0o600) if special else (path.parent, 0o666)
    temporary = _new_file(place, f".{path.name[:40]}-", suffix, mode)
    try:
        yield temporary
        if special:
            _write_special(path, temporary.read_bytes())
        else:
            same_access(path, temporary)
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _new_file(place: Path, prefix: str, suffix: str, mode: int) -> Path:
    """Create an empty file with an unused name and the permissions of the umask."""
    while True:
        path = place / f"{prefix}{os.urandom(6).hex()}{suffix}"
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode))
        except FileExistsError:
            continue
        return path


def same_access(path: Path, new: Path) -> None:
    """Copy permissions and, if permitted, owner of an existing regular file ``path`` to its replacement."""
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


def _write_special(path: Path, content: bytes) -> None:
    """Write to a pipe or a device; wait up to :data:`_PIPE_TIMEOUT` seconds for the reader of a pipe."""
    deadline = time.monotonic() + _PIPE_TIMEOUT
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
    """Return the SHA-256 of the concatenated files in hexadecimal; raise OSError if a file cannot be read."""
    import hashlib

    digest = hashlib.sha256()
    for path in paths:
        with open_regular(path) as file:
            while some := file.read(chunk):
                digest.update(some)
    return digest.hexdigest()


def not_a_file_reason(path: str | os.PathLike[str]) -> str:
    """Return the reason why a path is not a regular file, as the end of a sentence, such as ``is a folder``."""
    try:
        check_regular(path)
    except IsADirectoryError:
        return "is a folder"
    except OSError:
        return "is a pipe, a socket or a device, not a regular file"
    return "does not exist"


def text_of(path: Path, errors: str = "strict") -> str:
    """Return the text of a UTF-8 file without byte order mark, with line feeds; ``errors`` as in :meth:`bytes.decode`.

    Raises:
        OSError: the file cannot be read, is not a regular file, or is too large. ValueError: it is not UTF-8.
    """
    text = read_regular(path).decode("utf-8-sig", errors)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def size_and_time(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return a file's size in bytes and mtime in nanoseconds; -1 for both if it is not accessible."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return -1, -1
    return found.st_size, found.st_mtime_ns


def utf8_text(path: Path, flag: str = "") -> str:
    """Return the text of a UTF-8 file without byte order mark; raise DataError (with ``flag``) on failure."""
    where = f"{flag} {path}".lstrip()
    try:
        return read_regular(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{where}: byte {error.start} is not UTF-8 text; save the file as UTF-8") from error
    except OSError as error:
        raise DataError(f"{where} cannot be read: {error.strerror or error}; check the path") from error
