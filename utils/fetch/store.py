"""Cache of package files: complete or absent, with one downloading process per package.

The folder is ``TECO_FETCH_DIR``, else ``fetch`` in the zoo's cache (``TECO_CACHE_DIR``). It has a folder per package,
with a folder and a file of sizes per :attr:`Package.key`.
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
from utils.fetch.package import FetchError, Package
from utils.fetch.table import find_package
from utils.fetch.unpack import cannot_write, unpack

_log = logging.getLogger(__name__)

VARIABLE = "TECO_FETCH_DIR"
_SIZES, _LOCK = ".sizes.json", ".lock"
_KEPT = re.compile(r".+-[0-9a-f]{12}(\.sizes\.json)?", re.DOTALL)
"""Names in the cache: :attr:`Package.key`, and its sizes."""


def fetched(name: str | Package, archive: Path | None = None) -> Path:
    """Return the folder with a package's files, downloaded if they are not cached.

    Args:
        name: of a row, or the row. archive: a local file to use instead of a download.

    Raises ConfigError: unknown package; UnreachableError: the archive cannot be downloaded; FetchError: it differs from
    its row, or the folder cannot be written.
    """
    package = find_package(name) if isinstance(name, str) else name
    found = kept(package)
    if found is not None:
        return found
    home = _home(package)
    with _mine(home):
        found = kept(package)  # by the previous holder of the lock
        return found if found is not None else _made(package, home, archive)


def kept(package: Package) -> Path | None:
    """Return the folder with a package's files; ``None`` if it is missing or incomplete."""
    try:
        folder = _home(package) / package.key
        sizes = json.loads(read_regular(folder.with_name(f"{folder.name}{_SIZES}")))
        whole = all((folder / path).stat().st_size == size for path, size in sizes.items())
    except (OSError, ValueError, AttributeError, TypeError, RecursionError, FetchError):
        return None
    return folder if whole else None


def remove(package: Package) -> int:
    """Delete all versions of a package's files and return their bytes; other files in the folder are kept."""
    home = _home(package)
    if not home.is_dir():
        return 0
    with _mine(home):
        try:
            size = _sweep(home, versions=True)
        except OSError as error:
            raise FetchError(f"{home} cannot be deleted ({error.strerror or error}); check its owner") from error
    return size


def fetch_folder() -> Path:
    """Return the folder of all packages; raise FetchError if the cache cannot be created."""
    if own := os.environ.get(VARIABLE):
        return Path(own).absolute()
    found = cache_folder("fetch")
    if found is None:
        raise FetchError(f"the zoo's cache cannot be created; set {VARIABLE}")
    return found


def _home(package: Package) -> Path:
    return fetch_folder() / package.name


@contextmanager
def _mine(home: Path) -> Iterator[None]:
    """Create a package's folder and lock it against other processes."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home):
            _log.debug("%s can be written", home)
    except OSError as error:
        raise cannot_write(home, error) from error
    with exclusive_file(home / _LOCK):
        yield


def _made(package: Package, home: Path, archive: Path | None) -> Path:
    """Download, check and unpack; remove what a killed process left."""
    target = home / package.key
    try:
        _sweep(home, but=target.name)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=home, ignore_cleanup_errors=True) as place:
            loads, files = Path(place) / "download", Path(place) / "files"
            loads.mkdir()
            files.mkdir()
            found = download(package, loads) if archive is None else _given(package, archive)
            sizes = unpack(found, package, files)
            files.rename(target)
        known = target.with_name(f"{target.name}{_SIZES}")
        if not known.is_dir():
            known.unlink(missing_ok=True)  # writing to a pipe would block
        write_file(known, json.dumps(sizes).encode())
    except OSError as error:
        raise cannot_write(home, error) from error
    return target


def _given(package: Package, archive: Path) -> Path:
    try:
        wrong = wrong_archive(archive, package)
    except OSError as error:
        raise FetchError(f"{archive} cannot be read ({error.strerror or error}); check --from") from error
    if wrong:
        raise FetchError(f"{package.title}: {wrong}; pass another file to --from")
    return archive


def _sweep(home: Path, *, but: str = "", versions: bool = False) -> int:
    """Delete what a killed process left, ``but`` and, with ``versions``, all versions; return the deleted bytes."""
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
