"""Zoos out of archives and git repositories: their models and cases, unpacked into a folder of the cache.

Code of the repository other than that of the models is left out: the models run with the installed packages.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from engine import ConfigError
from tecoinfer_modelzoo.cache import cache_folder, exclusive_file
from tecoinfer_modelzoo.text import one_line, typed_reason
from utils.fetch import FetchError, UnreachableError
from utils.fetch.archives import DAMAGED, Entry, entries, is_archive
from utils.fetch.unpack import FREE, MOST_FILES, RATIO, write_entry
from utils.fetch.web import Access, shown

_log = logging.getLogger(__name__)

FOLDER = "example"
"""The folder of the models, as in :mod:`toolkit.zoo_sources`, which imports this module."""

KEPT = ((FOLDER,), ("model_config", "model.yaml"), ("docs", "data.yaml"))
"""First parts of the paths that are unpacked."""

LARGEST = 2**30
"""Maximum size of an archive from a URL, in bytes."""

SCHEMES = ("https://", "http://", "ssh://", "git://")
"""Schemes of a repository's URL; an archive's is one of the first two, or ``file:``."""

AGE = 24 * 3600.0
"""Seconds after which a zoo from a URL is downloaded again."""


def unpacked_zoo(given: str, path: Path | None, flag: str) -> Path:
    """Return the folder of a zoo that is an archive or a git repository.

    Args:
        given: as the user wrote it. path: the local file or folder; ``None`` for a URL. flag: for messages.

    A zoo from a URL is downloaded again after :data:`AGE`; if that fails, the earlier one is used, with a warning.
    Raises ConfigError if it is not a zoo, FetchError if it cannot be downloaded or unpacked.
    """
    if path is not None and not _is_repository(path) and not (path.is_file() and is_archive(path.name)):
        what = "is a folder without" if path.is_dir() else "is not an archive (.zip, .tar.gz) with"
        raise ConfigError(f"{flag} {given} {what} {FOLDER}/DOMAIN/MODEL; pass a clone or an archive of a zoo")
    home = cache_folder("zoos")
    if home is None:
        raise ConfigError(f"{flag} {given} has to be unpacked, and the cache cannot be created; set TECO_CACHE_DIR")
    target = home / hashlib.sha256(_identity(given, path).encode()).hexdigest()[:24]
    with exclusive_file(target.with_suffix(".lock")):
        if _is_current(target, path):
            return target
        try:
            _replace(target, given, path, flag)
        except UnreachableError as error:
            if not target.is_dir():
                raise
            _log.warning("%s; the copy of an earlier download is used", error)
    return target


def _identity(given: str, path: Path | None) -> str:
    """Return a text that changes with the zoo: path, size and time of a local one, commit of a repository."""
    if path is None:
        return given
    if path.is_dir():
        return f"{path.resolve()} {_git(given, '-C', str(path), 'rev-parse', 'HEAD')}"
    state = path.stat()
    return f"{path.resolve()} {state.st_size} {state.st_mtime_ns}"


def _is_current(target: Path, path: Path | None) -> bool:
    return target.is_dir() and (path is not None or time.time() - target.stat().st_mtime < AGE)


def _replace(target: Path, given: str, path: Path | None, flag: str) -> None:
    """Unpack into a new folder, and put it in the place of the earlier one."""
    with tempfile.TemporaryDirectory(prefix=".part-", dir=target.parent, ignore_cleanup_errors=True) as place:
        archive, made = _archive(given, path, Path(place)), Path(place, "zoo")
        made.mkdir()
        try:
            _unpack(archive, made)
        except DAMAGED as error:
            raise FetchError(f"{flag} {shown(given)} is damaged: {typed_reason(error)}") from error
        if not (made / FOLDER).is_dir():
            raise ConfigError(f"{flag} {shown(given)} has no {FOLDER}/DOMAIN/MODEL; pass a clone or archive of a zoo")
        if target.exists():
            shutil.rmtree(target)
        made.rename(target)
    os.utime(target)


def _archive(given: str, path: Path | None, place: Path) -> Path:
    """Return the archive of a zoo; a repository or a download is written into the folder ``place``."""
    if path is not None and path.is_file():
        return path
    if path is None and is_archive(given.partition("#")[0].partition("?")[0]):
        file = place / given.partition("#")[0].partition("?")[0].rsplit("/", 1)[-1]
        try:
            Access().save_at_most(given, file, LARGEST)
        except UnreachableError as error:
            raise UnreachableError(f"{error}; check the URL and the network, or pass a downloaded archive") from error
        return file
    repository = path
    if repository is None:
        if not given.removeprefix("git+").startswith(SCHEMES):
            raise ConfigError(f"{shown(given)} has an unknown scheme; pass a URL of {', '.join(SCHEMES)}, or a path")
        repository = place / "repository"
        _git(given, "clone", "--quiet", "--bare", "--depth", "1", "--", given.removeprefix("git+"), str(repository))
    file = place / "zoo.tar"
    _git(given, "-C", str(repository), "archive", "--format=tar", f"--output={file}", "HEAD")
    return file


def _is_repository(path: Path) -> bool:
    return (path / ".git").exists() or ((path / "HEAD").is_file() and (path / "objects").is_dir())


def _git(given: str, *words: str) -> str:
    """Run git and return its output; raise UnreachableError with its last line if it fails."""
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", *words],  # noqa: S607
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            env=environment,
            check=False,
        )
    except OSError as error:
        raise ConfigError(f"{shown(given)} is a git repository, and git cannot be run: {error.strerror}") from error
    if done.returncode:
        last = one_line(next(iter(reversed(done.stderr.strip().splitlines())), "")) or f"exit code {done.returncode}"
        raise UnreachableError(f"{shown(given)} cannot be read ({last}); check the URL and the network")
    return done.stdout.strip()


def _unpack(archive: Path, folder: Path) -> None:
    """Write the files of :data:`KEPT`; a first folder around all of them, as in an archive of GitHub, is left out."""
    most = archive.stat().st_size * RATIO + FREE
    left = most
    for files, (entry, parts) in enumerate(_wanted(archive, most)):
        if not entry.plain:
            raise FetchError(f"{archive.name}: member {entry.name!r} is a link or a special file, which is rejected")
        if files >= MOST_FILES:
            raise FetchError(f"{archive.name} has more than {MOST_FILES} files; the archive is rejected")
        too_many = f"{archive.name} unpacks to more than {most} bytes; the archive is rejected"
        left -= write_entry(entry, folder.joinpath(*parts), left, too_many)


def _wanted(archive: Path, most: int) -> Iterator[tuple[Entry, list[str]]]:
    tops = {first for first, *_ in KEPT}
    for entry in entries(archive, archive.name, most):
        parts = entry.name.removeprefix("./").split("/")
        parts = parts if parts[0] in tops else parts[1:]
        if not any(tuple(parts[: len(kept)]) == kept for kept in KEPT):
            continue
        if any(part in ("", ".", "..") or "\\" in part or ":" in part for part in parts):
            raise FetchError(f"{archive.name}: member {entry.name!r} is outside the folder; the archive is rejected")
        yield entry, parts
