"""What a dump says of each array, and the names both of its forms go by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from engine import Array, needed_h5py
from tecoinfer_modelzoo.text import shortened

VERSION = 1
MANIFEST = "manifest.json"
JOURNAL = "entries.jsonl"
"""Beside the files of a folder until all are written: what the dump is of, then one line per entry."""
GRAPH_INPUT = "graph_input"
"""Operator under which the model's own inputs are kept."""
HDF5 = (".h5", ".hdf5")


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where an array belongs.

    Attributes:
        index: of the node in the graph; -1 for the model's inputs. op, name, module: of the node.
        sequence: how many nodes of this operator come before it in the graph.
        slot: ``input`` or ``output``. position: among the node's inputs or outputs.
        tensor: its name.
    """

    index: int
    op: str
    name: str
    module: str
    sequence: int
    slot: str
    position: int
    tensor: str


@dataclass(frozen=True, slots=True)
class Entry(TensorPlace):
    """An array that was written.

    Attributes:
        dtype, shape: of the array.
        key: where it is: file name, or path inside the HDF5 file. An array is kept once, whoever reads it.
    """

    dtype: str
    shape: tuple[int, ...]
    key: str

    @classmethod
    def of(cls, place: TensorPlace, array: Array, key: str) -> Entry:
        """Return the entry of an array at its place."""
        known = {field.name: getattr(place, field.name) for field in fields(TensorPlace)}
        return cls(**known, dtype=array.dtype.name, shape=array.shape, key=key)

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Entry:
        """Return an entry as a manifest has it.

        Raises:
            TypeError, KeyError: it is none.
        """
        if not isinstance(fields["shape"], list):
            raise TypeError(f"shape {shortened(repr(fields['shape']), 100)} is no list")
        entry = cls(**{**fields, "shape": tuple(fields["shape"])})
        for one in _FIELDS:
            value = getattr(entry, one.name)
            if type(value) is not {"int": int, "str": str}.get(str(one.type), tuple):
                raise TypeError(f"{one.name} {shortened(repr(value), 100)} is no {one.type}")
        if not all(type(size) is int and size >= 0 for size in entry.shape):
            raise TypeError(f"shape {shortened(repr(entry.shape), 100)} has a size that is none")
        return entry


_FIELDS = fields(Entry)


def is_hdf5(path: Path) -> bool:
    """Say whether a path stands for an HDF5 file."""
    return path.suffix.lower() in HDF5


def h5py_module() -> Any:
    """Return h5py.

    Raises:
        ConfigError: it is not installed.
    """
    return needed_h5py("HDF5 dumps", "give --out a folder")
