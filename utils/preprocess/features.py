"""Rows of named values as model inputs, by the features stored in the model's metadata under ``features``.

The key holds a JSON object: ``{"fields": [...]}``, one object per field, in the order of the columns. A field has

- ``name``: of the value in a row. ``input``: the model's input with its column.
- ``kind``:

  - ``vocabulary``: the value ``values[i]`` has row ``offset + 1 + i``; all other and missing values have row
    ``offset``.
  - ``hashed``: row ``offset + crc32("NAME=VALUE" in UTF-8) % size``; a missing value is hashed as an empty string.
    With ``"hash": "hex"``: row ``offset + VALUE % size`` for a hexadecimal number, as in Criteo's categories; a missing
    one is 0.
  - ``number``: one float32 column. ``"transform": "log1p"`` computes ``log(1 + max(x, 0))``, as is usual for Criteo's
    counts; otherwise it is ``(x - mean) / std`` (default 0 and 1). A missing value gives 0.
  - ``multi``: float32 columns, one per entry of ``values``: the mean of the one-hot rows of the known ones among a
    row's values (separated by ``separator``, ``|`` by default); all 0 if none is known.

- ``step``: round a number down to a multiple of this (ages in fives); ``letters``: keep this many first letters. For
  ``vocabulary`` and ``hashed``.

Fields of one input are its columns from left to right: int64 N x F for ``vocabulary`` and ``hashed``, float32 N x D for
``number`` and ``multi``. Further keys of the object belong to the training, such as the rows it used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol
from zlib import crc32

import numpy as np

from engine import Array, DataError, ModelError, TensorSpec
from tecoinfer_modelzoo.json_values import is_number, plain_json

NOTE = "features"
"""Key of the metadata."""

NUMBERED, MEASURED = ("vocabulary", "hashed"), ("number", "multi")
"""Kinds of fields that become row numbers of a table, and kinds that become floats."""

HASHES = ("crc32", "hex")
"""Hash functions from a value to a row number."""

MOST_ROWS = 1 << 31
"""Maximum number of rows of a table."""

Row = Mapping[str, str]
"""Values of a sample by name; missing or empty strings are missing values."""


class _Stored(Protocol):
    """The part of :class:`utils.tasks.model.Model` used here."""

    @property
    def ckpt(self) -> Path: ...
    @property
    def metadata(self) -> Mapping[str, str]: ...
    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...


@dataclass(frozen=True)
class Field:
    """A field; see the module's documentation."""

    name: str
    input: str
    kind: str
    values: tuple[str, ...] = ()
    size: int = 0
    offset: int = 0
    separator: str = "|"
    transform: str = ""
    mean: float = 0.0
    std: float = 1.0
    step: float = 0.0
    letters: int = 0
    hash: str = "crc32"

    @property
    def rows(self) -> int:
        """Rows that the field needs in a table; 0 for floats."""
        return len(self.values) + 1 if self.kind == "vocabulary" else self.size

    @property
    def width(self) -> int:
        """Number of columns of its input."""
        return len(self.values) if self.kind == "multi" else 1

    @cached_property
    def places(self) -> dict[str, int]:
        """Index of each of ``values``."""
        return {value: place for place, value in enumerate(self.values)}

    def column(self, rows: Sequence[Row]) -> Array:
        """Return the field's column: int64 N, or float32 N x :attr:`width`; raise DataError if a value is invalid."""
        values = [row.get(self.name, "") for row in rows]
        if self.kind == "vocabulary":
            get = self.places.get
            return np.array([get(self.key(value), -1) + 1 + self.offset for value in values], np.int64)
        if self.kind == "hashed":
            number_of = hashed if self.hash == "crc32" else hexadecimal
            return np.array([self.offset + number_of(self.name, self.key(v), self.size) for v in values], np.int64)
        if self.kind == "multi":
            return self._several(values)
        return np.array([[self._number(value)] for value in values], np.float32).reshape(-1, 1)

    def key(self, value: str) -> str:
        """Return the part of a value that is looked up: its step, its first letters, or all of it."""
        if self.step and value:
            return f"{math.floor(number(self.name, value) / self.step) * self.step:.15g}"
        return value[: self.letters] if self.letters else value

    def _several(self, values: Sequence[str]) -> Array:
        found = np.zeros((len(values), self.width), np.float32)
        for row, value in zip(found, values, strict=True):
            known = [self.places[one] for one in value.split(self.separator) if one in self.places]
            row[known] = 1 / len(known) if known else 0
        return found

    def _number(self, value: str) -> float:
        if value == "":
            return 0.0
        found = number(self.name, value)
        return math.log1p(max(found, 0.0)) if self.transform == "log1p" else (found - self.mean) / self.std


