"""Finished steps as JSON objects in the journal; every field is checked when it is read."""

from __future__ import annotations

import binascii
import json
import math
from typing import Any

import numpy as np

from engine import Array, InputError
from utils.metrics.base import Records
from utils.pipeline.run.pipeline import Failure
from utils.pipeline.run.run_state import Step

_KEYS = frozenset(("step", "size", "record", "good", "failures", "nan_inputs", "nan_outputs", "counts", "facts"))

MOST_SAMPLES = 1 << 31
"""Upper limit on the number of samples of a step; larger values in a journal are invalid."""


def encoded(step: Step) -> dict[str, Any]:
    """Return a step as plain data, without empty fields."""
    content: dict[str, Any] = {"size": step.size}
    count = step.size if step.good is None else len(step.good)
    if step.record is not None:
        content["record"] = _encoded_record(step.record, count)
    elif count:
        raise InputError(f"a step with {count} good samples has no record; pass what the metric's update() returned")
    if step.good is not None:
        content["good"] = [int(position) for position in step.good]
    if step.failures:
        content["failures"] = [[failure.name, failure.reason] for failure in step.failures]
    for key in ("nan_inputs", "nan_outputs"):
        if names := getattr(step, key):
            content[key] = list(names)
    if step.counts:
        content["counts"] = dict(step.counts)
    return content


def _encoded_record(record: Array | Records, count: int) -> dict[str, Any]:
    """Return an array, or the columns of records, as plain data."""
    if not isinstance(record, Records):
        return _encoded_array(record, count)
    size = record.values.shape[0] if record.values.ndim else -1
    content: dict[str, Any] = {"values": _encoded_array(record.values, count if record.samples is None else size)}
    if record.samples is not None:
        content["samples"] = _encoded_positions(np.asarray(record.samples), size, count)
    if record.units is not None:
        content["units"] = [str(unit) for unit in record.units]
        if len(record.units) != size:
            raise InputError(f"{len(record.units)} units for {size} records; name one per record")
    if record.margins is not None:
        content["margins"] = _encoded_array(record.margins, count)
    return content


def _encoded_positions(samples: Array, size: int, count: int) -> dict[str, Any]:
    """Return for each of ``size`` records the position of its sample among ``count`` good samples, as plain data."""
    content = _encoded_array(samples, size)
    if size and (samples.dtype.kind not in "iu" or samples.min() < 0 or samples.max() >= count):
        raise InputError(f"samples of records must be whole numbers from 0 to {count - 1}; pass what update() returned")
    return content


def _encoded_array(record: Array, count: int) -> dict[str, Any]:
    dtype = record.dtype
    kind = None if dtype.hasobject else dtype.str if dtype.names is None else _fields(dtype)
    if kind is None or _dtype(kind) != dtype or record.shape[:1] != (count,):
        raise InputError(
            f"a metric's record of dtype {dtype} and shape {record.shape} cannot be stored for {count} samples; "
            "return a plain array with one entry per sample, or Records"
        )
    data = binascii.b2a_base64(record.tobytes(), newline=False).decode("ascii")
    return {"dtype": kind, "shape": list(record.shape), "data": data}


def _fields(dtype: np.dtype[Any]) -> list[Any] | None:
    """Return a structured dtype as JSON, as NumPy describes it in a ``.npy`` file, padding as fields without a name."""
    try:
        return list(json.loads(json.dumps(dtype.descr)))
    except ValueError:  # fields that overlap
        return None


def _dtype(kind: str | list[Any]) -> np.dtype[Any]:
    """Return the dtype of a description: a string, or the fields of :func:`_fields`."""
    if isinstance(kind, str):
        return np.dtype(kind)
    found = np.lib.format.descr_to_dtype(_tuples(kind))
    return np.dtype(found)


def _tuples(fields: list[Any]) -> list[tuple[Any, ...]]:
    """Convert the lists of JSON to the tuples that NumPy expects."""
    return [
        (
            tuple(name) if isinstance(name, list) else name,
            kind if isinstance(kind, str) else _tuples(kind),
            *(tuple(shape) for shape in shapes),
        )
        for name, kind, *shapes in fields
    ]


