"""Places that a command line names, looked at before anything runs: what cannot be written would cost the whole run."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from engine import ConfigError


def check_given(flag: str, *paths: Path) -> None:
    """Refuse paths that no system call takes: too long, through a file, in a circle of links, with a null character.

    One that does not exist is left to whoever opens it, and knows what belongs there.

    Raises:
        ConfigError: it names the flag and the path.
    """
    for path in paths:
        try:
            with suppress(FileNotFoundError):
                os.stat(path)
        except (OSError, ValueError) as error:
            raise _refused(flag, path, _words(error), "name another") from error


def check_outputs(
    outputs: Mapping[str, Path | None], inputs: Iterable[Path] = (), *, makes_folders: bool = False
) -> None:
    """Refuse files that could not be written at the end of a run, or that would take the place of what it reads.

    Args:
        outputs: by their flags. inputs: files and folders that are read.
        makes_folders: folders that are missing are made.

    Raises:
        ConfigError: it names the flag and the path.
    """
    asked = {flag: path for flag, path in outputs.items() if path is not None}
    if not asked:
        return
    read = {found[0]: path for path in inputs if (found := _identity(path)) is not None}
    taken: dict[str, str] = {}
    for flag, path in asked.items():
        check_output(flag, path, makes_folders=makes_folders)
        found = _identity(path)
        if found is not None and found[0] in read:
            raise _refused(flag, path, "this run reads it, and would write over it", "name another file")
        where = os.path.realpath(path)
        if where in taken and (found is None or found[1]):
            raise _refused(flag, path, f"{taken[where]} writes it too", "name another file")
        taken[where] = flag


def check_output(flag: str, path: Path, *, makes_folders: bool = False) -> None:
    """Refuse a file that cannot be written: :func:`check_outputs` of one.

    Raises:
        ConfigError: it names the flag and the path.
    """
    try:
        mode: int | None = os.stat(path).st_mode
    except FileNotFoundError:
        mode = None
    except (OSError, ValueError) as error:
        raise _refused(flag, path, _words(error)) from error
    if mode is not None and stat.S_ISDIR(mode):
        raise _refused(flag, path, "is a folder")
    if mode is not None and stat.S_ISSOCK(mode):
        raise _refused(flag, path, "is a socket")
    if mode is not None and not stat.S_ISREG(mode):
        return  # a terminal or a pipe; nobody can say what it takes without writing to it
    _check_parent(flag, path, makes_folders)


def check_folder(flag: str, folder: Path | None) -> None:
    """Refuse a folder that cannot be made, or in which nothing can be written; nothing is made yet.

    Raises:
        ConfigError: it names the flag and the folder.
    """
    if folder is None:
        return
    check_given(flag, folder)
    if os.path.lexists(folder) and not folder.is_dir():
        raise _refused(flag, folder, "is no folder", "name one")
    _check_parent(flag, folder / "file", makes_folders=True, shown=folder)


def check_apart(files: Mapping[str, Path | None], folders: Mapping[str, Path | None]) -> None:
    """Refuse a file in the place of a folder that is written too, or of one above that.

    Args:
        files, folders: by their flags.

    Raises:
        ConfigError: it names both flags.
    """
    places = {flag: Path(os.path.realpath(folder)) for flag, folder in folders.items() if folder is not None}
    for flag, path in files.items():
        for other, folder in places.items():
            if path is not None and flag != other and Path(os.path.realpath(path)) in (folder, *folder.parents):
                raise _refused(flag, path, f"{other} {folders[other]} makes it a folder", "name another file")


def _check_parent(flag: str, path: Path, makes_folders: bool, shown: Path | None = None) -> None:
    folder = Path(os.path.abspath(path)).parent
    while makes_folders and not os.path.lexists(folder) and folder != folder.parent:
        folder = folder.parent
    named = folder if makes_folders else path.parent
    if not os.path.lexists(folder):
        raise _refused(flag, shown or path, f"folder {named} does not exist", "create it first")
    if not folder.is_dir():
        raise _refused(flag, shown or path, f"{named} is no folder")
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise _refused(flag, shown or path, f"folder {named} cannot be written", "name one that can")


def _identity(path: Path) -> tuple[tuple[int, int], bool] | None:
    """Return what is the same for all names of a file, and whether it is a regular one; ``None``: there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino), stat.S_ISREG(found.st_mode)


def _words(error: OSError | ValueError) -> str:
    if isinstance(error, OSError):
        return "no such path can exist" if error.errno == errno.ENOTDIR else f"{error.strerror or error}".lower()
    return str(error)


def _refused(flag: str, path: Path, why: str, fix: str = "name a file in a folder that exists") -> ConfigError:
    return ConfigError(f"{flag} {path}: {why}; {fix}")
