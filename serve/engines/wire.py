"""Messages between the server and an engine process: a JSON header, and arrays as bytes.

A message is the length of its header and of its body, the header, and the body: the bytes of all arrays, each from a
multiple of 64 bytes on. The header lists dtype and shape of each array under ``arrays``. A body may also be in memory
that both processes share (:mod:`serve.engines.shared`): then the header has its place there. Both ends run on one
machine and one version of the zoo, so numbers are in the machine's byte order.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from engine import Array
from serve.protocol.datatypes import from_bytes, to_bytes

PREFIX = struct.Struct("=IQ")
"""Lengths of header and body in bytes."""

_ALIGNMENT = 64


class Message(NamedTuple):
    """A received message: the header without ``arrays``, and the arrays."""

    header: dict[str, Any]
    arrays: list[Array]


class Body(NamedTuple):
    """Arrays as bytes: ``pieces`` one after the other, ``size`` bytes; ``layout``: dtype, shape and bytes of each."""

    layout: list[list[Any]]
    pieces: list[bytes | memoryview]
    size: int


def body_of(arrays: Sequence[Array]) -> Body:
    """Return arrays as bytes, without copies of contiguous ones."""
    found = Body([], [], 0)
    size = 0
    for array in arrays:
        data = to_bytes(array) if array.dtype.hasobject else _memory(array)
        found.layout.append([array.dtype.str, list(array.shape), len(data)])
        padding = -len(data) % _ALIGNMENT
        found.pieces.append(data)
        if padding:
            found.pieces.append(bytes(padding))
        size += len(data) + padding
    return found._replace(size=size)


def packed(header: Mapping[str, Any], body: Body, shared: int | None = None) -> list[bytes | memoryview]:
    """Return a message in pieces, to be sent one after the other.

    Args:
        header: in JSON types. body: arrays. shared: where the body is in the memory of both processes; ``None``: it is
            sent.
    """
    place = {} if shared is None else {"shared": shared, "size": body.size}
    head = json.dumps({**header, **place, "arrays": body.layout}).encode()
    sent = body if shared is None else Body([], [], 0)
    return [PREFIX.pack(len(head), sent.size), head, *sent.pieces]


def _memory(array: Array) -> memoryview:
    """Return the bytes of an array, without a copy if they are contiguous."""
    flat: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return memoryview(flat)


def unpacked(head: bytes, body: bytes | bytearray, memory: memoryview | None = None) -> Message:
    """Return the message of a header and a body.

    The arrays share the memory of the body, or ``memory``, which both processes have: those are valid until the call is
    answered.
    """
    header = json.loads(head)
    arrays, place, view = list[Array](), 0, memoryview(body)
    if "shared" in header and memory is not None:
        begin = header.pop("shared")
        view = memory[begin : begin + header.pop("size")]
    for dtype, shape, size in header.pop("arrays"):
        data = view[place : place + size]
        kind = np.dtype(dtype)
        if kind.hasobject:
            arrays.append(from_bytes(data, tuple(shape), kind, ""))
        else:
            arrays.append(np.frombuffer(data, kind, math.prod(shape)).reshape(shape))
        place += size + -size % _ALIGNMENT
    return Message(header, arrays)