def decoded(content: dict[str, Any]) -> Step:
    """Return the step of a line; raise ValueError that names an invalid field."""
    _need(set(content) <= _KEYS, f"it has the unknown key {min(set(content) - _KEYS, default='')!r}")
    size, record, good = _count(content.get("size"), "size"), content.get("record"), _good(content)
    count = size if good is None else len(good)
    stored = "missing" if record is None else "present"
    _need((record is None) == (count == 0), f"{count} samples are good, and its record is {stored}")
    failures = content.get("failures", [])
    pairs = isinstance(failures, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(text, str) for text in pair) for pair in failures
    )
    _need(pairs, "failures must be a list of names and reasons")
    counts = content.get("counts", {})
    _need(isinstance(counts, dict), "counts must be an object")
    for name, amount in counts.items():
        _need(isinstance(amount, int) and not isinstance(amount, bool), f"counts must have an integer for {name!r}")
    return Step(
        size=size,
        record=None if record is None else _decoded_record(record, count),
        good=good,
        failures=tuple(Failure(*failure) for failure in failures),
        nan_inputs=_names(content, "nan_inputs"),
        nan_outputs=_names(content, "nan_outputs"),
        counts=counts,
    )


def _need(right: bool, what: str) -> None:
    if not right:
        raise ValueError(what)


def _count(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MOST_SAMPLES:
        raise ValueError(f"{name} is {value!r}, not a number of samples")
    return value


def _good(content: dict[str, Any]) -> tuple[int, ...] | None:
    """Return the positions of the good samples: ascending integers below the size."""
    good = content.get("good")
    if good is None:
        return None
    _need(isinstance(good, list), "good must be a list of positions")
    found = [_count(position, "a position in good") for position in good]
    rising = all(a < b for a, b in zip(found, [*found[1:], content["size"]], strict=False))
    _need(rising, "good must ascend, and stay below the number of samples")
    return tuple(found)


def _names(content: dict[str, Any], key: str) -> tuple[str, ...]:
    names = content.get(key, [])
    _need(isinstance(names, list) and all(isinstance(name, str) for name in names), f"{key} must be a list of names")
    return tuple(names)


def _decoded_record(stored: Any, count: int) -> Array | Records:
    _need(isinstance(stored, dict), "record must be an object")
    if "values" not in stored:
        return _decoded_array(stored, count)
    values = _decoded_array(stored["values"], None if "samples" in stored else count)
    size = len(values)
    samples = None if "samples" not in stored else _decoded_array(stored["samples"], size)
    if samples is not None and size:
        whole = samples.dtype.kind in "iu" and samples.ndim == 1 and samples.min() >= 0 and samples.max() < count
        _need(bool(whole), f"samples of its records must be integers from 0 to {count - 1}")
    units = stored.get("units")
    if units is not None:
        texts = isinstance(units, list) and len(units) == size and all(isinstance(unit, str) for unit in units)
        _need(texts, f"units must be a list of {size} names")
    margins = None if "margins" not in stored else _decoded_array(stored["margins"], count)
    _need(margins is None or (margins.dtype == np.float64 and margins.ndim == 1), "margins must be float64, one each")
    return Records(values, samples, units, margins)


def _decoded_array(stored: Any, count: int | None) -> Array:
    """Return an array; ``count``: its expected number of rows, if known."""
    _need(
        isinstance(stored, dict) and {"dtype", "shape", "data"} == set(stored), "an array needs dtype, shape and data"
    )
    kind, shape, data = stored["dtype"], stored["shape"], stored["data"]
    _need(
        isinstance(kind, (str, list)) and isinstance(data, str) and isinstance(shape, list),
        "an array has fields of wrong types",
    )
    try:
        dtype = _dtype(kind)
    except (TypeError, ValueError, LookupError, AttributeError, SyntaxError, RecursionError) as error:
        raise ValueError("an array has an unknown dtype") from error
    _need(not dtype.hasobject and dtype.itemsize > 0, "an array has a dtype with objects or of size 0")
    sizes = [_count(size, "a size of an array") for size in shape]
    _need(bool(sizes) and len(sizes) <= 32, "an array has no dimensions, or too many")
    _need(count is None or sizes[0] == count, f"an array has {sizes[0]} rows for {count}")
    content = bytearray(binascii.a2b_base64(data))  # a bytearray: the array must be writable
    _need(math.prod(sizes) * dtype.itemsize == len(content), "an array's data does not fit its shape")
    return np.frombuffer(content, dtype).reshape(sizes)
