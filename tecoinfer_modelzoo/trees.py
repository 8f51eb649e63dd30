"""Folder trees of any depth, walked, copied and removed without recursion, which fails at a depth of about 900."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def walk(
    top: str | os.PathLike[str], onerror: Callable[[OSError], object] | None = None, *, followlinks: bool = False
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield (folder, folders, files) like ``os.walk``; ``onerror`` gets the errors of unreadable folders."""
    waiting = [os.fspath(top)]
    while waiting:
        here = waiting.pop()
        folders: list[str] = []
        files: list[str] = []
        try:
            with os.scandir(here) as entries:
                for entry in entries:
                    (folders if _is_folder(entry) else files).append(entry.name)
        except OSError as error:
            if onerror is not None:
                onerror(error)
            continue
        yield here, folders, files
        inner = [os.path.join(here, name) for name in reversed(folders)]
        waiting += [one for one in inner if followlinks or not os.path.islink(one)]


def below(top: Path, pattern: str = "*") -> Iterator[Path]:
    """Yield matches like ``top.rglob(pattern)``; raise OSError if a folder is unreadable despite permissions."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, (PermissionError, FileNotFoundError, NotADirectoryError)):
            raise error

    for here, folders, files in walk(top, refuse):
        yield from (Path(here, name) for name in (*folders, *files) if fnmatch.fnmatchcase(name, pattern))


def copy_tree(source: Path, target: Path, left_out: str) -> None:
    """Copy a folder with permissions, times and links, except entries named ``left_out``; raise OSError on failure."""
    import shutil  # 1 ms

    def refuse(error: OSError) -> None:
        raise error

    made: list[tuple[str, str]] = []
    for here, folders, files in walk(source, refuse):
        to = os.path.join(target, os.path.relpath(here, source)) if made else os.fspath(target)
        os.mkdir(to)
        made.append((here, to))
        links = [name for name in folders if os.path.islink(os.path.join(here, name))]
        folders[:] = [name for name in folders if name != left_out and name not in links]
        for name in (*files, *links):
            if name != left_out:
                shutil.copy2(os.path.join(here, name), os.path.join(to, name), follow_symlinks=False)
    for here, to in reversed(made):  # after their contents are written
        shutil.copystat(here, to)


def remove_tree(top: Path) -> None:
    """Remove a folder of any depth and permissions without following links; entries that cannot be removed stay."""
    with suppress(OSError):
        at = _opened(os.fspath(top), None)
        above: list[tuple[str, os.stat_result]] = []
        waiting = [_emptied(at)]
        try:
            while waiting:
                if waiting[-1]:
                    name = waiting[-1].pop()
                    with suppress(OSError):
                        inner = _opened(name, at)
                        above.append((name, os.fstat(at)))
                        at = _left(at, inner)
                        waiting.append(_emptied(at))
                    continue
                waiting.pop()
                if above:
                    name, parent = above.pop()
                    at = _left(at, os.open("..", _FOLDER, dir_fd=at))
                    if not os.path.samestat(os.fstat(at), parent):
                        return  # it was moved meanwhile: this is another folder
                    with suppress(OSError):
                        os.rmdir(name, dir_fd=at)
        finally:
            os.close(at)
        os.rmdir(top)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _opened(name: str, at: int | None) -> int:
    """Open a folder and give its owner all permissions."""
    try:
        handle = os.open(name, _FOLDER, dir_fd=at)
    except PermissionError:
        place = os.open(name, _FOLDER | os.O_PATH, dir_fd=at)
        try:
            os.chmod(f"/proc/self/fd/{place}", 0o700)
        finally:
            os.close(place)
        return os.open(name, _FOLDER, dir_fd=at)
    if os.fstat(handle).st_mode & 0o700 != 0o700:
        with suppress(OSError):
            os.fchmod(handle, 0o700)
    return handle


def _left(old: int, new: int) -> int:
    os.close(old)
    return new


def _emptied(at: int) -> list[str]:
    """Remove everything except folders from a folder, and return the names of its folders."""
    folders = []
    with suppress(OSError), os.scandir(at) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
                continue
            with suppress(OSError):
                os.unlink(entry.name, dir_fd=at)
    return folders
