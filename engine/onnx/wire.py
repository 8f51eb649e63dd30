"""Fields of a serialized protobuf message, located without parsing their content.

Importing ``onnx`` takes longer than opening a small model, and a model may contain gigabytes of weights. Encoding:
https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

_HEAD = 24  # bytes that contain a field's number and its length


class Source:
    """Bytes of a message."""

    def read(self, start: int, count: int) -> bytes:
        """Return bytes; fewer at the end."""
        raise NotImplementedError


class FileSource(Source):
    """Open file by its descriptor; its position is not changed."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def read(self, start: int, count: int) -> bytes:
        """Return bytes; fewer at the end of the file."""
        return os.pread(self._handle, count, start)


class BytesSource(Source):
    """Message in memory."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self, start: int, count: int) -> bytes:
        """Return bytes; fewer at the end of the message."""
        return self.content[start : start + count]


class Field(NamedTuple):
    """Field of a message: number, value if it is an integer, else start and end of its content."""

    number: int
    value: int
    start: int
    end: int
    head: int  # position of the field itself
    after: int  # position behind it


def fields(source: Source, start: int, end: int) -> Iterator[Field]:
    """Yield the fields of a message, up to the first invalid one."""
    while start < end:
        head = source.read(start, _HEAD)
        tag, used = varint(head, 0)
        wire, value, first, last = tag & 7, 0, 0, 0
        if wire == 0:
            value, used = varint(head, used)
        elif wire == 2:
            length, used = varint(head, used)
            first = start + used
            last = first + length
        elif wire in (1, 5):
            used += 8 if wire == 1 else 4
        if not used or wire not in (0, 1, 2, 5) or last > end:
            return
        after = last or start + used
        yield Field(tag >> 3, value, first, last, start, after)
        start = after


def varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a number and the position behind it; position 0 if there is none."""
    value = shift = 0
    for index in range(place, min(len(data), place + 10)):
        byte = data[index]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, index + 1
        shift += 7
    return 0, 0
