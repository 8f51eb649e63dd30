"""Fields of a protobuf message, found without the library that decodes it: each is skipped by its length.

Importing ``onnx`` takes longer than opening a small model, and a model may hold gigabytes of weights. The encoding is
that of https://protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

_HEAD = 24
"""Bytes that hold a field's number and its length."""


class Source:
    """Where a message lies."""

    def read(self, start: int, count: int) -> bytes:
        """Return some bytes, fewer where it ends."""
        raise NotImplementedError


class FileSource(Source):
    """A file.

    Args:
        handle: of the open file, whose position stays as it is.
    """

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def read(self, start: int, count: int) -> bytes:
        """Return some bytes, fewer where the file ends."""
        return os.pread(self._handle, count, start)


class BytesSource(Source):
    """A message in memory."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read(self, start: int, count: int) -> bytes:
        """Return some bytes, fewer where the message ends."""
        return self.content[start : start + count]


class Field(NamedTuple):
    """A field of a message: its number, its value where that is a whole number, and else where its content lies."""

    number: int
    value: int
    start: int
    end: int


def fields(source: Source, start: int, end: int) -> Iterator[Field]:
    """Yield the fields of a message, up to the first that is damaged."""
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
        yield Field(tag >> 3, value, first, last)
        start = last or start + used


def varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a number and the place behind it, 0 where there is none."""
    value = shift = 0
    for index in range(place, min(len(data), place + 10)):
        byte = data[index]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, index + 1
        shift += 7
    return 0, 0
