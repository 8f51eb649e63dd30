"""Criteo's click logs: tab-separated lines of a label, 13 counts and 26 categories, without column names.

The layout is that of the Display Advertising Challenge (``train.txt``, ``test.txt``) and of the Terabyte Click Logs
(``day_0`` to ``day_23``). Any field but the label may be empty, which means a missing value. Counts are integers, some
negative; categories are 32-bit hashes in hexadecimal. Lines of ``test.txt`` have no label.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np

from engine import DataError
from utils.datasets.base import Batch, Dataset, Rejected
from utils.datasets.tabular.clicks import Click
from utils.datasets.text.tables import rejected_line

NUMBERS = tuple(f"I{place}" for place in range(1, 14))
"""Names of the counts."""

CATEGORIES = tuple(f"C{place}" for place in range(1, 27))
"""Names of the categories."""

FIELDS = NUMBERS + CATEGORIES

_LABELS = {b"0": False, b"1": True}
_NUMBER, _HASH = re.compile(rb"(?:-?\d{1,18})?"), re.compile(rb"[0-9a-fA-F]{0,16}")
_FIELDS = rb"\t".join([_NUMBER.pattern] * len(NUMBERS) + [_HASH.pattern] * len(CATEGORIES)) + rb"\r?\n?"
_UNLABELLED, _LABELLED = re.compile(_FIELDS), re.compile(rb"[01]\t" + _FIELDS)
_GZIP = b"\x1f\x8b"
_LONGEST = 1 << 13
_TRIED = 100
"""Number of lines read to recognise a file, and the maximum bytes of each."""


def is_criteo(path: Path) -> bool:
    """Return whether one of a file's first lines is in Criteo's layout, and the first has no column names.

    Raises DataError if the file cannot be read, or is compressed.
    """
    if not path.is_file():
        return False
    lines = _first(path)
    if lines[0].startswith(_GZIP):
        raise DataError(f"{path} is compressed; unpack it first: gunzip {path.name}")
    if _has_names(lines[0]):
        return False
    return any(_LABELLED.fullmatch(line) or _UNLABELLED.fullmatch(line) for line in lines)


def _first(path: Path) -> list[bytes]:
    try:
        with path.open("rb") as file:
            return [file.readline(_LONGEST) for _ in range(_TRIED)]
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}; check the path") from error


def _has_names(line: bytes) -> bool:
    """Return whether a line has column names: distinct fields, and none is a number."""
    values = line.split(b"\t")
    return 1 < len(values) == len(set(values)) and not any(value.strip().lstrip(b"-").isdigit() for value in values)


class CriteoRows(Dataset):
    """The lines of a file in Criteo's layout; the file is scanned once, and lines are read on access.

    A sample maps the names :data:`FIELDS` to texts, empty for a missing value; a target is a :class:`.Click`, or
    ``None`` for all lines without labels, which have 39 fields instead of 40, as most of the first lines do. Users are
    unknown, so each line is a unit. Memory: 16 bytes per line. Raises DataError if the file cannot be read, or no line
    can be used.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rejected: list[Rejected] = []
        self.notes = {"columns": list(FIELDS)}
        digest, starts, numbers = sha256(), array("q"), array("q")
        first = _first(file)
        # several lines, because a labelled line without its last field looks like one without a label
        without = sum(_UNLABELLED.fullmatch(line) is not None for line in first)
        self.labelled = without <= sum(_LABELLED.fullmatch(line) is not None for line in first)
        try:
            for number, start, line in _lines(file):
                digest.update(line)
                if (_LABELLED if self.labelled else _UNLABELLED).fullmatch(line):
                    starts.append(start)
                    numbers.append(number)
                elif line.strip():
                    self.rejected.append(rejected_line(file, number, _wrong(line, self.labelled)))
        except OSError as error:
            raise DataError(f"{file} cannot be read: {error.strerror}; check the path") from error
        if not starts:
            why = f": {self.rejected[0].path}: {self.rejected[0].reason}" if self.rejected else ", it is empty"
            raise DataError(f"{file}: no line can be used{why}")
        self._digest = digest.hexdigest()
        self._starts, self._numbers = np.frombuffer(starts, np.int64), np.frombuffer(numbers, np.int64)

    def __len__(self) -> int:
        return len(self._starts)

    def batch(self, places: Sequence[int]) -> Batch:
        """Return the lines at the given places."""
        samples, targets = list[dict[str, str]](), list[Click]()
        with self.file.open("rb") as file:
            for start in self._starts[np.asarray(places, np.intp)].tolist():
                file.seek(start)
                values = file.readline().rstrip(b"\r\n").split(b"\t")
                if self.labelled:
                    targets.append(Click(_LABELS[values.pop(0)]))
                samples.append({name: value.decode("ascii") for name, value in zip(FIELDS, values, strict=True)})
        names = [f"{self.file}:{number}" for number in self._numbers[np.asarray(places, np.intp)].tolist()]
        return Batch(samples, targets if self.labelled else None, names)

    def fingerprint(self) -> str:
        """Return a hash of the file's content at the time of opening."""
        return self._digest

    def source_files(self) -> set[str]:
        """Return the file."""
        return {str(self.file)}


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, byte offset and content of the lines of a file; numbers start at 1."""
    start = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            yield number, start, line
            start += len(line)


def _wrong(line: bytes, labelled: bool) -> str:
    """Return why a line (with its line end) is invalid; ``labelled``: whether it must start with a label."""
    values = line.rstrip(b"\r\n").split(b"\t")
    wanted = len(FIELDS) + labelled
    if len(values) != wanted:
        return f"{len(values)} fields, expected {wanted}; correct the line"
    if labelled and values.pop(0) not in _LABELS:
        return f"label {_shown(line)} must be 0 or 1; correct it"
    for name, value in zip(FIELDS, values, strict=True):
        if name in NUMBERS and not _NUMBER.fullmatch(value):
            return f"{name} {_shown(value)} is not an integer; correct it, or leave the field empty"
        if name in CATEGORIES and not _HASH.fullmatch(value):
            return f"{name} {_shown(value)} is not a hexadecimal number of up to 16 digits; correct or empty it"
    return "it has a carriage return inside; correct the line"


def _shown(value: bytes) -> str:
    return repr(value.split(b"\t")[0][:40].decode("utf-8", "replace"))


__all__ = ["CATEGORIES", "FIELDS", "NUMBERS", "CriteoRows", "is_criteo"]
