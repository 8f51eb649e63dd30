"""Criteo's click logs: lines of a label, 13 counts and 26 categories between tabs, without a line of names.

The layout is that of the Display Advertising Challenge (``train.txt``, ``test.txt``) and of the Terabyte Click Logs
(``day_0`` to ``day_23``). Any field but the label may be empty: a missing value. Counts are whole numbers, some below
0; categories are hashes of 32 bits in hexadecimal. The lines of ``test.txt`` have no label.
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
"""Lines that tell what a file is, and bytes of one at most."""


def is_criteo(path: Path) -> bool:
    """Say whether one of a file's first lines is of Criteo's layout; with a line of names it is a table like others.

    Raises:
        DataError: the file cannot be read, or it is packed.
    """
    if not path.is_file():
        return False
    lines = _first(path)
    if lines[0].startswith(_GZIP):
        raise DataError(f"{path} is packed; unpack it first: gunzip {path.name}")
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
    """Say whether a line names columns: no two fields of it are equal, and none is a number."""
    values = line.split(b"\t")
    return 1 < len(values) == len(set(values)) and not any(value.strip().lstrip(b"-").isdigit() for value in values)


class CriteoRows(Dataset):
    """The lines of a file of Criteo's layout; the file is read through once, and lines when they are asked for.

    A sample maps the names :data:`FIELDS` to texts, a missing value is the empty one; a target is a
    :class:`.Click`, ``None`` throughout where the lines have no label. Each line is a unit of
    its own: nothing tells whose it is. In memory it takes 8 bytes a line.

    Args:
        file: its lines are 40 fields each; or 39, where more of the first ones are so.

    Raises:
        DataError: the file cannot be read, or no line can be used.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rejected: list[Rejected] = []
        self.notes = {"columns": list(FIELDS)}
        digest, starts, numbers = sha256(), array("q"), array("q")
        first = _first(file)
        # not the first line alone: a labelled one that has lost its last field is a line without a label, too
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
        """Return the lines at some places."""
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
        """Return a hash of the file's content, as it was when it was opened."""
        return self._digest

    def watched(self) -> set[str]:
        """Return the file."""
        return {str(self.file)}


def _lines(path: Path) -> Iterator[tuple[int, int, bytes]]:
    """Yield the lines of a file with their numbers, from 1, and where they begin."""
    start = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            yield number, start, line
            start += len(line)


def _wrong(line: bytes, labelled: bool) -> str:
    """Say why a line, with its end, is none of Criteo's; ``labelled``: whether it must begin with a label."""
    values = line.rstrip(b"\r\n").split(b"\t")
    wanted = len(FIELDS) + labelled
    if len(values) != wanted:
        return f"{len(values)} fields, and there must be {wanted}; correct the line"
    if labelled and values.pop(0) not in _LABELS:
        return f"label {_shown(line)} must be 0 or 1; correct it"
    for name, value in zip(FIELDS, values, strict=True):
        if name in NUMBERS and not _NUMBER.fullmatch(value):
            return f"{name} {_shown(value)} is no whole number; write one, or leave the field empty"
        if name in CATEGORIES and not _HASH.fullmatch(value):
            return f"{name} {_shown(value)} is no hexadecimal number of at most 16 digits; write one, or leave it empty"
    return "a carriage return stands within it; correct the line"


def _shown(value: bytes) -> str:
    return repr(value.split(b"\t")[0][:40].decode("utf-8", "replace"))


__all__ = ["CATEGORIES", "FIELDS", "NUMBERS", "CriteoRows", "is_criteo"]
