"""Data types of the Open Inference Protocol, and tensors as JSON and as bytes.

Binary tensors are little-endian and row-major. Elements of ``BYTES`` are texts here: in binary form each has its length
in bytes before it, as a 32-bit little-endian number.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from engine import Array
from serve.errors import ServeError, invalid

DATATYPES = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32),
    "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype(np.int16),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16),
    "FP32": np.dtype(np.float32),
    "FP64": np.dtype(np.float64),
    "BYTES": np.dtype(np.object_),
}
"""Data types and the dtypes of their arrays."""

_NAMES = {dtype: name for name, dtype in DATATYPES.items()}
_LENGTH = struct.Struct("<I")
MOST_DIMENSIONS = 32
"""Most dimensions of a tensor, as of NumPy before version 2."""


def datatype_of(dtype: np.dtype[Any]) -> str:
    """Return the data type of a dtype. Raises ServeError if the protocol has none."""
    found = _NAMES.get(dtype.newbyteorder("="))
    if found is None:
        raise ServeError("unsupported", f"the protocol has no data type for {dtype}; use another --dtype")
    return found


def dtype_of(datatype: object, name: str) -> np.dtype[Any]:
    """Return the dtype of a data type of tensor ``name``. Raises ServeError for an unknown one."""
    found = DATATYPES.get(datatype) if isinstance(datatype, str) else None
    if found is None:
        raise invalid(f"input {name!r}: datatype {_short(datatype)} must be one of: {', '.join(DATATYPES)}")
    return found


def shape_of(shape: object, name: str) -> tuple[int, ...]:
    """Return a shape from JSON. Raises ServeError if it is not a list of whole numbers."""
    fits = isinstance(shape, (list, tuple)) and len(shape) <= MOST_DIMENSIONS
    sizes = list(shape) if fits else []  # type: ignore[call-overload]
    if not fits or not all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 63 for n in sizes):
        raise invalid(
            f"input {name!r}: shape {_short(shape)} must be a list of at most {MOST_DIMENSIONS} whole numbers"
        )
    return tuple(sizes)


def check_bytes(shape: Sequence[int], dtype: np.dtype[Any], most: int, name: str) -> None:
    """Raise ServeError if a tensor of this shape would have more than ``most`` bytes; texts count as 4 bytes each."""
    size = math.prod(shape) * (_LENGTH.size if dtype.hasobject else dtype.itemsize)
    if size > most:
        raise ServeError(
            "large", f"input {name!r} of shape {list(shape)} has {size} bytes, and at most {most} are taken"
        )


def from_bytes(data: bytes | memoryview, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> Array:
    """Return the tensor of some bytes; it shares their memory unless it holds texts."""
    if dtype.hasobject:
        return _texts(data, shape, name)
    expected = math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise invalid(
            f"input {name!r}: {len(data)} bytes, and shape {list(shape)} of {datatype_of(dtype)} has {expected}"
        )
    found = _shaped(np.frombuffer(data, dtype.newbyteorder("<")), shape, name)
    if dtype.kind == "b" and found.size and int(found.view(np.uint8).max()) > 1:
        raise invalid(f"input {name!r}: bytes of BOOL must be 0 or 1")
    return found


def to_bytes(array: Array) -> bytes:
    """Return a tensor as bytes."""
    if array.dtype.hasobject:
        encoded = [_encoded(one) for one in array.ravel().tolist()]
        return b"".join(part for one in encoded for part in (_LENGTH.pack(len(one)), one))
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()


def from_json(data: object, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> Array:
    """Return the tensor of JSON values, flat or nested.

    Raises ServeError if their number is not that of the shape, or a value does not fit the data type.
    """
    datatype = datatype_of(dtype)
    if not isinstance(data, list):
        raise invalid(f"input {name!r}: data must be a list")
    if dtype.hasobject:
        values = _flat_texts(data, name)
    else:
        try:
            values = np.array(data)
        except (ValueError, OverflowError) as error:
            raise invalid(f"input {name!r}: data is not a rectangular list of numbers") from error
        if dtype.kind in "iu" and values.dtype.kind in "fO":
            values = _large_integers(data, values)
        values = _cast(values, dtype, datatype, name)
    if values.size != math.prod(shape):
        raise invalid(f"input {name!r}: data has {values.size} values, and shape {list(shape)} has {math.prod(shape)}")
    return _shaped(values, shape, name)


def _large_integers(data: list[Any], values: Array) -> Array:
    """Return integers beyond INT64, which NumPy reads as real numbers or objects; other values as they are."""
    exact = np.array(data, np.object_)
    if all(type(one) is int and 0 <= one < 1 << 64 for one in exact.ravel()):
        return exact.astype(np.uint64)
    return values


def _shaped(values: Array, shape: tuple[int, ...], name: str) -> Array:
    try:
        return values.reshape(shape)
    except ValueError as error:  # a dimension of 0 beside one that is too large for NumPy
        raise invalid(f"input {name!r}: shape {list(shape)} cannot be used") from error


def _cast(values: Array, dtype: np.dtype[Any], datatype: str, name: str) -> Array:
    allowed = {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}[dtype.kind]
    if values.size == 0:
        return values.astype(dtype)
    if values.dtype.kind not in allowed:
        raise invalid(f"input {name!r}: data holds values that are not {datatype}")
    with np.errstate(over="ignore"):
        cast: Array = values.astype(dtype)
    if dtype.kind in "iu" and not np.array_equal(cast, values):
        raise invalid(f"input {name!r}: data holds values beyond {datatype}")
    if dtype.kind == "f" and bool(np.isinf(cast).any()) and not np.array_equal(np.isinf(cast), np.isinf(values)):
        raise invalid(f"input {name!r}: data holds values beyond {datatype}")
    return cast


def to_json(array: Array, name: str) -> list[Any]:
    """Return the values of a tensor, flat, for JSON. Raises ServeError if one of them is NaN or infinite."""
    if array.dtype.kind == "f" and not bool(np.isfinite(array).all()):
        raise invalid(f"output {name!r} holds NaN or infinities, which JSON cannot represent; ask for binary data")
    values: list[Any] = array.ravel().tolist()
    return [one.decode("utf-8", "replace") if isinstance(one, bytes) else one for one in values]


def has_nan(array: Array) -> bool:
    """Return whether a tensor of floats holds NaN."""
    return array.dtype.kind == "f" and array.size > 0 and bool(np.isnan(np.min(array)))


def _flat_texts(data: list[Any], name: str) -> Array:
    flat: list[str] = []
    waiting = [iter(data)]
    while waiting:
        one = next(waiting[-1], waiting)
        if one is waiting:
            waiting.pop()
        elif isinstance(one, list):
            waiting.append(iter(one))
        elif isinstance(one, str):
            flat.append(_encodable(one, name))
        else:
            raise invalid(f"input {name!r}: data of BYTES must be texts")
    found = np.empty(len(flat), np.object_)
    found[:] = flat
    return found


def _encodable(one: str, name: str) -> str:
    try:
        one.encode()
    except UnicodeEncodeError as error:
        raise invalid(f"input {name!r}: a text has half of a surrogate pair") from error
    return one


def _texts(data: bytes | memoryview, shape: tuple[int, ...], name: str) -> Array:
    count, place, found = math.prod(shape), 0, list[str]()
    view = memoryview(data)
    while place < len(view):
        if place + _LENGTH.size > len(view) or len(found) == count:
            break
        (size,) = _LENGTH.unpack_from(view, place)
        end = place + _LENGTH.size + size
        if end > len(view):
            break
        try:
            found.append(str(view[place + _LENGTH.size : end], "utf-8"))
        except UnicodeDecodeError as error:
            raise invalid(f"input {name!r}: element {len(found)} is not UTF-8 text, as this model takes") from error
        place = end
    if place != len(view) or len(found) != count:
        raise invalid(f"input {name!r}: its bytes are not {count} elements, each after its length in 4 bytes")
    texts = np.empty(count, np.object_)
    texts[:] = found
    return _shaped(texts, shape, name)


def _encoded(one: object) -> bytes:
    return one if isinstance(one, bytes) else str(one).encode("utf-8", "replace")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
