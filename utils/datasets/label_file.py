"""Label files: a text file (``val.txt``) with one ``path label`` per line.

A list may have millions of lines. A process of several (:meth:`ListedImages.share`) finds the lines of its share by
their number, and decodes, checks and keeps only those; the others are bytes that pass through a block of fixed size.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from engine import Array, DataError
from tecoinfer_modelzoo.files import check_regular, not_a_file_reason
from utils.datasets.base import Numbers
from utils.datasets.folders import NOT_AN_IMAGE, is_image
from utils.datasets.samples import Rejected, TableDataset
from utils.datasets.sharding import loads_a_share
from utils.datasets.table import Labels, Listing, SampleTable

BLOCK = 1 << 22
"""Bytes of a label file in memory at a time; more if a line is longer."""

_MOST_FOLDERS = 1 << 14
"""Folders whose path is kept while a file is read."""
_DIGITS = 18
"""Largest number of digits of a label."""


def load_label_file(file: Path, root: Path | None = None) -> ListedImages:
    """Load the images that a label file lists, in its order; paths are relative to ``root``, or the file's folder.

    A line is ``path label``: the label is the last field, so the path may contain spaces. Blank lines and lines that
    start with ``#`` are skipped. Listed files that do not exist or are not images are in ``rejected``. Raises DataError
    if the file cannot be read or is empty, a line is malformed, a label is not an integer of at least 0, a path leaves
    the root, or no listed image can be used. In a process of several these are raised when the samples are used.
    """
    images = ListedImages(file, root)
    if not loads_a_share():
        len(images)  # reads the file
    return images


class ListedImages(TableDataset):
    """The images of a label file, which is read on first use; see :func:`load_label_file`, also for the errors.

    Samples are numbered by their lines, without blank lines and comments (``numbers`` if some of the lines are in
    ``rejected``), so that a process needs no other process's files to know the numbers of its own samples.
    """

    def __init__(self, file: Path, root: Path | None = None) -> None:
        # The other attributes of a table are computed on first use.
        self._file, self._root = file, file.parent if root is None else root
        self.classes, self.rows, self.notes, self.listed_in = None, None, {}, file

    @cached_property
    def _found(self) -> _Found:
        found = _read(self._file, self._root, 0, 1)
        if not len(found.samples) and not found.rejected:
            raise DataError(f"label file {self._file} lists no image; write one 'path label' per line")
        if not len(found.samples):
            first, reason = found.rejected[0]
            raise DataError(
                f"label file {self._file}: none of its {len(found.rejected)} images can be used under {self._root}, "
                f"the first is {first}: {reason}; check the data folder"
            )
        return found

    @cached_property
    def samples(self) -> SampleTable:  # type: ignore[override]
        """All samples."""
        return self._found.samples

    @cached_property
    def labels(self) -> Labels | None:  # type: ignore[override]
        """The label of each sample."""
        return self._found.samples.labels

    @cached_property
    def rejected(self) -> list[Rejected]:  # type: ignore[override]
        """The listed files that cannot be used."""
        return self._found.rejected

    @cached_property
    def numbers(self) -> Numbers | None:  # type: ignore[override]
        """The number of each sample's line, from 0."""
        return self._found.numbers

    def share(self, rank: int, size: int) -> TableDataset:
        """Return the samples of every ``size``-th line from line ``rank`` on; only their files are looked up."""
        if size == 1:
            return self
        found = _read(self._file, self._root, rank, size)
        if not len(found.samples):
            _ = self._found  # raises an error with its reason if no process has a usable image
        part = TableDataset(found.samples, rejected=found.rejected, listed_in=self._file)
        part.numbers = found.numbers
        return part

    def most_samples(self) -> int:
        """Return the number of lines with an image, whether it exists or not."""
        return sum(1 for _ in _lines(self._file, 0, 1))


class _Found(NamedTuple):
    """What a label file lists, or a share of it."""

    samples: SampleTable
    rejected: list[Rejected]
    numbers: Numbers | None


def _read(file: Path, root: Path, rank: int, size: int) -> _Found:
    listing, folders = Listing(), _Folders(root)
    rejected: list[Rejected] = []
    lost: list[int] = []
    for count, (number, text) in enumerate(_lines(file, rank, size)):
        prefix, name, label = _parse(text, folders, f"{file}:{number}")
        if not is_image(name):
            rejected.append(Rejected(Path(prefix + name), NOT_AN_IMAGE))
        elif not os.path.isfile(prefix + name):
            path = prefix + name
            rejected.append(
                Rejected(Path(path), f"it {not_a_file_reason(path)} but is listed in {file.name} line {number}")
            )
        else:
            listing.add(prefix, name, label)
            continue
        lost.append(count)
    numbers = None
    if lost:
        numbers = rank + size * np.delete(np.arange(len(listing) + len(lost), dtype=np.int64), lost)
    return _Found(listing.table(), rejected, numbers)


