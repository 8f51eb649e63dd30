"""External weight files, with the same rules as ONNX Runtime so that all targets accept the same models.

After resolving links, a file must be a regular file in the model's folder or below; hard links are permitted.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator
from math import prod
from pathlib import Path

from onnx import ModelProto, TensorProto, helper

from engine.onnx.view import tensors
from tecoinfer_modelzoo.errors import ModelError

_KEYS = ("location", "offset", "length", "checksum")
_FIX = "copy the file into the model's folder, or export it again"


def external_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield the constants whose data is in another file."""
    yield from (tensor for tensor in tensors(model.graph) if tensor.data_location == TensorProto.EXTERNAL)


def read_external(model: ModelProto, path: Path, but: Collection[str] = ()) -> None:
    """Load the external weights of a model into the model, in place, ``but`` some that are held elsewhere.

    Raises:
        ModelError: a file is missing, not a regular file, outside the model's folder or too short; offset or length is
            not a number; the weights exceed the memory.
    """
    found = [(tensor, *place_of(tensor, path)) for tensor in external_tensors(model) if tensor.name not in but]
    try:
        for tensor, file, offset, length in found:
            tensor.raw_data = _read(file, offset, length)
            del tensor.external_data[:]
            tensor.data_location = TensorProto.DEFAULT
    except OSError as error:
        raise ModelError(f"{path}: external data cannot be read: {error}; {_FIX}") from error
    except MemoryError as error:
        raise beyond_memory(path, sum(length for _, _, _, length in found)) from error


def beyond_memory(path: Path, size: int) -> ModelError:
    """Return the error of weights, in bytes, for which there is not enough memory."""
    fix = "free some memory, or use a smaller model"
    return ModelError(f"{path}: its weights exceed the free memory: {size / 2**20:.0f} MB; {fix}")


def place_of(tensor: TensorProto, path: Path) -> tuple[Path, int, int]:
    """Return the file of a tensor's data, the offset and the length in bytes; raise ModelError if one is invalid."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if unknown := sorted(entries.keys() - set(_KEYS)):
        raise ModelError(f"{path}: external data of weights {tensor.name!r} has an unknown {unknown[0]!r}; {_FIX}")
    if len(entries) < len(tensor.external_data):
        raise ModelError(f"{path}: external data of weights {tensor.name!r} has a duplicate entry; {_FIX}")
    location = entries.get("location", "")
    file = path.parent / location
    shown = f"{path}: external file {location!r} of weights {tensor.name!r}"
    try:
        mode, size = file.stat().st_mode, file.stat().st_size
        real, folder = Path(os.path.realpath(file)), Path(os.path.realpath(path.parent))
    except (OSError, ValueError) as error:
        raise ModelError(f"{shown} is missing; copy it together with the model") from error
    if stat.S_ISDIR(mode):
        raise ModelError(f"{shown} is a folder; {_FIX}")
    if not stat.S_ISREG(mode):
        raise ModelError(f"{shown} is a pipe or a device; {_FIX}")
    if os.path.isabs(location) or not real.is_relative_to(folder):
        raise ModelError(f"{shown} is outside the model's folder; {_FIX}")
    try:
        wanted = prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        offset = _number(entries.get("offset", "0"))
        length = _number(entries.get("length", str(max(wanted, 0))))
    except (ValueError, KeyError) as error:
        raise ModelError(f"{path}: external data of weights {tensor.name!r} cannot be read: {error}; {_FIX}") from error
    if offset + length > size:
        end = f"{length} bytes at {offset}, but it has {size}; export the model again, or copy all of it"
        raise ModelError(f"{shown} is missing data or cut short: {end}")
    return file, offset, length


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError(f"{text!r} is not a number of bytes")
    return int(text)


def _read(file: Path, offset: int, length: int) -> bytes:
    with file.open("rb") as opened:
        opened.seek(offset)
        return opened.read(length)
