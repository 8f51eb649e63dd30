"""Dumps on disk: a folder of .npy files with a manifest, or one HDF5 file with ``/op/sequence/{input,output}``.

Both are marked as whole at the very end, so one that was interrupted or cut short is never taken for a small one.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.base import Array, ConfigError, DataError, TecoInferError
from engine.files import write_file
from toolkit.inputs import read_npy

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

VERSION = 1
MANIFEST = "manifest.json"
GRAPH_INPUT = "graph_input"
"""Operator under which the model's own inputs are kept."""
HDF5 = (".h5", ".hdf5")


@dataclass(frozen=True, slots=True)
class Entry:
    """One array of a dump.

    Attributes:
        index: of the node in the graph; -1 for the model's inputs. op, name, module: of the node.
        sequence: how many nodes of this operator come before it in the graph.
        slot: ``input`` or ``output``. position: among the node's inputs or outputs.
        tensor: its name. dtype, shape: of the array.
        key: where it is: file name, or path inside the HDF5 file. An array is kept once, whoever reads it.
    """

    index: int
    op: str
    name: str
    module: str
    sequence: int
    slot: str
    position: int
    tensor: str
    dtype: str
    shape: tuple[int, ...]
    key: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where an array belongs: all of an :class:`Entry` that is known before it is written."""

    index: int
    op: str
    name: str
    module: str
    sequence: int
    slot: str
    position: int
    tensor: str


class Writer(ABC):
    """Writes a dump; a context manager, whose end marks the dump as whole unless an error came up.

    Args:
        path: where to. about: what was dumped: model, its hash, target, dtype.
    """

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path, self.about = path, dict(about)
        self.entries: list[Entry] = []
        self._keys: dict[str, str] = {}

    def add(self, place: Place, array: Array) -> None:
        """Keep an array; a tensor that was kept before is only referred to."""
        key = self._keys.get(place.tensor)
        where = self.write(place, array) if key is None else self.refer(place, key)
        self._keys.setdefault(place.tensor, where)
        fields = {name: getattr(place, name) for name in Place.__slots__}
        self.entries.append(Entry(**fields, dtype=array.dtype.name, shape=array.shape, key=where))

    @abstractmethod
    def write(self, place: Place, array: Array) -> str:
        """Write an array; return its key."""

    @abstractmethod
    def refer(self, place: Place, key: str) -> str:
        """Let a place mean an array that was written before; return its key."""

    @abstractmethod
    def finish(self) -> None:
        """Mark the dump as whole."""

    def close(self) -> None:  # noqa: B027 -- files of a folder are closed one by one
        """Close what is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if error is None:
                self.finish()
        except OSError as failure:
            raise _unwritable(self.path, failure) from failure
        finally:
            self.close()
        if isinstance(error, OSError):
            raise _unwritable(self.path, error) from error

    def _manifest(self) -> dict[str, Any]:
        return {"schema_version": VERSION, **self.about, "entries": [asdict(entry) for entry in self.entries]}


def _unwritable(path: Path, error: OSError) -> DataError:
    return DataError(
        f"{path} cannot be written: {error.strerror or ' '.join(str(error).split())}; choose another --out"
    )


class _Folder(Writer):
    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        super().__init__(path, about)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ConfigError(f"--out {path} exists and is not an empty folder; name a new one")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(path, error) from error

    def write(self, place: Place, array: Array) -> str:
        safe = re.sub(r"[^A-Za-z0-9_-]", "_", f"{place.op}.{place.name}"[:80])
        key = f"{len(self._keys):05d}.{safe}.{place.slot}.{place.position}.npy"
        np.save(self.path / key, array, allow_pickle=False)
        return key

    def refer(self, place: Place, key: str) -> str:
        return key

    def finish(self) -> None:
        write_file(self.path / MANIFEST, json.dumps(self._manifest(), indent=1).encode())


