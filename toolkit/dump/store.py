"""Reader of dumps: a folder of .npy files with a manifest, or one HDF5 file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, DataError, TecoInferError
from tecoinfer_modelzoo.files import text_of
from tecoinfer_modelzoo.text import one_line, reason_of
from toolkit.dump.entries import GRAPH_INPUT, JOURNAL, MANIFEST, VERSION, Entry, h5py_module, is_hdf5
from utils.arrays import read_npy

DAMAGED = (OSError, KeyError, ValueError, RuntimeError, TypeError)  # exceptions that h5py raises for damaged files


class Dump:
    """An open dump: header (``about``) and ``entries``."""

    def __init__(self, path: Path, manifest: Any) -> None:
        self.path = path
        try:
            if manifest["schema_version"] > VERSION:
                raise DataError(f"{path} is a dump of version {manifest['schema_version']}; supported: up to {VERSION}")
            self.entries = [Entry.read(entry) for entry in manifest["entries"]]
            self.about = {key: value for key, value in manifest.items() if key != "entries"}
        except (TypeError, KeyError, AttributeError) as error:
            raise DataError(f"{path}: its {MANIFEST} is invalid ({reason_of(error)}); dump again") from error
        self.outputs = {entry.tensor: entry for entry in self.entries if entry.slot == "output"}
        """Tensor -> entry as output of its node, including the model's inputs."""
        self.tensors = {entry.tensor: entry for entry in self.entries} | self.outputs
        """Tensor -> entry, including tensors that are only inputs of nodes."""

    def read(self, entry: Entry) -> Array:
        """Return an array; raise DataError if it is damaged, or its dtype or shape differs from the manifest."""
        array = self._load(entry)
        if array.dtype.name != entry.dtype or array.shape != entry.shape:
            raise DataError(
                f"{self.path}: {entry.key} is {array.dtype}{list(array.shape)}, but in the manifest "
                f"{entry.dtype}{list(entry.shape)}; dump again"
            )
        return array

    def _load(self, entry: Entry) -> Array:
        if Path(entry.key).name != entry.key:
            raise DataError(f"{self.path}: {entry.key!r} is not a file of the dump; dump again")
        return read_npy(self.path / entry.key)

    def inputs(self, names: Sequence[str]) -> list[Array]:
        """Return the model's inputs of these names; raise DataError if the dump lacks an input."""
        given = {entry.tensor: entry for entry in self.entries if entry.op == GRAPH_INPUT}
        missing = [name for name in names if name not in given]
        if missing:
            raise DataError(f"{self.path} lacks input {missing[0]!r}; it has: {', '.join(given) or 'none'}")
        return [self.read(given[name]) for name in names]


class _Hdf5Dump(Dump):
    def _load(self, entry: Entry) -> Array:
        with _opened(self.path) as file:
            return np.asarray(file[entry.key][()])


def open_dump(path: Path) -> Dump:
    """Open a dump; raise DataError if missing, incomplete or not a dump, ConfigError without h5py."""
    if path.is_dir():
        return Dump(path, _read_manifest(path))
    if not is_hdf5(path):
        raise DataError(f"{path} is not a dump; pass a folder or an .h5 file written by 'teco dump'")
    with _opened(path) as file:
        if MANIFEST not in file:
            raise DataError(f"{path} is incomplete or not a dump; {recoverable(path)}")
        return _Hdf5Dump(path, json.loads(bytes(file[MANIFEST][()])))


def recoverable(path: Path) -> str:
    """Return the advice for an incomplete dump."""
    return f"dump again, or recover the readable part with 'teco dump recover {path} --out NEW'"


def _read_manifest(path: Path) -> Any:
    file = path / MANIFEST
    if not file.is_file():
        rest = recoverable(path) if (path / JOURNAL).is_file() else "dump again"
        raise DataError(f"{path} has no {MANIFEST}: it is incomplete or not a dump; {rest}")
    try:
        return json.loads(text_of(file))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file} cannot be read: {one_line(error)}; dump again") from error


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    h5py = h5py_module()
    if not path.is_file():
        raise DataError(f"dump {path} does not exist")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except TecoInferError:
        raise
    except DAMAGED as error:
        raise DataError(f"{path} is not a readable HDF5 file: {one_line(error)}; {recoverable(path)}") from error


__all__ = ["GRAPH_INPUT", "Dump", "Entry", "open_dump", "recoverable"]
