"""Arrays, sparse matrices and dicts of lists out of pickled files, by reading their bytes: nothing of theirs is run.

A pickle is a small program whose ``GLOBAL`` and ``REDUCE`` may name and call any function. Here the names are text, and
what a call would have made is written down for the few that Planetoid's files hold; any other name is an error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, DataError, read_regular


class Sparse(NamedTuple):
    """A matrix in rows: row i has ``data[starts[i]:starts[i + 1]]`` in the columns ``columns[...]`` of the same."""

    shape: tuple[int, int]
    data: Array
    columns: Array
    starts: Array

    def dense(self, most: int) -> Array:
        """Return it as float32, entries of one place added.

        Raises:
            DataError: it would take more than ``most`` bytes, or does not fit together.
        """
        rows, columns = self.shape
        if 4 * rows * columns > most:
            raise DataError(
                f"{rows} rows of {columns} features take {4 * rows * columns / 1e9:.1f} GB, and at most "
                f"{most / 1e9:.1f} GB are read; keep fewer columns, and save them as an .npz"
            )
        counts = np.diff(self.starts)
        fits = len(self.starts) == rows + 1 and len(self.data) == len(self.columns) == counts.sum()
        if not fits or (counts < 0).any() or (self.columns < 0).any() or (self.columns >= columns).any():
            raise DataError("the parts of a sparse matrix do not fit together")
        found = np.zeros(self.shape, np.float32)
        np.add.at(found, (np.repeat(np.arange(rows), counts), self.columns), self.data.astype(np.float32))
        return found


def read_pickled(file: Path) -> Any:
    """Return what a pickled file holds: an array, a :class:`Sparse`, or a dict of lists of numbers.

    Protocols 2 to 4 are read, of Python 2 and 3.

    Raises:
        DataError: the file cannot be read, is damaged, or holds anything else.
    """
    try:
        content = read_regular(file)
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error.strerror or error})") from error
    try:
        return _finished(_Reader(content).read())
    except DataError as error:
        raise DataError(f"{file}: {error}") from error
    except _DAMAGED as error:
        raise DataError(f"{file}: is no pickled array, or is damaged; get it again") from error


_DAMAGED = (struct.error, IndexError, KeyError, ValueError, TypeError, AttributeError, OverflowError, MemoryError)
"""What reading bytes that are no pickle may raise."""


@dataclass
class _Name:
    text: str


@dataclass
class _Made:
    """What a call would have made: its kind, the arguments, and the state that was put into it."""

    kind: str
    given: tuple[Any, ...] = ()
    state: Any = None


@dataclass
class _Mark:
    """Where the arguments of an opcode begin."""


_KINDS = {
    "numpy.core.multiarray _reconstruct": "array",
    "numpy._core.multiarray _reconstruct": "array",
    "numpy dtype": "dtype",
    "collections defaultdict": "dict",
    "_codecs encode": "bytes",
    "__builtin__ bytes": "bytes",
    "builtins bytes": "bytes",
    "scipy.sparse.csr csr_matrix": "sparse",
    "scipy.sparse._csr csr_matrix": "sparse",
}
"""The names whose calls are known, and what they make."""

_HARMLESS = {"numpy ndarray", "__builtin__ list", "builtins list", "__builtin__ object", "builtins object"}
"""Names that only stand among arguments."""


def _called(name: Any, given: Any) -> Any:
    """Return what a call makes."""
    text = name.text if isinstance(name, _Name) else repr(name)
    if text in ("copy_reg _reconstructor", "copyreg _reconstructor"):
        return _called(given[0], ())
    kind = _KINDS.get(text)
    if kind is None:
        raise DataError(f"calls {text.replace(' ', '.')!r}, which no file of Planetoid's does; it was not called")
    if kind == "dict":
        return {}
    if kind == "bytes":
        return str(given[0]).encode("latin-1") if given else b""
    return _Made(kind, tuple(given))


def _finished(value: Any) -> Any:
    """Return plain values of what was read."""
    if isinstance(value, dict):
        return {_plain(key): [_plain(item) for item in items] for key, items in value.items()}
    if not isinstance(value, _Made):
        raise DataError("holds neither an array nor a dict of lists")
    if value.kind == "array":
        return _array(value)
    if value.kind != "sparse":
        raise DataError(f"holds a {value.kind} by itself")
    state = {_text(key): item for key, item in value.state.items()}
    rows, columns = state["_shape"] if "_shape" in state else state["shape"]
    return Sparse((int(rows), int(columns)), *(_array(state[key]) for key in ("data", "indices", "indptr")))


def _plain(value: Any) -> int:
    if not isinstance(value, int):
        raise DataError(f"has {value!r} where a node's number should be")
    return value


def _text(value: Any) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else str(value)


def _array(made: Any) -> Array:
    """Return an array of its state: version, shape, dtype, order, bytes."""
    _, shape, dtype, by_columns, content = made.state
    kind = _text(dtype.given[0])
    if kind[0] not in "fiub" or not kind[1:].isdigit():
        raise DataError(f"has an array of dtype {kind!r}; numbers are read")
    order = _text(dtype.state[1]) if dtype.state else "="
    flat = np.frombuffer(content, np.dtype(("" if order == "|" else order) + kind))
    if len(flat) != prod(shape):
        raise DataError(f"has an array of {len(flat)} numbers where its shape is {tuple(shape)}")
    found = flat.reshape(tuple(shape), order="F" if by_columns else "C")
    return found.astype(found.dtype.newbyteorder("="))


@dataclass
class _Reader:
    """Goes through the opcodes with a stack."""

    content: bytes
    place: int = 0
    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def read(self) -> Any:
        while True:
            code = self.take(1)
            if code == b".":
                return self.stack.pop()
            action = _CODES.get(code)
            if action is None:
                raise DataError(f"has opcode {code!r}, which no pickled array has")
            action(self)

    def take(self, count: int) -> bytes:
        part = self.content[self.place : self.place + count]
        if len(part) < count:
            raise DataError("ends too early; get it again")
        self.place += count
        return part

    def number(self, form: str) -> int:
        found: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return found

    def line(self) -> str:
        end = self.content.index(b"\n", self.place)
        text = self.content[self.place : end].decode("ascii")
        self.place = end + 1
        return text

    def since_mark(self) -> list[Any]:
        place = max(i for i, value in enumerate(self.stack) if isinstance(value, _Mark))
        found = self.stack[place + 1 :]
        del self.stack[place:]
        return found

    def last(self, count: int) -> tuple[Any, ...]:
        found = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        return found

    def named(self, module: str, name: str) -> None:
        text = f"{module} {name}"
        if text not in _KINDS and text not in _HARMLESS and not text.endswith(" _reconstructor"):
            raise DataError(f"names {module}.{name}, which no file of Planetoid's does; nothing was run")
        self.stack.append(_Name(text))

    def build(self) -> None:
        state = self.stack.pop()
        self.stack[-1].state = state

    def items(self, given: list[Any]) -> None:
        self.stack[-1].update(zip(given[::2], given[1::2], strict=True))

    def call(self) -> None:
        name, given = self.last(2)
        self.stack.append(_called(name, given))

    def long(self) -> None:
        self.stack.append(int.from_bytes(self.take(self.number("<B")), "little", signed=True))

    def append(self) -> None:
        value = self.stack.pop()
        self.stack[-1].append(value)

    def keep(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    def string(self, length: str, text: bool = False) -> None:
        found = self.take(self.number(length))
        self.stack.append(found.decode("utf-8") if text else found)


def _push(make: Callable[[_Reader], Any]) -> Callable[[_Reader], None]:
    return lambda reader: reader.stack.append(make(reader))


_CODES: dict[bytes, Callable[[_Reader], Any]] = {
    b"\x80": lambda r: r.take(1),  # protocol
    b"\x95": lambda r: r.take(8),  # frame
    b"(": _push(lambda r: _Mark()),
    b"c": lambda r: r.named(r.line(), r.line()),
    b"\x93": lambda r: r.named(*map(_text, r.last(2))),
    b"q": lambda r: r.keep(r.number("<B")),
    b"r": lambda r: r.keep(r.number("<I")),
    b"\x94": lambda r: r.keep(len(r.memo)),
    b"h": _push(lambda r: r.memo[r.number("<B")]),
    b"j": _push(lambda r: r.memo[r.number("<I")]),
    b"K": _push(lambda r: r.number("<B")),
    b"M": _push(lambda r: r.number("<H")),
    b"J": _push(lambda r: r.number("<i")),
    b"\x8a": _Reader.long,
    b"G": _push(lambda r: struct.unpack(">d", r.take(8))[0]),
    b"U": lambda r: r.string("<B"),
    b"T": lambda r: r.string("<I"),
    b"C": lambda r: r.string("<B"),
    b"B": lambda r: r.string("<I"),
    b"\x8e": lambda r: r.string("<Q"),
    b"X": lambda r: r.string("<I", text=True),
    b"\x8c": lambda r: r.string("<B", text=True),
    b"N": _push(lambda r: None),
    b"\x88": _push(lambda r: True),
    b"\x89": _push(lambda r: False),
    b")": _push(lambda r: ()),
    b"\x85": _push(lambda r: r.last(1)),
    b"\x86": _push(lambda r: r.last(2)),
    b"\x87": _push(lambda r: r.last(3)),
    b"t": _push(lambda r: tuple(r.since_mark())),
    b"]": _push(lambda r: []),
    b"a": _Reader.append,
    b"e": lambda r: (lambda given: r.stack[-1].extend(given))(r.since_mark()),
    b"}": _push(lambda r: {}),
    b"s": lambda r: r.items(list(r.last(2))),
    b"u": lambda r: r.items(r.since_mark()),
    b"R": _Reader.call,
    b"\x81": _Reader.call,
    b"b": _Reader.build,
}
"""What each opcode does; a test goes through the files of several protocols."""
