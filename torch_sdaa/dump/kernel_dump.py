"""``torch.sdaa.init_dump``, ``set_dump`` and ``finalize_dump``: one file per operator, configured by a JSON file.

Path: ``{dump_path}/{time}/{device}/{model}/{step}/{op_type}.{op_name}.{task}.{stream}.{timestamp}``, HDF5 with this one
call (``docs/how-to/training_accuracy.md``).
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from engine import ConfigError
from engine.training import Recorded, TrainingDumpWriter
from tecoinfer_modelzoo.text import did_you_mean, one_line
from torch_sdaa.dump.places import Places
from torch_sdaa.dump.recorder import Recorder

CONFIG = "acl.json"
"""Configuration in the working folder, read by ``dumper(load_with_acl_dump=True)`` without ``set_dump``."""

_FIELDS = {"dump_list": [], "dump_path": "", "dump_mode": "output", "dump_op_switch": "off"}
_MODES = ("output", "input", "all")
_NOT_IN_NAMES = re.compile(r"[./\\\s:#]+")


@dataclass
class _Dump:
    """Configuration of a dump.

    Attributes:
        names: operators to write; empty: all. folder: of this run. mode: which part of a call is written.
        on: whether anything is written.
    """

    names: tuple[str, ...]
    folder: Path
    mode: str
    on: bool


_config: _Dump | None = None
_recorder: Recorder | None = None
_places: Places | None = None
_begun = False


def init_dump() -> None:
    """Prepare :func:`set_dump`; raise ConfigError if a dump is active."""
    global _begun
    if _begun:
        raise ConfigError("torch.sdaa.init_dump() was called before; call torch.sdaa.finalize_dump() first")
    _begun = True


def set_dump(path: str | Path) -> None:
    """Start writing the operators of this thread, and of its backward, as configured by a JSON file.

    Raises:
        ConfigError: :func:`init_dump` was not called, or the file is missing or invalid.
    """
    global _config, _recorder, _places
    if not _begun:
        raise ConfigError("torch.sdaa.set_dump() needs torch.sdaa.init_dump() before it")
    if _recorder is not None:
        raise ConfigError("torch.sdaa.set_dump() was called before; call torch.sdaa.finalize_dump() first")
    if not isinstance(path, (str, os.PathLike)):
        raise ConfigError(f"torch.sdaa.set_dump({path!r}): pass the path of the JSON file that configures the dump")
    config = _read(Path(path))
    if config.on:
        try:
            config.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"{path}: dump_path {str(config.folder.parent)!r} cannot be written: {error.strerror}; choose another"
            ) from error
    _config = config
    if config.on:
        _places = Places()
        _places.start()
        _recorder = Recorder(write, _places)
        _recorder.__enter__()


def finalize_dump() -> None:
    """End the dump of :func:`set_dump`; raise ConfigError if :func:`init_dump` was not called."""
    global _config, _recorder, _places, _begun
    if not _begun:
        raise ConfigError("torch.sdaa.finalize_dump() needs torch.sdaa.init_dump() before it")
    if _recorder is not None:
        _recorder.__exit__(None, None, None)
    if _places is not None:
        _places.stop()
    _config = _recorder = _places = None
    _begun = False


def prepare() -> None:
    """Read the configuration in the working folder if none was set; raise ConfigError if it is missing or invalid."""
    global _config
    if _config is None:
        _config = _read(Path(CONFIG))


def write(recorded: Recorded) -> None:
    """Write a call to its own file if it is selected."""
    config, call = _config, recorded.call
    if config is None or not config.on or not _is_selected(call.op, config.names):
        return
    device = torch.device(call.device)
    stream = torch.sdaa.current_stream(device).stream_id if device.type == "sdaa" else 0
    kind = call.op.split(".")[1]
    name = "_".join(part for part in (call.module, call.phase, kind) if part)
    parts = (kind, name, call.index, stream, time.time_ns() // 1000)
    folder = config.folder / str(device.index or 0) / "0" / str(call.step)
    file = folder / ".".join(_NOT_IN_NAMES.sub("_", str(part)) for part in parts)
    writer = TrainingDumpWriter(file, {"kind": "operator", "torch": torch.__version__})
    try:
        writer.add(_part(recorded, config.mode))
    finally:
        writer.close()


def _part(recorded: Recorded, mode: str) -> Recorded:
    call = recorded.call
    if mode == "output":
        return Recorded(replace(call, inputs=()), [], recorded.outputs, None)
    if mode == "input":
        return Recorded(replace(call, outputs=(), written=()), recorded.inputs, [], recorded.state)
    return recorded


def _check_operator(path: Path, name: str) -> None:
    known = {one.partition(".")[0].replace("::", ".") for one in torch._C._dispatch_get_all_op_names()}
    short = {one.partition(".")[2] for one in known if one.startswith("aten.")}
    parts = name.replace("::", ".").split(".")
    if not ({parts[0], ".".join(parts[:2])} & (known | (short if len(parts) == 1 else set()))):
        hint = did_you_mean(parts[min(1, len(parts) - 1)], short)
        raise ConfigError(f"{path}: dump_list: unknown operator {name!r};{hint} the form is aten.mm")
    packet = getattr(torch.ops.aten, parts[1], None) if parts[0] == "aten" and len(parts) == 3 else None
    if packet is not None and parts[2] not in packet.overloads():
        raise ConfigError(
            f"{path}: dump_list: unknown operator {name!r};{did_you_mean(parts[2], packet.overloads())} "
            f"aten.{parts[1]} has {', '.join(packet.overloads())}"
        )


def _is_selected(op: str, names: tuple[str, ...]) -> bool:
    return not names or any(name.replace("::", ".") in (op, op.rpartition(".")[0], op.split(".")[1]) for name in names)


def _read(path: Path) -> _Dump:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be read: {error.strerror}; pass the path of the JSON file that configures the dump"
        ) from error
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {one_line(error)}") from error
    given: Any = found.get("dump") if isinstance(found, dict) else None
    if not isinstance(given, dict):
        raise ConfigError(f'{path} lacks "dump": {{...}} with {", ".join(_FIELDS)}')
    for name in given:
        if name not in _FIELDS:
            raise ConfigError(
                f"{path}: dump has no field {name!r};{did_you_mean(name, _FIELDS)} it has {', '.join(_FIELDS)}"
            )
    fields = {**_FIELDS, **given}
    names, mode, switch = fields["dump_list"], fields["dump_mode"], fields["dump_op_switch"]
    if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
        raise ConfigError(f"{path}: dump_list {names!r} must be a list of operator names; an empty list selects all")
    for name in names:
        _check_operator(path, name)
    if mode not in _MODES:
        raise ConfigError(f"{path}: dump_mode {mode!r} must be one of {', '.join(_MODES)}")
    if switch not in ("on", "off"):
        raise ConfigError(f"{path}: dump_op_switch {switch!r} must be on or off")
    if not isinstance(fields["dump_path"], str) or not fields["dump_path"]:
        raise ConfigError(f"{path}: dump_path {fields['dump_path']!r} must be a folder")
    stamp = time.strftime("%Y%m%d%H%M%S")
    return _Dump(tuple(names), Path(fields["dump_path"]) / stamp, mode, switch == "on")
