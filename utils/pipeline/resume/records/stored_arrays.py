"""Arrays of an uncompressed ``.npz`` file, read and written a slice at a time."""

from __future__ import annotations

import math
import shutil
import struct
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from engine import Array

EPOCH = (1980, 1, 1, 0, 0, 0)
"""Time of the members: the earliest in a zip, so that equal records give equal bytes."""
_LOCAL_HEADER = struct.Struct("<26xHH")
"""Of a member of a zip: the lengths of its name and of its extra field stand at the end."""
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class _Stored(NamedTuple):
    """Where the data of an array begin in the file, and its form."""

    start: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class StoredArrays:
    """The arrays of an open ``.npz`` file; nothing of their data is kept in memory.

    Raises ValueError or ``zipfile.BadZipFile`` if the file is not a zip of plain uncompressed arrays in C order.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
        self._arrays = {member.filename.removesuffix(".npy"): self._stored(member) for member in members}

    def _stored(self, member: zipfile.ZipInfo) -> _Stored:
        if member.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{member.filename} is compressed")
        self._file.seek(member.header_offset)
        name, extra = _LOCAL_HEADER.unpack(self._file.read(_LOCAL_HEADER.size))
        begin = self._file.seek(name + extra, 1)
        version = np.lib.format.read_magic(self._file)
        if version not in _HEADERS:
            raise ValueError(f"{member.filename} has an unknown version of the format .npy")
        shape, fortran_order, dtype = _HEADERS[version](self._file)
        start = self._file.tell()
        if fortran_order or not shape or dtype.hasobject:
            raise ValueError(f"{member.filename} is not a plain array in C order")
        if start - begin + math.prod(shape) * dtype.itemsize != member.file_size:
            raise ValueError(f"{member.filename} has another size than its shape")
        return _Stored(start, dtype, shape)

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def form(self, name: str) -> tuple[np.dtype[Any], tuple[int, ...]]:
        """Return an array's dtype, and its shape without the first dimension; raise KeyError if there is none."""
        found = self._arrays[name]
        return found.dtype, found.shape[1:]

    def length(self, name: str) -> int:
        """Return the first dimension of an array; raise KeyError if there is none."""
        return self._arrays[name].shape[0]

    def read(self, name: str, start: int = 0, stop: int | None = None) -> Array:
        """Return rows ``start`` to ``stop`` of an array, read-only; raise EOFError if the file ends before them."""
        found = self._arrays[name]
        stop = found.shape[0] if stop is None else min(stop, found.shape[0])
        count, row = max(0, stop - start), math.prod(found.shape[1:]) * found.dtype.itemsize
        self._file.seek(found.start + start * row)
        content = self._file.read(count * row)
        if len(content) != count * row:
            raise EOFError(f"the file ends within {name}")
        return np.frombuffer(content, found.dtype).reshape((count, *found.shape[1:]))


class GrowingArrays:
    """Arrays that grow in files of a folder, and become an ``.npz`` file equal to one written at once.

    A context manager. ``forms``: dtype, and shape without the first dimension, by name, in the order of the file.
    """

    def __init__(self, folder: Path, forms: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]) -> None:
        self._folder, self._forms = folder, dict(forms)
        self._lengths = dict.fromkeys(forms, 0)
        self._stack = ExitStack()
        self._files: dict[str, IO[bytes]] = {}

    def __enter__(self) -> GrowingArrays:
        with ExitStack() as stack:
            for name in self._forms:
                self._files[name] = stack.enter_context((self._folder / f"{name}.bin").open("w+b"))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        for name in self._files:
            (self._folder / f"{name}.bin").unlink()

    def append(self, name: str, rows: Array) -> None:
        """Append rows to an array; raise ValueError if they have another form."""
        dtype, shape = self._forms[name]
        if (rows.dtype, rows.shape[1:]) != (dtype, shape):
            raise ValueError(f"{name} has rows of dtype {rows.dtype} and shape {rows.shape[1:]}")
        self._files[name].write(np.ascontiguousarray(rows).tobytes())
        self._lengths[name] += len(rows)

    def write(self, file: IO[bytes]) -> None:
        """Write all arrays to an ``.npz`` file."""
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, (dtype, shape) in self._forms.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy", EPOCH), "w", force_zip64=True) as member:
                    _write_header(member, dtype, (self._lengths[name], *shape))
                    self._files[name].seek(0)
                    shutil.copyfileobj(self._files[name], member)


def _write_header(file: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Write what NumPy writes before the data of an array, in the oldest version of the format that can hold it."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    try:
        np.lib.format.write_array_header_1_0(file, header)
    except ValueError:  # over 64 KB of field names
        np.lib.format.write_array_header_2_0(file, header)
