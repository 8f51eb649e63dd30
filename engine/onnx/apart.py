"""Models whose large weights are arrays beside the message: read once from the file, and not copied with the model.

In the model, such a weight is an external tensor without a file: its ``location`` is the name of the tensor. Copies of
the model keep this entry even if they rename the weight, so that its values are found by it (:func:`origin`). Only the
factors of matrix products and convolutions are held apart: no analysis of a graph reads their values.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto, TensorProto

from engine.onnx.external import beyond_memory, place_of
from engine.onnx.large import copy_model, put_raw
from engine.onnx.view import subgraphs, used_names
from engine.onnx.wire import FileSource, Source, fields
from engine.signature import Array
from tecoinfer_modelzoo.errors import ModelError

MANY = 2**24
"""Bytes of large weights from which they are held apart: the copies of smaller models take less than a millisecond."""

LARGE = 2**16  # minimum size in bytes of such a weight

_KINDS: Mapping[int, np.dtype[np.generic]] = {
    TensorProto.FLOAT: np.dtype(np.float32),
    TensorProto.FLOAT16: np.dtype(np.float16),
}
_FACTORS: Mapping[str, tuple[int, ...]] = {"Conv": (1,), "ConvTranspose": (1,), "Gemm": (0, 1), "MatMul": (0, 1)}
"""Inputs whose values decide nothing but the results: indices by operator."""

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9  # numbers of fields in onnx.proto
_LENGTH = 2  # wire type of a field with a length
_MOST_READ = 2**30  # bytes of one read: the system's limit is 2 GiB


class Held(NamedTuple):
    """A model file without the data of large weights."""

    content: bytes | None  # the message; ``None``: the file itself, from which nothing was taken
    places: Mapping[str, tuple[int, int]]  # offset and length of the data in the file, by name of the weight
    handle: int  # descriptor of the file; -1: none


@contextmanager
def held_apart(path: Path, size: int) -> Iterator[Held]:
    """Scan a regular file of ``size`` bytes for large weights, and keep it open; it is not read if it has none.

    A file that cannot be opened or scanned is left to the parser, which reports it.
    """
    nothing = Held(None, {}, -1)
    if size < MANY or sys.byteorder != "little":
        yield nothing
        return
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        yield nothing
        return
    try:
        found = _scanned(FileSource(handle), size)
        yield nothing if found is None else Held(*found, handle)
    finally:
        os.close(handle)


def _scanned(source: Source, size: int) -> tuple[bytes, dict[str, tuple[int, int]]] | None:
    """Return a model without large weights, and their places; ``None`` if there are none, or the file is damaged."""
    pieces: list[bytes] = []
    places: dict[str, tuple[int, int]] = {}
    graphs = end = 0
    for field in fields(source, 0, size):
        end = field.after
        if field.number != _GRAPH or not field.end:
            pieces.append(source.read(field.head, field.after - field.head))
            continue
        graphs += 1
        graph = _graph(source, field.start, field.end, places)
        if graph is None:
            return None
        pieces += [_prefix(_GRAPH, sum(map(len, graph))), *graph]
    # A second graph would be merged with the first.
    return (b"".join(pieces), places) if places and graphs == 1 and end == size else None


def _graph(source: Source, start: int, end: int, places: dict[str, tuple[int, int]]) -> list[bytes] | None:
    pieces: list[bytes] = []
    at = kept = start  # everything from ``kept`` on is copied at once
    for field in fields(source, start, end):
        at = field.after
        if field.number != _INITIALIZER or field.end - field.start < LARGE:
            continue
        found = _tensor(source, field.start, field.end)
        if found is None:
            continue
        tensor, place = found
        if tensor.name in places:
            return None
        places[tensor.name] = place
        content = tensor.SerializeToString()
        pieces += [source.read(kept, field.head - kept), _prefix(_INITIALIZER, len(content)), content]
        kept = field.after
    if at != end:
        return None
    return [*pieces, source.read(kept, end - kept)]


def _tensor(source: Source, start: int, end: int) -> tuple[TensorProto, tuple[int, int]] | None:
    """Return a weight without its data, and the offset and length of these; ``None`` if it stays in the message."""
    pieces, raw, at = [], [], start
    for field in fields(source, start, end):
        at = field.after
        if field.number == _RAW_DATA and field.end:
            raw.append((field.start, field.end - field.start))
        elif field.after - field.head >= LARGE:
            return None
        else:
            pieces.append(source.read(field.head, field.after - field.head))
    if at != end or len(raw) != 1:
        return None
    try:
        tensor = TensorProto.FromString(b"".join(pieces))
    except DecodeError:
        return None
    kind = _KINDS.get(tensor.data_type)
    plain = tensor.name and not tensor.external_data and tensor.data_location == TensorProto.DEFAULT
    values = tensor.float_data or tensor.int32_data
    if kind is None or not plain or values or min(tensor.dims, default=0) < 1:
        return None
    if prod(tensor.dims) * kind.itemsize != raw[0][1]:
        return None
    _mark(tensor)
    return tensor, raw[0]


def _prefix(number: int, length: int) -> bytes:
    """Return tag and length of a field with a length."""
    return _varint(number << 3 | _LENGTH) + _varint(length)


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def _mark(tensor: TensorProto) -> None:
    del tensor.external_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=tensor.name)


def origin(tensor: TensorProto) -> str:
    """Return the name by which an external tensor's values are known, "" for a tensor with values."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return ""
    return next((entry.value for entry in tensor.external_data if entry.key == "location"), "")


