"""Read NumPy's files without unpickling, and write them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from engine import Array, DataError
from tecoinfer_modelzoo.files import check_regular
from tecoinfer_modelzoo.text import reason_of

RATIO, FREE = 100, 2**28
"""Limit on unpacked bytes: ``RATIO`` times the size of the file, plus ``FREE``."""


def read_npz(
    file: Path,
    names: Collection[str] | None = None,
    *,
    fix: str = "write it again",
    fix_single: str = "give it the ending .npy",
) -> dict[str, Array]:
    """Return the arrays of an ``.npz`` file by name.

    Args:
        file: the file.
        names: of the arrays to read, if present; ``None``: all.
        fix: advice in the error on a damaged file. fix_single: on a file of a single array.

    Raises:
        DataError: the file is missing, damaged or a single array, holds Python objects or an array twice, or its
            unpacked size is above the limit.
    """
    with _reading(file, "npz", fix), file.open("rb") as stream:  # np.load does not close a file that is not a zip
        _refuse_bomb(file, names)
        loaded = np.load(stream, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise DataError(f"{file} is a single .npy array; {fix_single}")
        found = {name: loaded[name] for name in loaded.files if names is None or name in names}
        odd = next((name for name, array in found.items() if not isinstance(array, np.ndarray)), None)
        if odd is not None:  # NumPy returns a member without an array's header as bytes
            raise ValueError(f"{odd!r} is not an array")
        return found


def read_npy(file: Path) -> Array:
    """Return the array of an ``.npy`` file.

    Raises:
        DataError: the file is missing or truncated, or holds several arrays or Python objects.
    """
    with _reading(file, "npy", "write it again"), file.open("rb") as stream:
        found = np.load(stream, allow_pickle=False)
        if not isinstance(found, np.ndarray):
            raise DataError(f"{file} holds several arrays; give it the ending .npz")
        return found


def npz_bytes(arrays: Mapping[str, Array]) -> bytes:
    """Return an ``.npz`` file, whose bytes depend on the arrays only (``np.savez`` stores the time)."""
    import io
    import zipfile

    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.save(content, array, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue(), zipfile.ZIP_DEFLATED)
    return whole.getvalue()


def _refuse_bomb(file: Path, names: Collection[str] | None) -> None:
    """Raise ValueError for a file with an unpacked size above the limit, or with two arrays of one name."""
    import zipfile

    if not zipfile.is_zipfile(file):
        return  # np.load reports it
    with zipfile.ZipFile(file) as archive:
        held = [one.filename.removesuffix(".npy") for one in archive.infolist()]
        size = sum(one.file_size for one in archive.infolist() if names is None or one.filename[:-4] in names)
    twice = next((name for name in held if held.count(name) > 1), None) if len(set(held)) < len(held) else None
    if twice is not None:
        raise ValueError(f"it has two arrays {twice!r}")
    most = file.stat().st_size * RATIO + FREE
    if size > most:
        raise ValueError(f"it unpacks to {size} bytes; the limit for a file of its size is {most}")


@contextmanager
def _reading(file: Path, form: str, fix: str) -> Iterator[None]:
    try:
        check_regular(file)
        yield
    except DataError:
        raise
    except array_errors() as error:
        reason = getattr(error, "strerror", None) or reason_of(error)
        raise DataError(f"{file} is not a readable .{form} file: {reason}; {fix}") from error


def array_errors() -> tuple[type[Exception], ...]:
    """Return the errors of NumPy and zipfile on a damaged file: bad magic or header, a broken stream, an encrypted or
    unknown compression (RuntimeError), an impossible size."""
    import tokenize  # imported only for an error
    import zipfile
    import zlib

    numpys = (OSError, ValueError, EOFError, RuntimeError, MemoryError, OverflowError, KeyError)
    headers = (SyntaxError, tokenize.TokenError, TypeError, AttributeError)  # a header without a literal or dtype
    return (*numpys, IndexError, *headers, zlib.error, zipfile.BadZipFile)
