"""What the zoo found out on this machine and would rather not find out again.

It lies in the folder ``TECO_CACHE_DIR``, else ``$XDG_CACHE_HOME/tecoinfer``, else ``~/.cache/tecoinfer``. Nothing there
is ever needed: what is missing or damaged is made again, and a folder that cannot be written costs only the time.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

from engine.host.files import write_file

_log = logging.getLogger(__name__)


def cache_folder(kind: str) -> Path | None:
    """Return the folder for one kind of thing, made where it was missing; ``None`` where it cannot be made."""
    try:
        folder = _root() / kind
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError) as error:  # RuntimeError: the user has no home
        _log.info("nothing is cached: %s", error)
        return None
    return folder


def _root() -> Path:
    if own := os.environ.get("TECO_CACHE_DIR"):
        return Path(own).absolute()
    home = os.environ.get("XDG_CACHE_HOME", "")
    # A relative path there is invalid and to be ignored (XDG Base Directory Specification).
    return (Path(home) if os.path.isabs(home) else Path.home() / ".cache") / "tecoinfer"


def read_entry(kind: str, key: str) -> dict[str, Any] | None:
    """Return what :func:`write_entry` stored; ``None`` where nothing is stored or it is damaged."""
    folder = cache_folder(kind)
    if folder is None:
        return None
    path = folder / f"{key}.json"
    try:
        entry = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _log.info("%s is ignored: %s", path, error)
        return None
    return entry if isinstance(entry, dict) else None


def write_entry(kind: str, key: str, entry: Mapping[str, Any]) -> None:
    """Store an entry of JSON's types, whole or not at all."""
    write_cached(kind, f"{key}.json", json.dumps(entry, indent=1).encode())


def write_cached(kind: str, name: str, content: bytes) -> Path | None:
    """Store a file, whole or not at all; return its path, or ``None`` where that could not be done."""
    folder = cache_folder(kind)
    if folder is None:
        return None
    try:
        write_file(folder / name, content)
    except OSError as error:
        _log.info("%s is not cached: %s", folder / name, error)
        return None
    return folder / name


@contextmanager
def exclusive(kind: str) -> Iterator[None]:
    """Let one process at a time do the ``with`` block, on systems that can; others wait and then find its entry."""
    folder = cache_folder(kind)
    with nullcontext() if folder is None else exclusive_file(folder / ".lock"):
        yield


@contextmanager
def exclusive_file(path: Path) -> Iterator[None]:
    """Let one process at a time do the ``with`` block, by a file that is locked, on systems that can; others wait."""
    lock = _locked(path)
    try:
        yield
    finally:
        if lock is not None:
            lock.close()  # which releases it, as does the end of the process


def _locked(path: Path) -> IO[str] | None:
    try:
        import fcntl

        lock = path.open("w")
    except (ImportError, OSError) as error:
        _log.debug("%s is not locked: %s", path.parent, error)
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError as error:  # some network file systems have no locks
        _log.debug("%s is not locked: %s", path.parent, error)
    except BaseException:
        lock.close()
        raise
    return lock
