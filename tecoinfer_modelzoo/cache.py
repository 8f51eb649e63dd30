"""Cache of results that are expensive to recompute on this machine.

The folder is ``TECO_CACHE_DIR``, else ``$XDG_CACHE_HOME/tecoinfer``, else ``~/.cache/tecoinfer``. Every entry is
optional: a missing or damaged one is recomputed, and a read-only folder only costs time.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from tecoinfer_modelzoo import home_folder
from tecoinfer_modelzoo.errors import ConfigError
from tecoinfer_modelzoo.files import read_regular, write_file
from tecoinfer_modelzoo.json_types import Problems, parsed

_CHECK = "entry_sha256"

MOST_BYTES = 1 << 24
"""Largest entry that is read, in bytes."""

_log = logging.getLogger(__name__)


def cache_folder(kind: str) -> Path | None:
    """Return the folder of a kind of entry and create it if missing; ``None`` if it cannot be created."""
    root = _root()
    if root is None:
        _log.info("nothing is cached: the user has no home folder; set TECO_CACHE_DIR")
        return None
    folder = root / kind
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _log.info("nothing is cached: %s", error)
        return None
    return folder


def _root() -> Path | None:
    if own := os.environ.get("TECO_CACHE_DIR"):
        return Path(own).absolute()
    home = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG Base Directory Specification requires relative paths to be ignored.
    if os.path.isabs(home):
        return Path(home, "tecoinfer")
    own_home = home_folder()
    return None if own_home is None else own_home / ".cache" / "tecoinfer"


def read_entry(kind: str, key: str) -> dict[str, Any] | None:
    """Return the entry that :func:`write_entry` stored; ``None`` if it is missing or damaged."""
    folder = cache_folder(kind)
    if folder is None:
        return None
    path = folder / f"{key}.json"
    try:
        entry = parsed(read_regular(path, MOST_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, *Problems) as error:
        _log.info("%s is ignored: %s", path, error)
        return None
    if not isinstance(entry, dict) or entry.pop(_CHECK, None) != _digest(entry):
        _log.info("%s is ignored: it was changed after it was written", path)
        return None
    return entry


def _digest(entry: Mapping[str, Any]) -> str:
    """Return a hash of an entry, which reveals values changed by a disk or an editor."""
    return hashlib.sha256(json.dumps(entry, sort_keys=True).encode("ascii")).hexdigest()


def write_entry(kind: str, key: str, entry: Mapping[str, Any]) -> None:
    """Store an entry of JSON types atomically."""
    write_cached(kind, f"{key}.json", json.dumps({**entry, _CHECK: _digest(entry)}, indent=1).encode())


def write_cached(kind: str, name: str, content: bytes) -> Path | None:
    """Store a file atomically; return its path, or ``None`` if it could not be written."""
    folder = cache_folder(kind)
    if folder is None:
        return None
    try:
        write_file(folder / name, content)
    except OSError as error:
        _log.info("%s is not cached: %s", folder / name, error)
        return None
    return folder / name


def cache_budget(variable: str, default: int) -> int:
    """Return the bytes that a kind of entry may take: an environment variable in megabytes, or ``default`` megabytes.

    0: nothing is stored. Raise ConfigError if the variable is not an integer.
    """
    text = os.environ.get(variable, str(default))
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ConfigError(
            f"{variable}={text!r} must be an integer number of megabytes (default {default}), 0 for no cache"
        )
    return int(text) * 10**6


def make_room(folder: Path, suffix: str, most: int, newest: str, beside: str = "") -> None:
    """Remove the least recently modified files of a suffix until they take ``most`` bytes at most.

    Args:
        newest: name of a file that stays. beside: suffix of a second file of each, ``<name><beside>``; "" for none.

    Raise OSError if one cannot be removed.
    """
    files = sorted((path.stat().st_mtime_ns, path) for path in folder.glob(f"*{suffix}"))
    groups = [[path, path.with_name(f"{path.name}{beside}")] if beside else [path] for _, path in files]
    sizes = [sum(path.stat().st_size for path in group if path.exists()) for group in groups]
    taken = sum(sizes)
    for group, size in zip(groups, sizes, strict=True):
        if taken <= most:
            return
        if group[0].name != newest:
            for path in group:
                path.unlink(missing_ok=True)
            taken -= size
            _log.info("%s removed for a newer entry", group[0].name)


@contextmanager
def exclusive(kind: str) -> Iterator[None]:
    """Run the ``with`` block in one process at a time, where the system has file locks; others wait for it."""
    folder = cache_folder(kind)
    with nullcontext() if folder is None else exclusive_file(folder / ".lock"):
        yield


@contextmanager
def exclusive_file(path: Path, waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Run the ``with`` block in one process at a time, using a lock file, where the system has file locks.

    Args:
        path: lock file; created if missing.
        waiting: called once if another process holds the lock.
    """
    lock = _locked(path, waiting)
    try:
        yield
    finally:
        if lock is not None:
            _release(lock)


def _release(lock: IO[bytes]) -> None:
    """Release a lock explicitly: closing the file alone leaves the lock with children forked in the meantime."""
    with suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_UN)
    lock.close()


def _locked(path: Path, waiting: Callable[[], None] | None) -> IO[bytes] | None:
    try:
        import fcntl

        # The path may be a pipe or a link: do not block on it, follow it or truncate it.
        flags = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.fdopen(os.open(path, flags, 0o666), "rb+", buffering=0)
    except (ImportError, OSError) as error:
        _log.debug("%s is not locked: %s", path.parent, error)
        return None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if waiting is not None:
                waiting()
            fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:  # some network file systems do not support locks
        _log.debug("%s is not locked: %s", path.parent, error)
    except BaseException:
        lock.close()
        raise
    return lock