class _Hdf5(Writer):
    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        super().__init__(path, about)
        h5py = _h5py()
        if path.exists():
            raise ConfigError(f"--out {path} exists; name a new file")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = h5py.File(path, "w")
        except OSError as error:
            raise _unwritable(path, error) from error

    def write(self, place: Place, array: Array) -> str:
        key = self._key(place)
        data = self._file.create_dataset(key, data=array)
        data.attrs["tensor"] = place.tensor
        self._note(place)
        return key

    def refer(self, place: Place, key: str) -> str:
        own = self._key(place)
        self._file[own] = self._file[key]  # a second name of the same data
        self._note(place)
        return own

    def _key(self, place: Place) -> str:
        return f"/{place.op.replace('/', '_')}/{place.sequence}/{place.slot}/{place.position}"

    def _note(self, place: Place) -> None:
        group = self._file[f"/{place.op.replace('/', '_')}/{place.sequence}"]
        group.attrs.update({"name": place.name, "index": place.index, "module": place.module})

    def finish(self) -> None:
        # Attributes end at 64 KiB, so the manifest is a data set; being the last one written, it marks the whole.
        text = np.frombuffer(json.dumps(self._manifest()).encode(), np.uint8)
        self._file.create_dataset(MANIFEST, data=text)

    def close(self) -> None:
        self._file.close()


def open_writer(path: Path, about: Mapping[str, Any]) -> Writer:
    """Begin a dump: an HDF5 file where the path ends in .h5 or .hdf5, else a folder of .npy files.

    Raises:
        ConfigError: the path is taken, or h5py is not installed. DataError: it cannot be written.
    """
    return _Hdf5(path, about) if path.suffix.lower() in HDF5 else _Folder(path, about)


class Dump:
    """A dump that was read: ``about`` says of what, ``entries`` what is in it."""

    def __init__(self, path: Path, manifest: Any) -> None:
        self.path = path
        try:
            if manifest["schema_version"] > VERSION:
                raise DataError(f"{path} is a dump of version {manifest['schema_version']}; this teco reads {VERSION}")
            self.entries = [Entry(**{**entry, "shape": tuple(entry["shape"])}) for entry in manifest["entries"]]
            self.about = {key: value for key, value in manifest.items() if key != "entries"}
        except (TypeError, KeyError) as error:
            raise DataError(f"{path}: its {MANIFEST} is not that of a dump; dump again") from error
        self.outputs = {entry.tensor: entry for entry in self.entries if entry.slot == "output"}
        """Tensor -> entry of the node that writes it; the model's inputs too."""
        self.tensors = {entry.tensor: entry for entry in self.entries} | self.outputs
        """The same, and what nodes only read."""

    def read(self, entry: Entry) -> Array:
        """Return an array.

        Raises:
            DataError: it is damaged, or not what the manifest says.
        """
        array = self._load(entry)
        if array.dtype.name != entry.dtype or array.shape != entry.shape:
            raise DataError(
                f"{self.path}: {entry.key} holds {array.dtype}{list(array.shape)}, its manifest says "
                f"{entry.dtype}{list(entry.shape)}; dump again"
            )
        return array

    def _load(self, entry: Entry) -> Array:
        if Path(entry.key).name != entry.key:
            raise DataError(f"{self.path}: {entry.key!r} is no file of the dump; dump again")
        return read_npy(self.path / entry.key)

    def inputs(self, names: Sequence[str]) -> list[Array]:
        """Return the model's inputs as they were fed, in the given order.

        Raises:
            DataError: the dump lacks one.
        """
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
    """Open a dump.

    Raises:
        DataError: it is missing, is no dump, was not finished, or was cut short. ConfigError: h5py is not installed.
    """
    if path.is_dir():
        return Dump(path, _read_manifest(path))
    if path.suffix.lower() not in HDF5:
        raise DataError(f"{path} is no dump; pass a folder that 'teco dump' wrote, or its .h5 file")
    with _opened(path) as file:
        if MANIFEST not in file:
            raise DataError(f"{path} is no dump, or one that was not finished; dump again")
        return _Hdf5Dump(path, json.loads(bytes(file[MANIFEST][()])))


def _read_manifest(path: Path) -> Any:
    file = path / MANIFEST
    if not file.is_file():
        raise DataError(f"{path} has no {MANIFEST}: no dump, or one that was not finished; dump again")
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read: {' '.join(str(error).split())}; dump again") from error


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    h5py = _h5py()
    if not path.is_file():
        raise DataError(f"dump {path} does not exist")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except TecoInferError:
        raise
    except (OSError, KeyError, ValueError, RuntimeError) as error:
        raise DataError(
            f"{path} is not a readable HDF5 file: {' '.join(str(error).split())}; copy or dump it again"
        ) from error


def _h5py() -> Any:
    try:
        import h5py
    except ModuleNotFoundError as error:
        raise ConfigError(
            "HDF5 dumps need the package h5py, which is not installed; run: "
            'pip install -c constraints.txt -e ".[toolkit]", or give --out a folder'
        ) from error
    return h5py
