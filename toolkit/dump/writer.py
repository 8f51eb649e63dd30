"""Writers of dumps: a folder of .npy files with a manifest, or one HDF5 file with ``/op/sequence/{input,output}``.

The manifest is written last: an incomplete dump is detected, and can be recovered (:mod:`toolkit.dump.recover`). Ctrl-C
removes the dump.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo.files import write_file
from tecoinfer_modelzoo.text import one_line
from toolkit.dump.entries import GRAPH_INPUT, JOURNAL, MANIFEST, VERSION, Entry, TensorPlace, h5py_module, is_hdf5

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


_ROOM = 2**17  # bytes reserved for the metadata of an array in an HDF5 file, which takes a few KiB


@contextmanager
def _later() -> Iterator[None]:
    """Delay Ctrl-C to the end of the block: h5py ignores a signal that arrives while it frees its objects."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if came:
        signal.raise_signal(signal.SIGINT)


class Writer(ABC):
    """Writer of a dump; a context manager that completes it on exit, unless an error was raised.

    ``about``: its header with model, hash, target and dtype.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path, self.about = path, dict(about)
        self.entries: list[Entry] = []
        self._keys: dict[str, str] = {}

    def add(self, place: TensorPlace, array: Array) -> None:
        """Write an array, or a reference if written before; raise DataError on failure, keeping earlier arrays."""
        key = self._keys.get(place.tensor)
        with _later():
            try:
                where = self.write(place, array) if key is None else self.refer(place, key)
                entry = Entry.of(place, array, where)
                self.note(entry)
            except ValueError as error:  # HDF5 rejects names that contain NUL
                raise DataError(
                    f"{self.path}: HDF5 rejects the name {place.tensor!r}; pass a folder as --out"
                ) from error
            except (OSError, RuntimeError) as error:
                raise self._unwritable(error) from error
            self._keys.setdefault(place.tensor, where)
            self.entries.append(entry)

    @abstractmethod
    def write(self, place: TensorPlace, array: Array) -> str:
        """Write an array; return its key."""

    @abstractmethod
    def refer(self, place: TensorPlace, key: str) -> str:
        """Refer to an array that was written before; return the key."""

    @abstractmethod
    def note(self, entry: Entry) -> None:
        """Record an entry, for the recovery of an incomplete dump."""

    @abstractmethod
    def finish(self) -> None:
        """Write the manifest."""

    @abstractmethod
    def close(self) -> None:
        """Close the files."""

    @abstractmethod
    def discard(self) -> None:
        """Delete the dump."""

    @property
    def worth_keeping(self) -> bool:
        """Whether the dump contains more than the model's inputs."""
        return any(entry.op != GRAPH_INPUT for entry in self.entries)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with _later():
            try:
                try:
                    if error is None:
                        self.finish()
                finally:
                    self.close()
                if error is not None and (isinstance(error, KeyboardInterrupt) or not self.worth_keeping):
                    self.discard()
            except (OSError, RuntimeError) as failure:
                if error is None:  # otherwise the first error is the informative one
                    raise self._unwritable(failure) from failure

    def _head(self) -> dict[str, Any]:
        return {"schema_version": VERSION, **self.about}

    def _manifest(self) -> dict[str, Any]:
        return {**self._head(), "entries": [asdict(entry) for entry in self.entries]}

    def _unwritable(self, error: OSError | RuntimeError) -> DataError:
        rest = (
            f"; 'teco dump recover {self.path} --out NEW' reads the part written before" if self.worth_keeping else ""
        )
        return DataError(f"{self.path} cannot be written: {_reason(error)}; choose another --out{rest}")


def _reason(error: OSError | RuntimeError) -> str:
    # Messages of h5py are a page long but mostly have an errno; NumPy reports only the number of written bytes.
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return f"the disk may be full ({one_line(error)})"


class _Folder(Writer):
    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        super().__init__(path, about)
        self._made = not path.exists()
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ConfigError(f"--out {path} exists and is not an empty folder; choose a new one")
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._journal = (path / JOURNAL).open("w", encoding="utf-8", buffering=1)
            self._journal.write(f"{json.dumps(self._head())}\n")
        except OSError as error:
            raise self._unwritable(error) from error

    def write(self, place: TensorPlace, array: Array) -> str:
        safe = re.sub(r"[^A-Za-z0-9_-]", "_", f"{place.op}.{place.name}"[:80])
        key = f"{len(self._keys):05d}.{safe}.{place.slot}.{place.position}.npy"
        np.save(self.path / key, array, allow_pickle=False)
        return key

    def refer(self, place: TensorPlace, key: str) -> str:
        return key

    def note(self, entry: Entry) -> None:
        self._journal.write(f"{json.dumps(asdict(entry))}\n")

    def finish(self) -> None:
        write_file(self.path / MANIFEST, json.dumps(self._manifest(), indent=1).encode())
        (self.path / JOURNAL).unlink()

    def close(self) -> None:
        self._journal.close()

    def discard(self) -> None:
        for file in self.path.iterdir():  # the folder was empty before
            file.unlink()
        if self._made:
            self.path.rmdir()


class _Hdf5(Writer):
    """Writer that reserves disk space before each write, since the library damages the file if the disk is full."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        super().__init__(path, about)
        h5py = h5py_module()
        if path.exists():
            raise ConfigError(f"--out {path} exists; choose a new file")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._room = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            self._reserve(0, 0)
            self._file = h5py.File(path, "w")
            self._file.attrs["about"] = json.dumps(self._head())
        except OSError as error:
            os.close(self._room)
            self.discard()
            raise self._unwritable(error) from error

    def _reserve(self, start: int, size: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._room, start, size + _ROOM)

    def write(self, place: TensorPlace, array: Array) -> str:
        self._reserve(self._file.id.get_filesize(), array.nbytes)
        key = _key(place)
        self._file.create_dataset(key, data=array).attrs["tensor"] = place.tensor
        return key

    def refer(self, place: TensorPlace, key: str) -> str:
        self._reserve(self._file.id.get_filesize(), 0)
        own = _key(place)
        self._file[own] = self._file[key]  # hard link to the same data
        return own

    def note(self, entry: Entry) -> None:
        group = self._file[_group(entry)]
        group.attrs.update({"op": entry.op, "name": entry.name, "index": entry.index, "module": entry.module})
        self._file.flush()  # otherwise metadata stays in memory until the file is closed

    def finish(self) -> None:
        # Attributes are limited to 64 KiB, so the manifest is a data set; it is written last and marks completion.
        text = np.frombuffer(json.dumps(self._manifest()).encode(), np.uint8)
        self._reserve(self._file.id.get_filesize(), text.nbytes)
        self._file.create_dataset(MANIFEST, data=text)

    def close(self) -> None:
        try:
            self._file.flush()
            size = self._file.id.get_filesize()
            self._file.close()
            os.ftruncate(self._room, min(size, os.fstat(self._room).st_size))  # releases unused reserved space
        finally:
            os.close(self._room)

    def discard(self) -> None:
        self.path.unlink()


def _group(place: TensorPlace) -> str:
    return f"/{place.op.replace('/', '_')}/{place.sequence}"


def _key(place: TensorPlace) -> str:
    return f"{_group(place)}/{place.slot}/{place.position}"


def open_writer(path: Path, about: Mapping[str, Any]) -> Writer:
    """Create a dump: an HDF5 file if the path ends in .h5 or .hdf5, else a folder of .npy files.

    Raise ConfigError if the path exists, or h5py is not installed, DataError if it cannot be written.
    """
    return _Hdf5(path, about) if is_hdf5(path) else _Folder(path, about)
