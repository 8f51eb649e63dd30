"""Entries of a dump and the file names of both formats."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from engine import Array
from engine.training import needed_h5py
from tecoinfer_modelzoo.text import shortened

VERSION = 1
MANIFEST = "manifest.json"
JOURNAL = "entries.jsonl"  # file in an unfinished folder dump: a line with the header, then one line per entry
GRAPH_INPUT = "graph_input"  # operator name of the entries of the model's inputs
HDF5 = (".h5", ".hdf5")


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Position of an array in the model."""

    index: int  # of the node in the graph; -1 for the model's inputs
    op: str  # of the node
    name: str  # of the node
    module: str  # of the node
    sequence: int  # number of preceding nodes with the same operator
    slot: str  # ``input`` or ``output``
    position: int  # among the node's inputs or outputs
    tensor: str  # name of the tensor


@dataclass(frozen=True, slots=True)
class Entry(TensorPlace):
    """A stored array; ``key``: file name, or path inside the HDF5 file. Every tensor is stored once."""

    dtype: str
    shape: tuple[int, ...]
    key: str

    @classmethod
    def of(cls, place: TensorPlace, array: Array, key: str) -> Entry:
        """Return the entry of an array at a place."""
        known = {field.name: getattr(place, field.name) for field in fields(TensorPlace)}
        return cls(**known, dtype=array.dtype.name, shape=array.shape, key=key)

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Entry:
        """Return an entry from a manifest's fields; raise TypeError or KeyError if one is missing or invalid."""
        if not isinstance(fields["shape"], list):
            raise TypeError(f"shape {shortened(repr(fields['shape']), 100)} is not a list")
        entry = cls(**{**fields, "shape": tuple(fields["shape"])})
        for one in _FIELDS:
            value = getattr(entry, one.name)
            if type(value) is not {"int": int, "str": str}.get(str(one.type), tuple):
                raise TypeError(f"{one.name} {shortened(repr(value), 100)} is not of type {one.type}")
        if not all(type(size) is int and size >= 0 for size in entry.shape):
            raise TypeError(f"shape {shortened(repr(entry.shape), 100)} has an invalid size")
        return entry


_FIELDS = fields(Entry)


def is_hdf5(path: Path) -> bool:
    """Return whether a path has a suffix of HDF5 files."""
    return path.suffix.lower() in HDF5


def h5py_module() -> Any:
    """Return h5py; raise ConfigError if h5py is not installed."""
    return needed_h5py("HDF5 dumps", "pass a folder as --out")