@lru_cache(maxsize=1 << 18)
def hashed(name: str, value: str, size: int) -> int:
    """Return ``crc32("NAME=VALUE") % size``."""
    return crc32(f"{name}={value}".encode("utf-8", "surrogatepass")) % size


def hexadecimal(name: str, value: str, size: int) -> int:
    """Return a hexadecimal number modulo ``size``, 0 for an empty string; raise DataError for another value."""
    try:
        if not set("_-").isdisjoint(value):  # Python accepts 1_0, data files do not
            raise ValueError
        return int(value or "0", 16) % size
    except ValueError:
        raise DataError(f"{name} {value[:40]!r} is not a hexadecimal number; write one, or leave it empty") from None


def number(name: str, value: str) -> float:
    """Return a value as a finite number. Raises DataError if the value is not one."""
    try:
        found = math.nan if "_" in value else float(value)  # Python accepts 1_000, data files do not
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise DataError(f"{name} {value[:40]!r} is not a finite number; write one, or leave the field empty")
    return found


@dataclass(frozen=True)
class Features:
    """Inputs of a model as fixed by its training.

    Attributes:
        fields: in the order of the columns. notes: the rest of the JSON object. where: name of the model, for messages.
    """

    fields: tuple[Field, ...]
    notes: Mapping[str, Any]
    where: str = "features"

    @classmethod
    def of(cls, model: _Stored) -> Features:
        """Return the features stored in a model; raise ModelError if missing, invalid, or not fitting its inputs."""
        text = model.metadata.get(NOTE)
        if text is None:
            raise ModelError(
                f"{model.ckpt}: no {NOTE!r} in its metadata, so its inputs are not known; export it with "
                "notes={'features': {'fields': [...]}} (docs/reference/recommendation.md)"
            )
        found = _read(text, str(model.ckpt))
        found.check(model.inputs)
        return found

    @classmethod
    def from_json(cls, data: Any, where: str = NOTE) -> Features:
        """Return the features of a JSON object; the errors are those of :meth:`of`, except for the model's inputs."""
        entries = data.get("fields") if isinstance(data, dict) else None
        if not isinstance(entries, list) or not entries:
            raise ModelError(f"{where}: metadata {NOTE!r}: must be an object with at least one of 'fields'")
        fields = tuple(_field(entry, where) for entry in entries)
        kinds: dict[str, set[bool]] = {}
        for one in fields:
            kinds.setdefault(one.input, set()).add(one.kind in NUMBERED)
        mixed = next((name for name, found in kinds.items() if len(found) > 1), None)
        if mixed is not None:
            raise _error(where, f"input {mixed!r} holds both row numbers and floats; give each an input of its own")
        return cls(fields, {key: value for key, value in data.items() if key != "fields"}, where)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that an export stores under :data:`NOTE`."""
        default = Field("", "", "")
        fields = [
            {
                key: list(value) if isinstance(value, tuple) else value
                for key, value in vars(one).items()
                if key != "places" and value != getattr(default, key)
            }
            for one in self.fields
        ]
        return {"fields": fields, **self.notes}

    @cached_property
    def inputs(self) -> dict[str, list[Field]]:
        """Fields of each input, by its name, from left to right."""
        found: dict[str, list[Field]] = {}
        for one in self.fields:
            found.setdefault(one.input, []).append(one)
        return found

    def encoded(self, rows: Sequence[Row]) -> dict[str, Array]:
        """Return a model's inputs for rows, by name: int64 N x F, or float32 N x D; raise as :meth:`Field.column`."""
        arrays: dict[str, Array] = {}
        for name, fields in self.inputs.items():
            columns = [one.column(rows) for one in fields]
            arrays[name] = np.stack(columns, 1) if fields[0].kind in NUMBERED else np.concatenate(columns, 1)
        return arrays

    def unknown(self, arrays: Mapping[str, Array]) -> list[tuple[str, ...]]:
        """Return per row of :meth:`encoded` the ``vocabulary`` fields with unknown values; others accept any."""
        named: list[list[str]] = [[] for _ in next(iter(arrays.values()))]
        for name, fields in self.inputs.items():
            for place, one in enumerate(fields):
                if one.kind == "vocabulary":
                    for row in np.flatnonzero(arrays[name][:, place] == one.offset).tolist():
                        named[row].append(one.name)
        return [tuple(names) for names in named]

    def missing(self, columns: Sequence[str]) -> list[str]:
        """Return the names of the fields that are not among these columns."""
        return list(dict.fromkeys(one.name for one in self.fields if one.name not in columns))

    def check(self, inputs: Sequence[TensorSpec]) -> None:
        """Raise ModelError if the names of a model's inputs differ, or one has another dtype or number of columns."""
        if {one.name for one in inputs} != set(self.inputs):
            names, stored = (", ".join(sorted(some)) for some in ([one.name for one in inputs], self.inputs))
            raise _error(self.where, f"its fields fill the inputs {stored}, but the model takes {names}")
        for tensor in inputs:
            fields = self.inputs[tensor.name]
            width, whole = sum(one.width for one in fields), fields[0].kind in NUMBERED
            last = tensor.shape[-1] if len(tensor.shape) == 2 else None
            if len(tensor.shape) != 2 or (isinstance(last, int) and last != width):
                raise _error(self.where, f"input {tensor.name!r} of shape {tensor.shape} must be N x {width}")
            if whole != (np.dtype(tensor.dtype).kind in "iu"):
                wanted = "whole numbers" if whole else "floats"
                raise _error(self.where, f"input {tensor.name!r} of dtype {tensor.dtype} must take {wanted}")