def apart_names(model: ModelProto, held: Held, path: Path) -> frozenset[str]:
    """Return the large weights whose values no analysis needs; none if they are few.

    Raise ModelError if the file of one in another file is missing, invalid or too short.
    """
    factors = factors_of(model.graph)
    sizes: dict[str, int] = {}
    for tensor in model.graph.initializer:
        if tensor.name not in factors or tensor.data_location != TensorProto.EXTERNAL:
            continue
        if tensor.name in held.places:
            sizes[tensor.name] = held.places[tensor.name][1]
        elif tensor.data_type in _KINDS and sys.byteorder == "little":
            _, _, length = place_of(tensor, path)
            if length >= LARGE and length == prod(tensor.dims) * _KINDS[tensor.data_type].itemsize:
                sizes[tensor.name] = length
    return frozenset(sizes) if sum(sizes.values()) >= MANY else frozenset()


def factors_of(graph: GraphProto) -> set[str]:
    """Return the initializers that are factors of convolutions and matrix products, and nothing else.

    The vector of an outer product, whose other factor may be a position, is not one of them.
    """
    found: set[str] = set()
    others = {info.name for info in (*graph.output, *graph.input)}
    for node in graph.node:
        places = _FACTORS.get(node.op_type, ()) if node.domain in ("", "ai.onnx") else ()
        found.update(name for i, name in enumerate(node.input) if i in places)
        others.update(name for i, name in enumerate(node.input) if i not in places)
        if any(True for _ in subgraphs(node)):
            others.update(used_names(node))
    names = [tensor.name for tensor in graph.initializer]
    thick = {t.name for t in graph.initializer if len(t.dims) > 2 or (len(t.dims) == 2 and min(t.dims) > 1)}
    twice = {name for name in names if names.count(name) > 1} if len(names) > len(set(names)) else set()
    return (found & thick) - others - twice


def put_back(model: ModelProto, held: Held, but: Collection[str], path: Path) -> None:
    """Read the weights of the file into the model, in place, ``but`` those to be held apart."""
    for tensor in model.graph.initializer:
        if tensor.name in held.places and tensor.name not in but and origin(tensor) == tensor.name:
            _put(tensor, _read(held.handle, *held.places[tensor.name], path))


def read_apart(model: ModelProto, held: Held, names: Collection[str], path: Path) -> dict[str, Array]:
    """Return the values of weights by name, as stored, each in memory of its own; they become external in the model.

    Raise ModelError if they exceed the memory, or a file is cut short.
    """
    weights: dict[str, Array] = {}
    for tensor in model.graph.initializer:
        if tensor.name not in names:
            continue
        if tensor.name in held.places:
            raw = _read(held.handle, *held.places[tensor.name], path)
        else:
            file, offset, length = place_of(tensor, path)
            raw = _read_file(file, offset, length, path)
            _mark(tensor)
        weights[tensor.name] = raw.view(_KINDS[tensor.data_type]).reshape(tuple(tensor.dims))
    return weights


def _read_file(file: Path, offset: int, length: int, path: Path) -> Array:
    try:
        handle = os.open(file, os.O_RDONLY)
    except OSError as error:
        raise ModelError(f"{path}: external data cannot be read: {error}; check the permissions of {file}") from error
    try:
        return _read(handle, offset, length, path)
    finally:
        os.close(handle)


def _read(handle: int, offset: int, length: int, path: Path) -> Array:
    """Return bytes of an open file as an array; raise ModelError if there are fewer, or not enough memory."""
    try:
        raw: Array = np.empty(length, np.uint8)
    except MemoryError as error:
        raise beyond_memory(path, length) from error
    done = 0
    while done < length:
        count = os.preadv(handle, [raw[done : done + _MOST_READ].data], offset + done)
        if not count:
            raise ModelError(f"{path}: its weights were cut short while they were read; copy the whole file again")
        done += count
    return raw


def joined(model: ModelProto, weights: Mapping[str, Array]) -> ModelProto:
    """Return a copy of a model with the values of the weights held apart, which may be renamed in it."""
    if not weights:
        return model
    whole = copy_model(model)
    for tensor in whole.graph.initializer:
        values = weights.get(tensor.name)
        if values is not None and origin(tensor):
            _put(tensor, values)
    return whole


def _put(tensor: TensorProto, values: Array) -> None:
    del tensor.external_data[:]
    tensor.ClearField("data_location")
    put_raw(tensor, tensor.data_type, values.tobytes())
