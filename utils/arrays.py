"""Arrays in numpy's own files, read without unpickling anything."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from engine import Array, DataError
from tecoinfer_modelzoo.files import check_regular
from tecoinfer_modelzoo.text import reason_of

RATIO, FREE = 100, 2**28
"""A file may unpack to ``RATIO`` times as many bytes as it has, and ``FREE`` more; what is larger is a mistake."""


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
        names: those to read, where they are there; ``None``: all.
        fix: what an error says to do about a damaged file. fix_single: about one that is a single array.

    Raises:
        DataError: the file is missing, damaged or a single array, holds Python objects or an array twice, or unpacks
            to far more than it has.
    """
    with _reading(file, "npz", fix), file.open("rb") as stream:  # np.load leaves open what is no zip after all
        _refuse_bomb(file, names)
        loaded = np.load(stream, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise DataError(f"{file} is a single .npy array; {fix_single}")
        found = {name: loaded[name] for name in loaded.files if names is None or name in names}
        odd = next((name for name, array in found.items() if not isinstance(array, np.ndarray)), None)
        if odd is not None:  # numpy gives the bytes of a member that does not begin as an array does
            raise ValueError(f"{odd!r} is no array")
        return found


def read_npy(file: Path) -> Array:
    """Return the array of an ``.npy`` file.

    Raises:
        DataError: the file is missing or cut short, or holds several arrays or Python objects.
    """
    with _reading(file, "npy", "write it again"), file.open("rb") as stream:
        found = np.load(stream, allow_pickle=False)
        if not isinstance(found, np.ndarray):
            raise DataError(f"{file} holds several arrays; give it the ending .npz")
        return found


def _refuse_bomb(file: Path, names: Collection[str] | None) -> None:
    """Refuse a file that takes far more memory than its size tells, or has two arrays of one name."""
    import zipfile

    if not zipfile.is_zipfile(file):
        return  # numpy says what it is
    with zipfile.ZipFile(file) as archive:
        held = [one.filename.removesuffix(".npy") for one in archive.infolist()]
        size = sum(one.file_size for one in archive.infolist() if names is None or one.filename[:-4] in names)
    twice = next((name for name in held if held.count(name) > 1), None) if len(set(held)) < len(held) else None
    if twice is not None:
        raise ValueError(f"it has two arrays {twice!r}")
    most = file.stat().st_size * RATIO + FREE
    if size > most:
        raise ValueError(f"it unpacks to {size} bytes, and of a file of its size at most {most} are taken")


@contextmanager
def _reading(file: Path, form: str, fix: str) -> Iterator[None]:
    try:
        check_regular(file)
        yield
    except DataError:
        raise
    except _damaged() as error:
        reason = getattr(error, "strerror", None) or reason_of(error)
        raise DataError(f"{file} is not a readable .{form} file: {reason}; {fix}") from error


def _damaged() -> tuple[type[Exception], ...]:
    """Return what numpy and zipfile raise on a damaged file: bad magic or header, a broken stream, an encrypted or
    unknown compression (RuntimeError), a size that no machine holds."""
    import tokenize  # only an error needs them
    import zipfile
    import zlib

    numpys = (OSError, ValueError, EOFError, RuntimeError, MemoryError, OverflowError, KeyError)
    headers = (SyntaxError, tokenize.TokenError, TypeError, AttributeError)  # of what is no literal, or no dtype
    return (*numpys, *headers, zlib.error, zipfile.BadZipFile)
