"""Messages between the server and an engine process: a JSON header, and arrays as bytes.

A message is the length of its header and of its body, the header, and the body: the bytes of all arrays, each from a
multiple of 64 bytes on. The header lists dtype and shape of each array under ``arrays``. Both ends run on one machine
and one version of the zoo, so numbers are in the machine's byte order.
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


def packed(header: Mapping[str, Any], arrays: Sequence[Array] = ()) -> list[bytes | memoryview]:
    """Return a message in pieces, to be sent one after the other."""
    layout: list[list[Any]] = []
    body: list[bytes | memoryview] = []
    size = 0
    for array in arrays:
        data = to_bytes(array) if array.dtype.hasobject else _memory(array)
        layout.append([array.dtype.str, list(array.shape), len(data)])
        padding = -len(data) % _ALIGNMENT
        body += [data, bytes(padding)] if padding else [data]
        size += len(data) + padding
    head = json.dumps({**header, "arrays": layout}).encode()
    return [PREFIX.pack(len(head), size), head, *body]


def _memory(array: Array) -> memoryview:
    """Return the bytes of an array, without a copy if they are contiguous."""
    flat: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return memoryview(flat)


def unpacked(head: bytes, body: bytes | bytearray) -> Message:
    """Return the message of a header and a body; the arrays share the memory of the body."""
    header = json.loads(head)
    arrays, place, view = list[Array](), 0, memoryview(body)
    for dtype, shape, size in header.pop("arrays"):
        data = view[place : place + size]
        kind = np.dtype(dtype)
        if kind.hasobject:
            arrays.append(from_bytes(data, tuple(shape), kind, ""))
        else:
            arrays.append(np.frombuffer(data, kind, math.prod(shape)).reshape(shape))
        place += size + -size % _ALIGNMENT
    return Message(header, arrays)