def _lines(file: Path, rank: int, size: int) -> Iterator[tuple[int, str]]:
    """Yield number (from 1) and stripped text of every ``size``-th line, from the ``rank``-th on.

    Blank lines and comments do not count. Files may have any size and any line ends.
    """
    offset = number = count = begin = 0
    rest = b""
    try:
        check_regular(file)
        with file.open("rb") as stream:
            most = min(BLOCK, os.fstat(stream.fileno()).st_size + 1)  # read() allocates what it is asked for
            while True:
                block = stream.read(max(most, len(rest)))
                data = rest + block
                starts, ends = _line_bounds(data, last=not block)
                used = _that_count(data, starts, ends, first=offset == 0)
                order = count + np.cumsum(used) - 1
                for line in np.flatnonzero(used & (order % size == rank)).tolist():
                    begin = offset + int(starts[line])
                    text = data[starts[line] : ends[line]].decode()
                    yield number + line + 1, (text if begin else text.removeprefix("\ufeff")).strip()
                if not block:
                    return
                done = int(ends[-1]) + 1 if len(ends) else 0
                rest, offset, number, count = data[done:], offset + done, number + len(ends), count + int(used.sum())
    except UnicodeDecodeError as error:
        at = begin + error.start
        raise DataError(f"{file}: byte {at} is not UTF-8 text; save the label file as UTF-8") from error
    except OSError as error:
        raise DataError(f"label file {file} cannot be read: {error.strerror}; check the path") from error


def _line_bounds(data: bytes, *, last: bool) -> tuple[Numbers, Numbers]:
    """Return where lines start and end; a line ends at a line feed, or a carriage return without one after it.

    ``last``: the data end with the file, so the rest is a line too, else it may be an incomplete one.
    """
    codes = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(codes == ord("\n"))
    if b"\r" in data:
        after = np.append(codes[1:], np.uint8(0 if last else ord("\n")))  # a line feed may come with the next block
        ends = np.sort(np.concatenate([ends, np.flatnonzero((codes == ord("\r")) & (after != ord("\n")))]))
    if last and (len(data) if not len(ends) else len(data) - ends[-1] - 1):
        ends = np.append(ends, len(data))
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    return starts.astype(np.int64), ends.astype(np.int64)


def _that_count(data: bytes, starts: Numbers, ends: Numbers, *, first: bool) -> Array:
    """Return which lines are neither blank nor comments; ``first``: the data begin with the file."""
    filled = starts < ends
    heads = np.zeros(len(starts), np.uint8)
    heads[filled] = np.frombuffer(data, np.uint8)[starts[filled]]
    used: Array = filled & (heads > ord(" ")) & (heads < 127) & (heads != ord("#"))
    # Only lines that begin with a space, with a comment or beyond ASCII are decoded for this.
    for line in np.flatnonzero(filled & ~used & (heads != ord("#"))).tolist():
        text = data[starts[line] : ends[line]].decode(errors="replace")
        text = (text.removeprefix("\ufeff") if first and line == 0 else text).strip()
        used[line] = bool(text) and not text.startswith("#")
    return used


class _Folders:
    """The folders in the lines of a label file: each is checked and normalised once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._inside = os.path.join(os.path.abspath(root), "")
        self._prefixes: dict[str, str | None] = {}

    def split(self, path: str) -> tuple[str | None, str]:
        """Return prefix and name of a listed path; the prefix is ``None`` if the path leaves the root."""
        head, name = os.path.split(path)
        if name in ("", ".", ".."):  # not a name
            path = os.path.normpath(os.path.join(self.root, path))
            head, separator, name = path.rpartition(os.sep)
            return (head + separator if self._has(path) else None), name
        if head not in self._prefixes:
            if len(self._prefixes) >= _MOST_FOLDERS:
                self._prefixes.clear()
            folder = os.path.normpath(os.path.join(self.root, head))
            prefix = "" if folder == os.curdir else os.path.join(folder, "")
            self._prefixes[head] = prefix if self._has(folder) else None
        return self._prefixes[head], name

    def _has(self, path: str) -> bool:
        # Compares names only: links may lead out of the root, since data sets are often assembled from links.
        return os.path.join(os.path.abspath(path), "").startswith(self._inside)


def _parse(text: str, folders: _Folders, where: str) -> tuple[str, str, int]:
    """Return the prefix and the name of a line's file, and its label."""
    fields = text.rsplit(maxsplit=1)
    if len(fields) != 2:
        raise DataError(f"{where}: {text!r} is not 'path label'; write an image path, a space and a class index")
    path, label = fields
    if not (label.isascii() and label.isdigit() and len(label) <= _DIGITS):
        raise DataError(f"{where}: label {label!r} is not a class index; end the line with an integer of at least 0")
    prefix, name = folders.split(path)
    if prefix is None:
        root = folders.root
        raise DataError(f"{where}: path {path!r} leaves the data folder {root}; write paths relative to that folder")
    return prefix, name, int(label)
