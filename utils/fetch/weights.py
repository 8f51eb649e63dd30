"""Weights that are too large for git and in no package: an export script takes them from the cache, by their hash, or
downloads them. The cache is ``weights`` in the zoo's cache (``TECO_CACHE_DIR``), with a file per SHA-256.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tecoinfer_modelzoo.cache import cache_folder
from tecoinfer_modelzoo.files import hash_files
from utils.fetch.package import FetchError, UnreachableError
from utils.fetch.web import Access, shown


def downloading(main: Callable[[], int], file: Path, url: str, size: int, sha256: str) -> Callable[[], int]:
    """Return ``main`` of an export script, which first brings ``file`` if it is missing.

    A script that is called with other ``--weights`` needs no file.

    Args:
        main: returns the exit code. file: where the weights are expected. url: where they are downloaded; empty: not
            known, so that they are in the cache or nowhere. size: of the file in bytes. sha256: its hash, in
            hexadecimal digits.

    Raises (when called):
        UnreachableError: the download fails. FetchError: the URL has another file, or the folder cannot be written.
    """

    def run() -> int:
        if not file.is_file() and not _has_others(sys.argv[1:], file):
            _bring(file, url, size, sha256)
        return main()

    return run


def keep_weights(file: Path) -> None:
    """Put a copy of a file into the cache, for runs in copies of the repository; without a cache nothing happens."""
    sha256 = hash_files(file)
    folder = cache_folder("weights")
    if folder is None or _kept(sha256) is not None:
        return
    with tempfile.TemporaryDirectory(prefix=".part-", dir=folder) as place:
        copy = Path(place) / sha256
        shutil.copyfile(file, copy)
        os.replace(copy, folder / sha256)


def url_problem(url: str, size: int, sha256: str) -> str:
    """Return why a URL does not give the file of this size and hash; empty if it does."""
    with tempfile.TemporaryDirectory(prefix="teco-weights-") as folder:
        try:
            _download(Path(folder) / "weights", url, size, sha256)
        except (FetchError, UnreachableError) as error:
            return str(error)
    return ""


def _has_others(words: Sequence[str], file: Path) -> bool:
    """Return whether ``--weights`` names something else than the file, or than its folder."""
    given = ""
    for word, following in zip(words, [*words[1:], ""], strict=False):
        if word.startswith("--weights="):
            given = word.partition("=")[2]
        elif word == "--weights":
            given = following
    return bool(given) and Path(given).resolve() not in (file.resolve(), file.parent.resolve())


def _kept(sha256: str) -> Path | None:
    """Return the file of the cache with a hash; ``None`` if it is missing or damaged."""
    folder = cache_folder("weights")
    found = None if folder is None else folder / sha256
    return found if found is not None and found.is_file() and hash_files(found) == sha256 else None


def _bring(file: Path, url: str, size: int, sha256: str) -> None:
    fix = f"get {file.name} elsewhere, and put it into {file.parent}"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".part-", dir=file.parent) as place:
            part, kept = Path(place) / file.name, _kept(sha256)
            if kept is not None:
                shutil.copyfile(kept, part)
            elif not url:
                raise FetchError(f"{file.name} is missing, and where it is downloaded is not known; {fix}")
            else:
                _download(part, url, size, sha256)
                keep_weights(part)
            os.replace(part, file)
    except UnreachableError as error:
        raise UnreachableError(f"{file.name} is missing and cannot be downloaded ({error}); {fix}") from error
    except OSError as error:
        raise FetchError(f"{file} cannot be written: {error.strerror}; check the folder") from error


def _download(part: Path, url: str, size: int, sha256: str) -> None:
    """Download a file; raise UnreachableError on failure or if it is another one."""
    Access().save(url, part, size)
    found = hash_files(part)
    if found != sha256:
        raise UnreachableError(f"{shown(url)} has another file: its SHA-256 is {found}")
