"""Check the paths of a command line before a run, as an output that cannot be written would waste it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from engine import ConfigError


def check_paths(flag: str, *paths: Path) -> None:
    """Check that paths are valid: not too long, not below a file, no cycle of links, no null character.

    A path that does not exist is accepted here; the code that opens it reports that.

    Raises:
        ConfigError: a path is invalid.
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
    """Check that files can be written at the end of a run, and do not overwrite its inputs or one another.

    Args:
        outputs: by flag. inputs: files and folders that are read.
        makes_folders: missing folders are created.

    Raises:
        ConfigError: they cannot.
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
    """Check that one file can be written; see :func:`check_outputs`.

    Raises:
        ConfigError: it cannot.
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
        return  # a terminal or a pipe cannot be checked without writing to it
    _check_parent(flag, path, makes_folders)


def check_folder(flag: str, folder: Path | None) -> None:
    """Check that a folder can be created and written to; nothing is created.

    Raises:
        ConfigError: it cannot.
    """
    if folder is None:
        return
    check_paths(flag, folder)
    if os.path.lexists(folder) and not folder.is_dir():
        raise _refused(flag, folder, "is not a folder", "name one")
    _check_parent(flag, folder / "file", makes_folders=True, shown=folder)


def check_apart(files: Mapping[str, Path | None], folders: Mapping[str, Path | None]) -> None:
    """Check that no output file has the path of an output folder, or of a parent of one.

    Args:
        files, folders: by flag.

    Raises:
        ConfigError: one has; the message names both flags.
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
        raise _refused(flag, shown or path, f"{named} is not a folder")
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise _refused(flag, shown or path, f"folder {named} cannot be written", "name one that can")


def _identity(path: Path) -> tuple[tuple[int, int], bool] | None:
    """Return device and inode of a file, and whether it is a regular file; ``None``: it does not exist."""
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
