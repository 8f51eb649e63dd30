"""``torch_sdaa.utils.dumper``: records all operators of a part of a training to a file, or those that overflow."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from engine import ConfigError
from engine.training import OpCall, Recorded, TrainingDump, TrainingDumpWriter, open_training_dump
from tecoinfer_modelzoo.text import did_you_mean
from torch_sdaa.dump import kernel_dump
from torch_sdaa.dump.places import Places
from torch_sdaa.dump.recorder import Recorder
from torch_sdaa.dump.values import as_tensor

_log = logging.getLogger(__name__)
_HDF5 = (".h5", ".hdf5")
_ARGUMENTS = ("use_dump", "use_load", "dump_path", "load_file_path", "check_overflow", "load_with_acl_dump", "limit")

FEW = 10
"""Minimum number of further steps that must fit; otherwise a warning is logged."""


class dumper:  # noqa: N801 -- used like a function, with the vendors' name
    """Record the operators in a ``with`` block: forward, backward and optimizers, with all inputs and outputs.

    Args:
        use_dump: record every operator.
        use_load: let operators compute on the inputs in ``load_file_path``; ``use_dump`` with such a file implies it,
            so that each operator is compared by itself.
        dump_path: a new ``.h5`` file, or a folder for it: ``dump.h5``, for an overflow check ``overflow.h5``.
        load_file_path: a file of an earlier run, or a part of one extracted by ``h5copy``.
        check_overflow: find operators with NaN or infinity from finite inputs: each is logged (with module, line of the
            script, step and loss scale) and recorded.
        load_with_acl_dump: also write the loaded operators as configured by ``torch.sdaa.set_dump``.
        limit: maximum bytes of the file; ``None``: the free disk space less a reserve.

    Attributes:
        overflows: the overflowing calls. loaded: number of calls on loaded inputs. path: of the file.

    Raises:
        ConfigError: an argument is unknown or invalid.
        ConfigError, DataError: on entry: a file exists, is missing or damaged, or h5py is not installed; in the block:
            the disk or the limit has no room for the next call.
    """

    def __init__(
        self,
        use_dump: bool = False,
        use_load: bool = False,
        dump_path: str | os.PathLike[str] = "./",
        load_file_path: str | os.PathLike[str] | None = None,
        check_overflow: bool = False,
        load_with_acl_dump: bool = False,
        *,
        limit: int | None = None,
        **unknown: Any,
    ) -> None:
        _check(dump_path, load_file_path, unknown)
        self._use_dump, self._check, self._acl = bool(use_dump), bool(check_overflow), bool(load_with_acl_dump)
        self._load = Path(load_file_path) if load_file_path and (use_load or use_dump) else None
        if use_load and not load_file_path:
            raise ConfigError("dumper(use_load=True) needs load_file_path=, a file written by a dumper")
        if load_file_path and check_overflow and not (use_load or use_dump):
            raise ConfigError("dumper(load_file_path=) needs use_load=True or use_dump=True to be read")
        if load_with_acl_dump and not use_load:
            raise ConfigError("dumper(load_with_acl_dump=True) needs use_load=True and load_file_path=")
        self.path = self._file(Path(dump_path))
        self._limit = limit
        self.overflows: list[OpCall] = []
        self.loaded = 0
        self._places = Places()
        self._writer: TrainingDumpWriter | None = None
        self._fed: dict[tuple[str, ...], Recorded] = {}
        self._seen: dict[tuple[str, ...], int] = {}
        self._stack = ExitStack()
        self._acl_calls: set[int] = set()
        self._warned = False

    def _file(self, path: Path) -> Path:
        if path.suffix.lower() in _HDF5:
            return path
        return path / ("dump.h5" if self._use_dump else "overflow.h5")

    def __enter__(self) -> dumper:
        if not (self._use_dump or self._check or self._load):
            return self
        self._stack = ExitStack()
        source = self._stack.enter_context(open_training_dump(self._load)) if self._load else None
        if source is not None:
            self._source, self._by_key = source, _by_key(source)
            if self._acl:
                kernel_dump.prepare()
        if self._use_dump:
            self._open()
        self._places.start()
        self._stack.callback(self._places.stop)
        self._stack.enter_context(Recorder(self._keep, self._places, self._feed if source is not None else None))
        return self

    def _open(self) -> TrainingDumpWriter:
        if self._writer is None:
            self._writer = TrainingDumpWriter(self.path, _about(self._use_dump), self._limit)
        return self._writer

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            self._stack.close()
        finally:
            if self._writer is not None:
                more = {"modules": self._places.modules, "parameters": self._places.parameters}
                self._writer.close(more, whole=error is None)
                self._writer = None

    def _keep(self, recorded: Recorded) -> None:
        call = recorded.call
        if call.overflow and self._check:
            self.overflows.append(call)
            _log.warning("%s", overflow_line(call))
        if self._use_dump or (self._check and call.overflow):
            writer = self._open()
            if self._use_dump and call.step == 1 and not self._warned:
                self._warn_room(writer)
            writer.add(recorded)
        if call.index in self._acl_calls:
            kernel_dump.write(recorded)

    def _warn_room(self, writer: TrainingDumpWriter) -> None:
        """Log after the first step how many more steps fit, if few."""
        self._warned = True
        more = writer.room() // max(writer.size, 1)
        if more < FEW:
            size = f"{writer.size / 2**20:.1f} MiB"
            _log.warning("%s: the first step takes up to %s; %d more steps of this size fit", writer.path, size, more)

    def _feed(self, call: OpCall, tensors: list[torch.Tensor]) -> dict[int, torch.Tensor]:
        """Return the file's tensors for the inputs of a call; {} if the file has no such call."""
        key = _key(call)
        count = self._seen[key] = self._seen.get(key, -1) + 1
        whole = "schema_version" in self._source.about  # a part extracted by h5copy keeps the call numbers
        before = self._by_key.get((*key, str(count) if whole else call.where))
        if before is None or before.draws or len(before.inputs) != len(tensors):
            return {}
        if any(one.shape != tuple(t.shape) for one, t in zip(before.inputs, tensors, strict=True)):
            return {}
        held = self._source.read(before)
        self.loaded += 1
        if self._acl:
            self._acl_calls.add(call.index)
        return {
            k: as_tensor(one, array, tensors[k].device).to(tensors[k].dtype)
            for k, (one, array) in enumerate(zip(before.inputs, held.inputs, strict=True))
        }


