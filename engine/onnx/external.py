"""Weights in files beside a model: the same are taken as by ONNX Runtime, so that no target reads what another refuses.

A file lies in the model's folder or below, once links are followed; hard links are files like others. A pipe or a
device is none, and what a name leads to outside the folder is nobody's weights.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from math import prod
from pathlib import Path

from onnx import ModelProto, TensorProto, helper

from engine.onnx.view import tensors
from tecoinfer_modelzoo.errors import ModelError

_KEYS = ("location", "offset", "length", "checksum")
_FIX = "copy the file itself beside the model, or export it again"


def external_tensors(model: ModelProto) -> Iterator[TensorProto]:
    """Yield the constants of a model whose data lies in another file."""
    yield from (tensor for tensor in tensors(model.graph) if tensor.data_location == TensorProto.EXTERNAL)


def read_external(model: ModelProto, path: Path) -> None:
    """Put the data of a model's external weights into the model.

    Args:
        model: as read from ``path``; it is changed.

    Raises:
        ModelError: a file is missing, is none, lies outside the model's folder or is too short; offset or length is no
            number; the weights are more than memory holds.
    """
    found = [(tensor, *place_of(tensor, path)) for tensor in external_tensors(model)]
    try:
        for tensor, file, offset, length in found:
            tensor.raw_data = _read(file, offset, length)
            del tensor.external_data[:]
            tensor.data_location = TensorProto.DEFAULT
    except OSError as error:
        raise ModelError(f"{path}: external data cannot be read: {error}; {_FIX}") from error
    except MemoryError as error:
        size = sum(length for _, _, _, length in found)
        raise ModelError(
            f"{path}: its weights take {size / 2**20:.0f} MB, more than this machine has free; free some memory, use a "
            "machine with more, or a smaller model"
        ) from error


def place_of(tensor: TensorProto, path: Path) -> tuple[Path, int, int]:
    """Return the file of a tensor's data, where in it the data begins, and how many bytes it has.

    Raises:
        ModelError: it cannot be taken.
    """
    told = {entry.key: entry.value for entry in tensor.external_data}
    if unknown := sorted(told.keys() - set(_KEYS)):
        raise ModelError(
            f"{path}: external data of weights {tensor.name!r} has an unknown entry {unknown[0]!r}; {_FIX}"
        )
    if len(told) < len(tensor.external_data):
        raise ModelError(f"{path}: external data of weights {tensor.name!r} has an entry twice; {_FIX}")
    location = told.get("location", "")
    file = path.parent / location
    shown = f"{path}: weights {tensor.name!r} lie in external file {location!r}, which"
    try:
        mode, size = file.stat().st_mode, file.stat().st_size
        real, folder = Path(os.path.realpath(file)), Path(os.path.realpath(path.parent))
    except (OSError, ValueError) as error:
        raise ModelError(f"{shown} is not beside it; copy both") from error
    if stat.S_ISDIR(mode):
        raise ModelError(f"{shown} is a folder and is not beside it; copy both")
    if not stat.S_ISREG(mode):
        raise ModelError(f"{shown} is a pipe or a device; {_FIX}")
    if os.path.isabs(location) or not real.is_relative_to(folder):
        raise ModelError(f"{shown} external data cannot be: it lies outside the model's folder; {_FIX}")
    try:
        wanted = prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        offset = _number(told.get("offset", "0"))
        length = _number(told.get("length", str(max(wanted, 0))))
    except (ValueError, KeyError) as error:
        raise ModelError(f"{path}: external data of weights {tensor.name!r} cannot be read: {error}; {_FIX}") from error
    if offset + length > size:
        raise ModelError(
            f"{path}: weights {tensor.name!r} take {length} bytes at {offset} of external file {location!r}, which has "
            f"{size}: its data is missing or cut short; export the model again, or copy all of it"
        )
    return file, offset, length


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise ValueError(f"{text!r} is no number of bytes")
    return int(text)


def _read(file: Path, offset: int, length: int) -> bytes:
    with file.open("rb") as opened:
        opened.seek(offset)
        return opened.read(length)
