"""Merge the records files of several processes into one, in the order of the data set."""

from __future__ import annotations

import heapq
import resource
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

from engine import DataError
from tecoinfer_modelzoo.files import hash_files
from tecoinfer_modelzoo.text import shortened
from utils.pipeline.resume.records.file import Kept
from utils.pipeline.resume.records.names import unwritable

MOST_OPEN = 128
"""Largest number of files merged at once; more take another pass over the records."""


def part_path(path: Path, rank: int, size: int) -> Path:
    """Return the file of one part: ``result.samples-0of4.csv`` for ``result.samples.csv``."""
    return path.with_name(f"{path.stem}-{rank}of{size}{path.suffix}")


def merged(path: Path, parts: Sequence[Kept]) -> Kept:
    """Return the records of the whole run; the files of the parts are removed when the merged file is put in place.

    At most :data:`MOST_OPEN` files are open at a time: more are merged in groups, whose results are merged again.
    Memory does not grow with the number of parts or records, except for the names of units.

    Args:
        path: the file to write. parts: by rank; a part with an empty hash is not checked.

    Raises DataError: a part is missing, or the parts are not of one run; ConfigError: the file cannot be written.
    """
    files = [part.path for part in parts]
    unfinished = path.with_name(f".{path.name}.part")
    try:
        for part in parts:  # each is the one its process has written, and not of another run in the same folder
            _opened(part.path).close()
            if part.sha256 and hash_files(part.path) != part.sha256:
                raise DataError(f"the records of a process, {part.path}, were changed by another run; run it again")
        with TemporaryDirectory(prefix=f".{path.name[:40]}-", dir=path.parent) as folder:
            others = _merge_groups(files, unfinished, Path(folder), _merge_of(path))
        if others:
            raise DataError(f"the parts of {path.name} have different first rows: {others}; run them again")
        return Kept(path, hash_files(unfinished), unfinished, tuple(files))
    except BaseException as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise unwritable(path, error) from error
        raise


_Merge = Callable[[list[Path], Path, Path], list[str]]
"""Merges files into a path, with a folder for temporary files; returns their first rows if they differ."""


def _merge_of(path: Path) -> _Merge:
    if path.suffix == ".csv":
        return _merge_rows
    from utils.pipeline.resume.records.array_merging import merge_array_files

    return merge_array_files


def _merge_groups(files: list[Path], path: Path, folder: Path, merge: _Merge) -> list[str]:
    """Merge any number of files, in groups of as many as may be open at a time."""
    most, level = most_open(), 0
    while len(files) > most:
        groups = [files[start : start + most] for start in range(0, len(files), most)]
        found = [folder / f"{level}-{number}" for number in range(len(groups))]
        for group, one in zip(groups, found, strict=True):
            if others := merge(group, one, folder):
                return others
            for file in group if level else ():
                file.unlink()
        files, level = found, level + 1
    return merge(files, path, folder)


def most_open() -> int:
    """Return the number of records files to open at a time: :data:`MOST_OPEN`, or half of what the process may open."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_OPEN if limit == resource.RLIM_INFINITY else max(2, min(MOST_OPEN, limit // 2))


def _merge_rows(parts: list[Path], path: Path, _folder: Path) -> list[str]:
    """Write the rows of all parts by their index."""
    with ExitStack() as stack:
        rows = [_rows(stack.enter_context(_opened(part))) for part in parts]
        headers = [next(part, "") for part in rows]
        first = [next(part, "") for part in rows]
        # A part without samples does not know whether samples have units; the headers of the others are used.
        filled = {header for header, row in zip(headers, first, strict=True) if row} or set(headers)
        if len(filled) > 1 or not set(headers) <= filled | {header.replace(",unit,", ",", 1) for header in filled}:
            return sorted(set(headers))
        numbered = [
            _numbered(part, chain([one], rest) if one else (), file)
            for part, one, rest, file in zip(range(len(parts)), first, rows, parts, strict=True)
        ]
        with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.writelines(filled)
            file.writelines(row for _, _, row in heapq.merge(*numbered))
    return []


def _numbered(part: int, rows: Iterable[str], path: Path) -> Iterator[tuple[int, int, str]]:
    """Yield the rows of a part with their index; raise DataError if a row has none."""
    for row in rows:
        index = row.partition(",")[0]
        if not (index.isascii() and index.isdigit()):
            raise DataError(f"{path}: {shortened(row.rstrip())!r} is not the row of a sample; write the file again")
        yield int(index), part, row


def _opened(part: Path) -> TextIO:
    try:
        return part.open(encoding="utf-8", errors="surrogateescape", newline="")
    except OSError as error:
        fix = "put --json into a folder that all machines share"
        raise DataError(f"the records of a process, {part}, cannot be read: {error.strerror}; {fix}") from error


def _rows(file: TextIO) -> Iterator[str]:
    """Yield the rows as text; a quoted name may contain line breaks."""
    row = ""
    for line in file:
        row += line
        if row.count('"') % 2 == 0:
            yield row
            row = ""