@lru_cache(maxsize=8)
def _read(text: str, where: str) -> Features:
    try:
        data = plain_json(text)
    except ValueError as error:
        raise _error(where, f"not JSON ({error})") from error
    return Features.from_json(data, where)


def _error(where: str, what: str) -> ModelError:
    return ModelError(f"{where}: metadata {NOTE!r}: {what}; export the model again")


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "name": (lambda v: isinstance(v, str) and v != "", "a text"),
    "input": (lambda v: isinstance(v, str) and v != "", "a text"),
    "kind": (lambda v: v in NUMBERED + MEASURED, f"one of {', '.join(NUMBERED + MEASURED)}"),
    "values": (
        lambda v: isinstance(v, list) and all(isinstance(one, str) for one in v) and len(set(v)) == len(v),
        "a list of different texts",
    ),
    "size": (lambda v: _is_whole(v, 1), "a whole number of at least 1"),
    "offset": (lambda v: _is_whole(v, 0), "a whole number of at least 0"),
    "separator": (lambda v: isinstance(v, str) and v != "", "a text"),
    "transform": (lambda v: v in ("", "log1p"), "log1p"),
    "mean": (is_number, "a finite number"),
    "std": (lambda v: is_number(v) and v > 0, "a finite number above 0"),
    "step": (lambda v: is_number(v) and v >= 0, "a finite number above 0"),
    "letters": (lambda v: _is_whole(v, 0), "a whole number of at least 1"),
    "hash": (lambda v: v in list(HASHES), f"one of {', '.join(HASHES)}"),
}
"""Check of each key of a field, and its description."""


def _field(entry: Any, where: str) -> Field:
    if not isinstance(entry, dict):
        raise _error(where, f"field {entry!r:.60} is not an object")
    name = entry.get("name", "?")
    for key in ("name", "input", "kind"):
        if key not in entry:
            raise _error(where, f"field {name!r:.60}: no {key!r}")
    for key, value in entry.items():
        fits, wanted = _KINDS.get(key, (None, ""))
        if fits is None:
            raise _error(where, f"field {name!r:.60}: {key!r} is not one of {', '.join(_KINDS)}")
        if not fits(value):
            raise _error(where, f"field {name!r:.60}: {key} {value!r:.60} must be {wanted}")
    kind = entry["kind"]
    needed = {"vocabulary": "values", "multi": "values", "hashed": "size"}.get(kind)
    if needed is not None and not entry.get(needed):
        raise _error(where, f"field {name!r:.60}: a field of kind {kind} needs {needed!r}")
    given: dict[str, Any] = {key: tuple(value) if key == "values" else value for key, value in entry.items()}
    return Field(**given)


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST_ROWS
