"""The file of a recorded training: one HDF5 group per call of an operator, written and read without PyTorch.

``/OP/N`` is the N-th call of an operator, such as ``/aten.addmm.default/0``. It has a data set ``call`` (JSON:
operator, place, arguments) and the groups ``input``, ``output`` and, for random operators, ``state``, with numbered
data sets. A group is self-contained, so ``h5copy`` can extract it. Equal tensors are stored once. No pickle is used.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from engine.signature import Array
from engine.training.calls import SCRATCH, OpCall, Recorded, kept_tensor
from engine.training.hdf5 import needed_h5py
from tecoinfer_modelzoo.errors import ConfigError, DataError, TecoInferError
from tecoinfer_modelzoo.text import nearest, one_line, reason_of

VERSION = 1
SPARE = 64 * 2**20  # bytes of disk space that a dump leaves free
_ROOM = 2**14  # usual upper limit of the bytes that describe a call
_WHAT = "dumps of a training"  # subject of the error if h5py is missing

_DAMAGED = (OSError, KeyError, ValueError, RuntimeError, TypeError, AttributeError)
"""Exceptions of h5py for damaged files."""


# --------------------------------------------------------------------------------------------------------- writing


class TrainingDumpWriter:
    """Writes a dump, call by call; every call that was added can be read even if the process is killed later.

    Args:
        path: a new file. about: description of the training. limit: largest size in bytes; ``None``: the disk's.

    Raise ConfigError if the path exists, or h5py is not installed, DataError if it cannot be written.
    """

    def __init__(self, path: Path, about: Mapping[str, Any], limit: int | None = None) -> None:
        h5py = needed_h5py(_WHAT)
        self.path, self.limit, self.size = path, limit, 0
        if limit is not None and not (isinstance(limit, int) and not isinstance(limit, bool) and limit > 0):
            raise ConfigError(f"limit {limit!r} must be a whole number of bytes above 0")
        self._places: dict[str, str] = {}
        if path.exists():
            raise ConfigError(f"dump_path {path} exists; name a new file, or remove it")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._check_room(0, "a dump")
            self._file = h5py.File(path, "w", libver=("earliest", "v110"))
            self._file.attrs["about"] = json.dumps({"schema_version": VERSION, **about})
            self._file.flush()
        except OSError as error:
            raise DataError(f"{path} cannot be written: {one_line(error)}; choose another dump_path") from error

    def needed(self, recorded: Recorded) -> int:
        """Return the bytes that a call adds: those of tensors that are not stored yet."""
        tensors = zip(
            (*recorded.call.inputs, *recorded.call.outputs), (*recorded.inputs, *recorded.outputs), strict=True
        )
        new = {one.digest: array.nbytes for one, array in tensors if one.digest not in self._places}
        state = 0 if recorded.state is None else recorded.state.nbytes
        return sum(new.values()) + state + _ROOM

    def add(self, recorded: Recorded) -> str:
        """Store a call; return its group.

        Raises:
            DataError: it exceeds the disk space or the limit, or cannot be written; stored calls remain.
        """
        call = recorded.call
        need = self.needed(recorded)
        self._check_room(need, f"the next call, {call.op},")
        try:
            group = self._file.create_group(f"{call.op}/{call.number}")
            for slot, tensors, arrays in (
                ("input", call.inputs, recorded.inputs),
                ("output", call.outputs, recorded.outputs),
            ):
                for k, (one, array) in enumerate(zip(tensors, arrays, strict=True)):
                    self._put(group, f"{slot}/{k}", one.digest, array)
            if recorded.state is not None:
                group.create_dataset("state/0", data=recorded.state)
            text = json.dumps(asdict(call)).encode()
            group.create_dataset("call", data=np.frombuffer(text, np.uint8))
            self._file.flush()
        except (OSError, RuntimeError) as error:
            raise DataError(f"{self.path} cannot be written: {one_line(error)}; the disk may be full") from error
        self.size += need
        return call.where

    def _put(self, group: Any, name: str, digest: str, array: Array) -> None:
        place = self._places.get(digest)
        if place is not None:
            group[name] = self._file[place]  # a second name of the same data
            return
        group.create_dataset(name, data=array)
        self._places[digest] = f"{group.name}/{name}"

    def room(self) -> int:
        """Return the number of bytes the file may still grow."""
        free = shutil.disk_usage(self.path.parent).free - SPARE
        return free if self.limit is None else min(free, self.limit - self.size)

    def _check_room(self, need: int, what: str) -> None:
        folder = self.path.parent
        free = shutil.disk_usage(folder).free
        if need > free - SPARE:
            raise DataError(
                f"{self.path}: {what} needs {need / 2**20:.2f} MiB and the disk has {free / 2**20:.2f} MiB free, "
                f"of which a dump leaves {SPARE / 2**20:.0f}; dump fewer steps or a smaller batch, or "
                "choose a dump_path on another disk"
            )
        if self.limit is not None and self.size + need > self.limit:
            raise DataError(
                f"{self.path}: {what} would make it {(self.size + need) / 2**20:.2f} MiB, above the "
                f"limit of {self.limit / 2**20:.2f} MiB; dump fewer steps or a smaller batch, or raise the limit"
            )

    def close(self, more: Mapping[str, Any] | None = None, whole: bool = True) -> None:
        """Close the file; ``whole`` marks it as finished. ``more``: further description."""
        try:
            about = json.loads(self._file.attrs["about"])
            if more:
                text = json.dumps({**about, **more}).encode()
                self._file.create_dataset("about", data=np.frombuffer(text, np.uint8))
            if whole:
                self._file.attrs["finished"] = True
        finally:
            self._file.close()


# --------------------------------------------------------------------------------------------------------- reading


class TrainingDump:
    """An opened dump; a context manager.

    Attributes:
        about: description of the training. finished: whether it was written completely. calls: in order.
    """

    def __init__(self, path: Path, file: Any) -> None:
        self.path, self._file = path, file
        self.about = _about(path, file)
        self.finished = bool(file.attrs.get("finished", False))
        found = [call for call in self._read_calls() if call is not None]
        self.calls = sorted(found, key=lambda call: (call.index, call.where))
        self._by_place = {call.where: call for call in self.calls}

    def __enter__(self) -> TrainingDump:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _read_calls(self) -> Iterator[OpCall | None]:
        for op, numbers in self._file.items():
            if not hasattr(numbers, "items"):
                continue
            for number, group in numbers.items():
                if "call" not in group:  # the process was killed while writing it
                    self.finished = False
                    continue
                yield self._read_call(f"{op}/{number}", group)

    def _read_call(self, where: str, group: Any) -> OpCall:
        try:
            call = OpCall.read(json.loads(bytes(group["call"][()])))
            if call.where != where:
                raise TypeError(f"its name is {call.where}")
            for slot, tensors in (("input", call.inputs), ("output", call.outputs)):
                for k, one in enumerate(tensors):
                    if group[f"{slot}/{k}"].shape != one.shape:
                        raise TypeError(f"{slot}/{k} is {list(group[f'{slot}/{k}'].shape)}, not {list(one.shape)}")
        except _DAMAGED as error:
            raise DataError(f"{self.path}: {where} is not a complete call ({reason_of(error)}); dump again") from error
        return call

    def call(self, where: str) -> OpCall:
        """Return the call of a name such as ``aten.addmm.default/0``; an operator alone means its first call.

        Raise DataError if it does not exist.
        """
        name = where.strip("/").replace("::", ".")
        for one in (name, f"{name}/0", f"{name}.default/0", *(f"aten.{name}{end}" for end in ("", "/0", ".default/0"))):
            if one in self._by_place:
                return self._by_place[one]
        head, slash, tail = name.rpartition("/")
        for one in (f"{head}.default/{tail}", f"aten.{head}.default/{tail}") if slash else ():
            if one in self._by_place:
                return self._by_place[one]
        raise DataError(f"{self.path} has no call {where!r}{self._like(name)}")

    def _like(self, name: str) -> str:
        wanted = name.partition("/")[0].removesuffix(".default").removeprefix("aten.")
        counts = Counter(call.op for call in self.calls)
        short = {op.removesuffix(".default").removeprefix("aten."): op for op in counts}
        near = nearest(wanted, short) if wanted else None
        if near is None:
            return f"; names have the form {next(iter(self._by_place), 'OP/0')}"
        op = short[near]
        if wanted == near:
            return f"; the calls of {op} are numbered 0 to {counts[op] - 1}"
        return f"; did you mean {op + '/0'!r}?"

    def array(self, call: OpCall, slot: str, k: int) -> Array:
        """Return one array of a call, the k-th of its ``input`` or ``output``; raise DataError if it is damaged."""
        try:
            return np.asarray(self._file[call.where][f"{slot}/{k}"][()])
        except _DAMAGED as error:
            raise DataError(f"{self.path}: {call.where} cannot be read ({one_line(error)}); dump again") from error

    def read(self, call: OpCall) -> Recorded:
        """Return a call with its arrays; raise DataError if they are damaged."""
        try:
            group = self._file[call.where]
            inputs = [np.asarray(group[f"input/{k}"][()]) for k in range(len(call.inputs))]
            outputs = [np.asarray(group[f"output/{k}"][()]) for k in range(len(call.outputs))]
            state = np.asarray(group["state/0"][()]) if "state" in group else None
        except _DAMAGED as error:
            raise DataError(f"{self.path}: {call.where} cannot be read ({one_line(error)}); dump again") from error
        for one, array in zip((*call.inputs, *call.outputs), (*inputs, *outputs), strict=True):
            if not one.digest.startswith(SCRATCH) and kept_tensor(array, one.dtype, one.stride).digest != one.digest:
                raise DataError(f"{self.path}: {call.where} has other values than were written; copy it or dump again")
        return Recorded(call, inputs, outputs, state)


def _about(path: Path, file: Any) -> dict[str, Any]:
    try:
        text = bytes(file["about"][()]) if "about" in file else file.attrs.get("about", "{}")
        about: dict[str, Any] = json.loads(text)
        version = about.get("schema_version", VERSION)  # missing in a group that h5copy extracted
        if not all(isinstance(about.get(name, {}), dict) for name in ("modules", "parameters")):
            raise TypeError("modules and parameters are not objects")
    except (ValueError, AttributeError, TypeError) as error:
        raise DataError(f"{path} is not a dump of a training ({reason_of(error)})") from error
    if type(version) is int and version > VERSION:
        raise DataError(f"{path} is a dump of version {version}; this package reads {VERSION}: update it")
    if type(version) is not int or version < 1:
        raise DataError(f"{path} is a dump of invalid version {version!r}; dump again")
    return about


def open_training_dump(path: Path) -> TrainingDump:
    """Open a dump; ``finished`` is false if the process that wrote it was killed.

    Raise DataError if it is missing, truncated, or not a dump of a training, ConfigError if h5py is not installed.
    """
    h5py = needed_h5py(_WHAT)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise DataError(f"dump {path} {what}; name a file that torch_sdaa.utils.dumper wrote")
    with _readable(path):
        file = h5py.File(path, "r")
        try:
            found = TrainingDump(path, file)
            if not found.calls and "schema_version" not in found.about:
                raise DataError(f"{path} is not a dump of a training; torch_sdaa.utils.dumper writes one")
        except BaseException:
            file.close()
            raise
    return found


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except TecoInferError:
        raise
    except _DAMAGED as error:
        text = one_line(error)
        if "signature not found" in text:
            raise DataError(f"{path} is not an HDF5 file; name one that torch_sdaa.utils.dumper wrote") from error
        cut = "it was cut short; copy it again or dump again" if "truncated" in text else f"{text}; dump again"
        raise DataError(f"{path} is not a readable HDF5 file: {cut}") from error


def read_call(path: Path, where: str) -> Recorded:
    """Return one call of a file with its arrays.

    Raise DataError if it does not exist, or the file is damaged, ConfigError if h5py is not installed.
    """
    with open_training_dump(path) as dump:
        return dump.read(dump.call(where))
