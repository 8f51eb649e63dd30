"""Arrays in numpy's own files, read without unpickling anything."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from engine import Array, DataError, reason_of


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
        DataError: the file is missing, damaged or a single array, or holds Python objects.
    """
    with _reading(file, "npz", fix), file.open("rb") as stream:  # np.load leaves open what is no zip after all
        loaded = np.load(stream, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise DataError(f"{file} is a single .npy array; {fix_single}")
        return {name: loaded[name] for name in loaded.files if names is None or name in names}


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


@contextmanager
def _reading(file: Path, form: str, fix: str) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except _damaged() as error:
        reason = getattr(error, "strerror", None) or reason_of(error)
        raise DataError(f"{file} is not a readable .{form} file: {reason}; {fix}") from error


def _damaged() -> tuple[type[Exception], ...]:
    """Return what numpy and zipfile raise on a damaged file: bad magic or header, a broken stream, an encrypted or
    unknown compression (RuntimeError), a size that no machine holds."""
    import zipfile  # only an error needs them
    import zlib

    numpys = (OSError, ValueError, EOFError, RuntimeError, MemoryError, OverflowError, KeyError)
    return (*numpys, zlib.error, zipfile.BadZipFile)
