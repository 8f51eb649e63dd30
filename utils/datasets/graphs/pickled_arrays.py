"""Arrays, sparse matrices and dicts of lists from pickled files, without running code that a file names.

A pickle is a small program that may name any function and call it. Here the few names in Planetoid's files are mapped
to classes of this module, which only store their arguments; any other name is an error. Python's unpickler is used and
not the C one, which allocates memory for as many objects as a file declares.
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
    """A matrix in compressed rows: row i is ``data[starts[i]:starts[i + 1]]``, and ``columns`` has its indices."""

    shape: tuple[int, int]
    data: Array
    columns: Array
    starts: Array

    def dense(self, most: int) -> Array:
        """Return it as float32; duplicate entries are added.

        Raises DataError if it would take more than ``most`` bytes, or its parts do not match.
        """
        rows, columns = self.shape
        if 4 * rows * columns > most:
            raise DataError(
                f"{rows} rows of {columns} features take {4 * rows * columns / 1e9:.1f} GB, the maximum is "
                f"{most / 1e9:.1f} GB; keep fewer columns, and save them as an .npz"
            )
        whole = self.starts.dtype.kind == self.columns.dtype.kind == "i"
        lists = all(one.ndim == 1 for one in (self.data, self.columns, self.starts))
        counts = np.diff(self.starts) if whole and lists else np.zeros(0, np.int64)
        fits = lists and len(self.starts) == rows + 1 and len(self.data) == len(self.columns) == counts.sum()
        if not fits or (counts < 0).any() or (self.columns < 0).any() or (self.columns >= columns).any():
            raise DataError("the parts of a sparse matrix do not match")
        found = np.zeros(self.shape, np.float32)
        np.add.at(found, (np.repeat(np.arange(rows), counts), self.columns), self.data.astype(np.float32))
        return found


def read_pickled(file: Path) -> Any:
    """Return the content of a pickled file: an array, a :class:`Sparse`, or a dict of lists of numbers.

    Protocols 2 to 4 are read, of Python 2 and 3. Raises DataError if the file cannot be read, is damaged, or has other
    content.
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
        raise DataError(f"{file}: not a pickled array, or damaged; get it again") from error


_DAMAGED = (
    *(pickle.UnpicklingError, struct.error, EOFError, IndexError, KeyError, ValueError, TypeError, AttributeError),
    *(OverflowError, MemoryError),
)
"""Exceptions that reading an invalid pickle may raise."""


class _Made:
    """The arguments and the state of an object that is not created."""

    state: Any = None

    def __init__(self, *given: Any) -> None:
        self.given = given


class _Array(_Made):
    """A NumPy array; its state is version, shape, dtype, order, bytes."""


class _Dtype(_Made):
    """A dtype: the first argument is its name, the second part of the state its byte order."""


class _Csr(_Made):
    """A matrix of SciPy in compressed rows; its state is a dict."""


class _Bytes(_Made):
    """Bytes that protocol 2 stores as text in Latin-1."""


class _Anew(_Made):
    """``copyreg._reconstructor``: its first argument is called instead."""


class _Argument(_Made):
    """A name that only occurs as an argument."""


class _Items(dict[Any, Any]):
    """A dict with numbers or texts as keys; hashing nested tuples may take very long or overflow the stack."""

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
"""The allowed names, and the classes they are mapped to."""

_MOST = 8
"""Maximum arguments of a call."""

_CODES = b"\x80\x95(c\x93qr\x94hjKMJ\x8aGUTCB\x8eX\x8cN\x88\x89)\x85\x86\x87t]aesu."
"""Opcodes of pickled arrays; no opcode for sets, for content outside the file, or for numbers as text."""


class _Unpickler(pickle._Unpickler):
    """Unpickler limited to the names in :data:`_KNOWN` and the opcodes in :data:`_CODES`."""

    stack: list[Any]
    append: Callable[[Any], None]
    dispatch = {code: pickle._Unpickler.dispatch[code] for code in _CODES} | {
        pickle.EMPTY_DICT[0]: lambda reader: reader.append(_Items()),
        pickle.REDUCE[0]: lambda reader: reader.call(),
        pickle.NEWOBJ[0]: lambda reader: reader.call(),
        pickle.BUILD[0]: lambda reader: reader.build(),
    }

    def find_class(self, module: str, name: str) -> Any:
        """Return the class for a name; raise DataError if it is not in :data:`_KNOWN`."""
        found = _KNOWN.get((module, name))
        if found is None:
            what = shown_value(f"{module}.{name}")
            raise DataError(f"names {what}, which Planetoid's files do not contain; nothing was run")
        return found

    def call(self) -> None:
        """Replace a call by an object of the class its name is mapped to."""
        given, kind = self.stack.pop(), self.stack.pop()
        if kind is _Anew:
            kind, given = given[0], ()
        if not isinstance(kind, type) or type(given) is not tuple or len(given) > _MOST:
            raise TypeError(type(kind))
        self.append(kind(*given))

    def build(self) -> None:
        """Store the state of an object."""
        state = self.stack.pop()
        if not isinstance(self.stack[-1], _Made):
            raise TypeError(type(state))
        self.stack[-1].state = state


def _finished(value: Any, size: int) -> Any:
    """Return plain values of the unpickled objects; ``size`` is the file size in bytes."""
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
        raise DataError(f"has {shown_value(value)} where a node's number is expected")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, (str, bytes)):
        raise TypeError(type(value))
    return value if isinstance(value, str) else value.decode("ascii")


def _array(made: Any) -> Array:
    _, shape, dtype, by_columns, content = made.state
    kind, order = _text(dtype.given[0]), _text(dtype.state[1]) if dtype.state else "="
    if kind[0] not in "fiub" or not kind[1:].isdigit() or order not in "<>=|":
        raise DataError(f"has an array of dtype {shown_value(order + kind)}; expected numbers")
    if isinstance(content, _Bytes):
        content = content.given[0].encode("latin-1") if content.given else b""
    flat = np.frombuffer(content, np.dtype(("" if order == "|" else order) + kind))
    whole = len(shape) <= 2 and all(isinstance(size, int) for size in shape)
    if not whole or len(flat) != prod(shape):
        raise DataError(f"has an array of {len(flat)} numbers, but its shape is {shown_value(shape)}")
    found = flat.reshape(tuple(shape), order="F" if by_columns else "C")
    return found.astype(found.dtype.newbyteorder("="))
