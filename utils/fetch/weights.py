"""Weights that are too large for git and in no package: an export script downloads them, by size and hash."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from tecoinfer_modelzoo.files import hash_files
from utils.fetch.package import FetchError, UnreachableError
from utils.fetch.web import Access, shown


def downloading(main: Callable[[], int], file: Path, url: str, size: int, sha256: str) -> Callable[[], int]:
    """Return ``main`` of an export script, which first downloads ``file`` if it is missing.

    Args:
        main: returns the exit code. file: where the weights are expected. url: where they are downloaded.
        size: of the file in bytes. sha256: its hash, in hexadecimal digits.

    Raises (when called):
        UnreachableError: the download fails. FetchError: the file there is another one, or cannot be written.
    """

    def run() -> int:
        if not file.is_file():
            download_file(file, url, size, sha256)
        return main()

    return run


def download_file(file: Path, url: str, size: int, sha256: str) -> None:
    """Download a file of a known size and hash; arguments and errors as of :func:`downloading`."""
    part = file.with_name(f"{file.name}.part")
    fix = f"get {file.name} elsewhere, and put it into {file.parent}"
    try:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            Access().save(url, part, size)
        except UnreachableError as error:
            raise UnreachableError(f"{file.name} is missing and cannot be downloaded ({error}); {fix}") from error
        found = hash_files(part)
        if found != sha256:
            raise FetchError(f"{shown(url)} has another file than {file.name}: its SHA-256 is {found}; {fix}")
        os.replace(part, file)
    except OSError as error:
        raise FetchError(f"{file} cannot be written: {error.strerror}; check the folder") from error
    finally:
        part.unlink(missing_ok=True)
