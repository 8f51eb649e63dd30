"""Files that one process at a time may have: a lock that goes with the process, however that ends."""

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
    """Open a file for reading and writing, lock it, and return its descriptor; :func:`release` gives both back.

    Args:
        path: the file; where another process renames or deletes it meanwhile, the one that is there then is taken.
        create: make an empty file where there is none.

    Raises:
        OSError: it is a folder, a pipe or a device; where it is to be made, also a link.
        ConfigError: another process (or another part of this one) holds the lock.
        OSError: the file cannot be opened, or the file system has no locks; ``FileNotFoundError`` without ``create``.
    """
    # What is made here is no link of somebody else's, and nothing waits for the other end of a pipe.
    flags = os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY | (os.O_CREAT | os.O_NOFOLLOW if create else 0)
    while True:
        check_regular(path)
        handle = os.open(path, flags, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.EINVAL, "it is no file", os.fspath(path))
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
    """Close a file and give up its lock."""
    _held.discard(handle)
    os.close(handle)


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _let_go_in_child() -> None:
    """Drop the locks in a forked worker: they would outlive the run if the worker did.

    The descriptors stay taken: a buffer that the worker inherited must not be flushed into a file of its own.
    """
    if _held:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for handle in _held:
            os.dup2(nowhere, handle, inheritable=False)
        os.close(nowhere)


os.register_at_fork(after_in_child=_let_go_in_child)
