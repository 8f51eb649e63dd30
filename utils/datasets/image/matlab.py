"""MATLAB files of version 5, limited to the types in ImageNet's development kit: numbers, text and structures.

The format is MathWorks' "MAT-File Format" (version 5): a header of 128 bytes, then elements, each a tag (type and
number of bytes) and data padded to a multiple of 8 bytes. An element may be deflated; an array is an element that
contains others: flags, dimensions, name, values.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from engine import DataError

_HEADER = 128
_MATRIX, _DEFLATED = 14, 15
_DTYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_ENCODINGS = {1: "latin-1", 2: "utf-8", 4: "utf-16", 16: "utf-8", 17: "utf-16", 18: "utf-32"}
_CELL, _STRUCTURE, _OBJECT, _TEXT = 1, 2, 3, 4
_DEEPEST = 16
"""Maximum depth of nested arrays."""

_LARGEST = 1 << 28
"""Maximum bytes of one inflated element."""


def read_matlab(data: bytes, name: str) -> dict[str, Any]:
    """Return the variables of a file by name; ``name`` is that of the file in errors.

    A structure array is a list of dictionaries, text is ``str``, numbers are a flat list in MATLAB's order (the first
    index runs fastest), a cell array is a list, other types are ``None``. Raises DataError if the content is not a
    MATLAB file of version 5, or is damaged.
    """
    order = {b"IM": "<", b"MI": ">"}.get(data[_HEADER - 2 : _HEADER])
    if order is None:
        raise DataError(f"{name}: not a MATLAB file of version 5; get it again")
    try:
        return dict(_Reader(order).variable(kind, body) for kind, body in _Reader(order).elements(data[_HEADER:]))
    except (struct.error, ValueError, LookupError, zlib.error, RecursionError) as error:
        raise DataError(f"{name}: damaged MATLAB file ({error}); get it again") from error


class _Reader:
    """Reads elements of one byte order."""

    def __init__(self, order: str) -> None:
        self._order = order

    def elements(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield type and content of every element, inflated if necessary."""
        place = 0
        while place + 8 <= len(data):
            (kind,) = struct.unpack_from(f"{self._order}I", data, place)
            if kind >> 16:  # a small element: two 16-bit numbers and four bytes
                yield kind & 0xFFFF, data[place + 4 : place + 4 + min(kind >> 16, 4)]
                place += 8
                continue
            (size,) = struct.unpack_from(f"{self._order}I", data, place + 4)
            body = data[place + 8 : place + 8 + size]
            if len(body) < size:
                raise ValueError("it ends early")
            if kind == _DEFLATED:
                yield from self.elements(zlib.decompressobj().decompress(body, _LARGEST))
                place += 8 + size
            else:
                yield kind, body
                place += 8 + size + -size % 8

    def variable(self, kind: int, body: bytes, depth: int = 0) -> tuple[str, Any]:
        """Return name and value of an array."""
        if kind != _MATRIX:
            raise ValueError(f"element of type {kind}, expected an array")
        if not body:
            return "", None
        if depth > _DEEPEST:
            raise ValueError(f"arrays are nested more than {_DEEPEST} deep")
        parts = list(self.elements(body))
        flags, count, name = self._numbers(*parts[0]), int(np.prod(self._numbers(*parts[1]))), parts[2][1].decode()
        array, values = int(flags[0]) & 0xFF, parts[3:]
        if array == _TEXT:
            return name, values[0][1].decode(_encoding(values[0][0], self._order)) if values else ""
        if array == _CELL:
            return name, [self.variable(*part, depth + 1)[1] for part in values[:count]]
        if array == _STRUCTURE:
            return name, self._structures(values, count, depth)
        return name, self._numbers(*values[0]).tolist() if array > _TEXT and values else None

    def _structures(self, parts: list[tuple[int, bytes]], count: int, depth: int) -> list[dict[str, Any]]:
        width, text = int(self._numbers(*parts[0])[0]), parts[1][1]
        fields = [text[i : i + width].split(b"\0")[0].decode() for i in range(0, len(text), width)]
        values = [self.variable(*part, depth + 1)[1] for part in parts[2:]]
        if len(values) != count * len(fields):
            raise ValueError(f"{len(values)} values for {count} structures of {len(fields)} fields")
        return [
            dict(zip(fields, values[i : i + len(fields)], strict=True)) for i in range(0, len(values), len(fields) or 1)
        ]

    def _numbers(self, kind: int, body: bytes) -> Any:
        return np.frombuffer(body, f"{self._order}{_DTYPES[kind]}")


def _encoding(kind: int, order: str) -> str:
    wide = {"<": "-le", ">": "-be"}[order]
    return _ENCODINGS[kind] + (wide if _ENCODINGS[kind] in ("utf-16", "utf-32") else "")
