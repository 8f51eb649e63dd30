"""Recovery of an incomplete dump: copy its readable arrays into a new dump."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from engine import Array, DataError
from tecoinfer_modelzoo.files import text_of
from tecoinfer_modelzoo.text import one_line
from toolkit.dump.entries import JOURNAL, MANIFEST, VERSION, Entry, TensorPlace, h5py_module
from toolkit.dump.store import DAMAGED
from toolkit.dump.writer import open_writer
from utils.arrays import read_npy

PATIENCE, SPEED = 20.0, 20 << 20
"""Time limit for reading a damaged .h5 file: a constant in seconds, and bytes per additional second."""

_END = 2**40  # assumed size of an HDF5 file in bytes: the library rejects a file shorter than its original size


@dataclass(frozen=True, slots=True)
class Recovered:
    """Result: ``entries`` and header (``about``) of the new dump, and names of the ``lost`` tensors."""

    entries: list[Entry]
    about: dict[str, Any]
    lost: list[str]


@dataclass(frozen=True, slots=True)
class _Rest:
    """Incomplete dump: header, places and keys of arrays, and a function that reads one (``None`` if damaged)."""

    about: dict[str, Any]
    places: list[tuple[TensorPlace, str]]
    read: Callable[[str], Array | None]


def recover(path: Path, out: Path) -> Recovered:
    """Copy the readable part of a damaged dump into a new one (:func:`~toolkit.dump.writer.open_writer`).

    Raise DataError if no array can be read, or ``out`` cannot be written.
    """
    if not path.exists():
        raise DataError(f"dump {path} does not exist")
    if not path.is_dir():
        _check_readable(path)
    opened: AbstractContextManager[_Rest] = _folder(path) if path.is_dir() else _hdf5(path)
    with opened as rest:
        if all(rest.read(key) is None for _, key in rest.places):
            raise DataError(f"{path}: no array can be read; dump again")
        lost = []
        with open_writer(out, {**rest.about, "recovered_from": path.name}) as writer:
            for place, key in rest.places:
                array = rest.read(key)
                if array is None:
                    lost.append(place.tensor)
                else:
                    writer.add(place, array)
    return Recovered(writer.entries, writer.about, lost)


@contextmanager
def _folder(path: Path) -> Iterator[_Rest]:
    """Read the manifest of a folder, or its journal if it was not finished."""
    whole, journal = path / MANIFEST, path / JOURNAL
    try:
        if whole.is_file():
            about = json.loads(whole.read_text(encoding="utf-8"))
            lines = about.pop("entries")
        else:
            complete = [line for line in text_of(journal).splitlines(keepends=True) if line.endswith("}\n")]
            about, *lines = map(json.loads, complete)
        entries = [Entry.read(line) for line in lines]
        if not isinstance(about, dict):
            raise TypeError("the first line is not an object")
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} has no readable {MANIFEST} or {JOURNAL}; dump again") from error
    yield _Rest(about, [(entry, entry.key) for entry in entries], lambda key: _npy(path, key))


def _npy(folder: Path, key: str) -> Array | None:
    try:
        return read_npy(folder / Path(key).name)
    except DataError:
        return None


_WALK = "import sys; sys.path[:] = sys.argv[2:]; from toolkit.dump.recover import walk; walk(sys.argv[1])"


def walk(path: str) -> None:
    """Read every readable array of an .h5 file, as a test."""
    with _hdf5(Path(path)) as rest:
        for _, key in rest.places:
            rest.read(key)


def _check_readable(path: Path) -> None:
    """Read a damaged file in a separate process, since the HDF5 library may hang or crash; raise DataError if so."""
    h5py_module()
    seconds = PATIENCE + path.stat().st_size / SPEED
    words = [sys.executable, "-c", _WALK, str(path), *sys.path]
    try:
        ran = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise DataError(f"{path}: the HDF5 library hangs reading it; dump again") from error
    if ran.returncode < 0:
        name = signal.Signals(-ran.returncode).name
        raise DataError(f"{path}: the HDF5 library crashes reading it ({name}); dump again")


@contextmanager
def _hdf5(path: Path) -> Iterator[_Rest]:
    h5py = h5py_module()
    with path.open("rb") as raw:
        try:
            file = h5py.File(_Padded(raw), "r")
            about = json.loads(file.attrs["about"])
        except DAMAGED as error:
            raise DataError(f"{path}: nothing can be read ({one_line(error)}); dump again") from error
        size = path.stat().st_size
        with file:
            places = sorted(_places(file), key=lambda pair: (pair[0].index, pair[0].slot, pair[0].position))
            yield _Rest({"schema_version": VERSION, **about}, places, lambda key: _stored(file, key, size))


class _Padded(io.RawIOBase):
    """A file padded with zeros, which HDF5 ignores."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._at = file, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Set the position; return it."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: _END}[whence]
        return self._at

    def tell(self) -> int:
        """Return the position."""
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer."""
        view = memoryview(buffer).cast("B")
        self._file.seek(self._at)
        data = self._file.read(len(view))
        view[:] = data + bytes(len(view) - len(data))
        self._at += len(view)
        return len(view)


def _places(file: Any) -> Iterator[tuple[TensorPlace, str]]:
    """Yield place and key of every array whose attributes can be read."""
    for op in _names(file):
        for sequence in _names(file, op):
            for slot in _names(file, op, sequence):
                for position in _names(file, op, sequence, slot):
                    key = "/".join(("", op, sequence, slot, position))
                    try:
                        node, tensor = file[f"/{op}/{sequence}"].attrs, file[key].attrs["tensor"]
                        kind, name, module = (str(node[field]) for field in ("op", "name", "module"))
                        at = int(position)
                        place = TensorPlace(
                            int(node["index"]), kind, name, module, int(sequence), slot, at, str(tensor)
                        )
                    except DAMAGED:
                        continue
                    yield place, key


def _names(file: Any, *group: str) -> list[str]:
    try:
        found = file[f"/{'/'.join(group)}"]
        return list(found) if hasattr(found, "keys") else []
    except DAMAGED:
        return []


def _stored(file: Any, key: str, size: int) -> Array | None:
    """Return an array, or ``None`` if it is damaged or lies beyond the end of the file."""
    try:
        data = file[key]
        start = data.id.get_offset()
        if data.nbytes and (start is None or start + data.id.get_storage_size() > size):
            return None
        return np.asarray(data[()])
    except DAMAGED:
        return None