def _check(dump_path: Any, load_file_path: Any, unknown: Mapping[str, Any]) -> None:
    for name in unknown:
        raise ConfigError(
            f"dumper has no argument {name!r};{did_you_mean(name, _ARGUMENTS)} it has {', '.join(_ARGUMENTS)}"
        )
    if not isinstance(dump_path, (str, os.PathLike)):
        raise ConfigError(f"dump_path {dump_path!r} must be a .h5 file or a folder")
    if load_file_path is not None and not isinstance(load_file_path, (str, os.PathLike)):
        raise ConfigError(f"load_file_path {load_file_path!r} must be a file written by a dumper")


def overflow_line(call: OpCall) -> str:
    """Return a one-line description of an overflow."""
    scale = "" if call.loss_scale is None else f", loss scale {call.loss_scale:g}"
    where = f" of {call.module}" if call.module else ""
    source = f" ({call.source})" if call.source else ""
    return f"overflow: {call.where}{where}, {call.phase} of step {call.step}{scale}{source}"


def _key(call: OpCall) -> tuple[str, ...]:
    return (str(call.step), call.phase, call.module, call.op)


def _by_key(source: TrainingDump) -> dict[tuple[str, ...], OpCall]:
    """Return the calls of a file by key and number of equal keys before, and by key and name."""
    counts: dict[tuple[str, ...], int] = {}
    found = {}
    for call in source.calls:
        key = _key(call)
        number = counts[key] = counts.get(key, -1) + 1
        found[(*key, str(number))] = found[(*key, call.where)] = call
    return found


def _about(whole: bool) -> Mapping[str, Any]:
    return {
        "kind": "dump" if whole else "overflow",
        "torch": torch.__version__,
        "argv": [str(word) for word in sys.argv],
        "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
