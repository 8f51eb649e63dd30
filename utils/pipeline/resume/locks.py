"""Files that only one process at a time may open; the lock is released when the process ends, in any way."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path

from engine import ConfigError
from tecoinfer_modelzoo.files import check_regular

_held: set[int] = set()


def open_locked(path: Path, *, create: bool) -> int:
    """Open a file for reading and writing, lock it, and return its descriptor; :func:`release` closes and unlocks it.

    If another process renames or deletes it meanwhile, the file then at the path is opened; ``create``: create an empty
    file if there is none. Raises ConfigError: another process (or another part of this one) holds the lock; OSError:
    the file cannot be opened, is a folder, a pipe or a device (with ``create`` also a link), or the file system has no
    locks; FileNotFoundError without ``create``.
    """
    # Does not follow a link of another user when creating, and does not wait for the other end of a pipe.
    flags = os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | (os.O_CREAT | os.O_NOFOLLOW if create else 0)
    while True:
        check_regular(path)
        handle = os.open(path, flags, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            same = _is_at(handle, path)
        except BlockingIOError as error:
            os.close(handle)
            raise ConfigError(f"{path} is in use by another run; wait for it to end, or use another folder") from error
        except BaseException:
            os.close(handle)
            raise
        if same:
            _held.add(handle)
            return handle
        os.close(handle)


def release(handle: int) -> None:
    """Close a file and release its lock."""
    _held.discard(handle)
    os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _release_in_child() -> None:
    """Release the locks in a forked worker, which may outlive the run; the descriptors stay open on the null device, as
    an inherited buffer must not be flushed into another file.
    """
    if _held:
        null = os.open(os.devnull, os.O_RDWR)
        for handle in _held:
            os.dup2(null, handle, inheritable=False)
        os.close(null)


os.register_at_fork(after_in_child=_release_in_child)
