"""Arrays, sparse matrices and dicts of lists out of pickled files; no code that such a file names is run.

A pickle is a small program that may name any function and call it. Here the few names that Planetoid's files hold stand
for classes of this module, which only keep what they are called with; any other name is an error. Python's unpickler is
used, not that in C, which takes memory for as many objects as a file says it has.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, DataError
from tecoinfer_modelzoo.files import read_regular
from tecoinfer_modelzoo.text import shown_value


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
        whole = self.starts.dtype.kind == self.columns.dtype.kind == "i"
        lists = all(one.ndim == 1 for one in (self.data, self.columns, self.starts))
        counts = np.diff(self.starts) if whole and lists else np.zeros(0, np.int64)
        fits = lists and len(self.starts) == rows + 1 and len(self.data) == len(self.columns) == counts.sum()
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
        return _finished(_Unpickler(io.BytesIO(content), encoding="bytes").load(), len(content))
    except DataError as error:
        raise DataError(f"{file}: {error}") from error
    except _DAMAGED as error:
        raise DataError(f"{file}: is no pickled array, or is damaged; get it again") from error


_DAMAGED = (
    *(pickle.UnpicklingError, struct.error, EOFError, IndexError, KeyError, ValueError, TypeError, AttributeError),
    *(OverflowError, MemoryError),
)
"""What reading bytes that are no pickle may raise."""


class _Made:
    """What a call would have made: the arguments, and the state that was put into it."""

    state: Any = None

    def __init__(self, *given: Any) -> None:
        self.given = given


class _Array(_Made):
    """A NumPy array: version, shape, dtype, order, bytes are its state."""


class _Dtype(_Made):
    """A dtype: its name is the first argument, its byte order the second part of its state."""


class _Csr(_Made):
    """A matrix of SciPy in compressed rows; its state is a dict."""


class _Bytes(_Made):
    """Bytes that protocol 2 has as text in Latin-1."""


class _Anew(_Made):
    """``copyreg._reconstructor``: its first argument is called instead."""


class _Argument(_Made):
    """A name that only stands among arguments."""


class _Items(dict[Any, Any]):
    """A dict; its keys are numbers or texts, since nested tuples may take endless time, or the stack, to hash."""

    __repr__ = object.__repr__

    def __init__(self, *given: Any) -> None:
        super().__init__()

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(key, (int, str, bytes)):
            raise TypeError(type(key))
        super().__setitem__(key, value)


_KNOWN: dict[tuple[str, str], type[Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Argument,
    ("scipy.sparse.csr", "csr_matrix"): _Csr,
    ("scipy.sparse._csr", "csr_matrix"): _Csr,
    ("collections", "defaultdict"): _Items,
    ("_codecs", "encode"): _Bytes,
    **{(module, "bytes"): _Bytes for module in ("__builtin__", "builtins")},
    **{(module, name): _Argument for module in ("__builtin__", "builtins") for name in ("list", "object")},
    **{(module, "_reconstructor"): _Anew for module in ("copy_reg", "copyreg")},
}
"""The names that files may hold, and what stands for them."""

_MOST = 8
"""Arguments of a call."""

_CODES = b"\x80\x95(c\x93qr\x94hjKMJ\x8aGUTCB\x8eX\x8cN\x88\x89)\x85\x86\x87t]aesu."
"""The opcodes of pickled arrays: none that makes a set, takes from outside the file, or has a number as text."""


class _Unpickler(pickle._Unpickler):
    """Makes what the names of :data:`_KNOWN` stand for, of the opcodes :data:`_CODES` alone."""

    stack: list[Any]
    append: Callable[[Any], None]
    dispatch = {code: pickle._Unpickler.dispatch[code] for code in _CODES} | {
        pickle.EMPTY_DICT[0]: lambda reader: reader.append(_Items()),
        pickle.REDUCE[0]: lambda reader: reader.call(),
        pickle.NEWOBJ[0]: lambda reader: reader.call(),
        pickle.BUILD[0]: lambda reader: reader.build(),
    }

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a name.

        Raises:
            DataError: it is none of Planetoid's.
        """
        found = _KNOWN.get((module, name))
        if found is None:
            what = shown_value(f"{module}.{name}")
            raise DataError(f"names {what}, which no file of Planetoid's does; nothing was run")
        return found

    def call(self) -> None:
        """Make what a call of a name stands for."""
        given, kind = self.stack.pop(), self.stack.pop()
        if kind is _Anew:
            kind, given = given[0], ()
        if not isinstance(kind, type) or type(given) is not tuple or len(given) > _MOST:
            raise TypeError(type(kind))
        self.append(kind(*given))

    def build(self) -> None:
        """Keep the state of what was made."""
        state = self.stack.pop()
        if not isinstance(self.stack[-1], _Made):
            raise TypeError(type(state))
        self.stack[-1].state = state


def _finished(value: Any, size: int) -> Any:
    """Return plain values of what was read; ``size``: bytes of the file."""
    if isinstance(value, _Items):
        if sum(map(len, value.values())) > size:
            raise DataError("has more numbers than bytes; get it again")
        return {_plain(key): [_plain(item) for item in items] for key, items in value.items()}
    if isinstance(value, _Array):
        return _array(value)
    if not isinstance(value, _Csr):
        raise DataError("holds neither an array nor a dict of lists")
    state = {_text(key): item for key, item in value.state.items()}
    rows, columns = state["_shape"] if "_shape" in state else state["shape"]
    if not isinstance(rows, int) or not isinstance(columns, int) or rows < 0 or columns < 0:
        raise DataError(f"has a matrix of {shown_value(rows)} rows and {shown_value(columns)} columns")
    return Sparse((rows, columns), *(_array(state[key]) for key in ("data", "indices", "indptr")))


def _plain(value: Any) -> int:
    if not isinstance(value, int):
        raise DataError(f"has {shown_value(value)} where a node's number should be")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, (str, bytes)):
        raise TypeError(type(value))
    return value if isinstance(value, str) else value.decode("ascii")


def _array(made: Any) -> Array:
    """Return an array of its state."""
    _, shape, dtype, by_columns, content = made.state
    kind, order = _text(dtype.given[0]), _text(dtype.state[1]) if dtype.state else "="
    if kind[0] not in "fiub" or not kind[1:].isdigit() or order not in "<>=|":
        raise DataError(f"has an array of dtype {shown_value(order + kind)}; numbers are read")
    if isinstance(content, _Bytes):
        content = content.given[0].encode("latin-1") if content.given else b""
    flat = np.frombuffer(content, np.dtype(("" if order == "|" else order) + kind))
    whole = len(shape) <= 2 and all(isinstance(size, int) for size in shape)
    if not whole or len(flat) != prod(shape):
        raise DataError(f"has an array of {len(flat)} numbers where its shape is {shown_value(shape)}")
    found = flat.reshape(tuple(shape), order="F" if by_columns else "C")
    return found.astype(found.dtype.newbyteorder("="))
