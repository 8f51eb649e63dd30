"""Merge the records files of several processes into one, in the order of the data set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

import numpy as np

from engine import DataError
from tecoinfer_modelzoo.files import hash_files
from utils.pipeline.resume.records.file import Kept
from utils.pipeline.resume.records.names import unwritable

if TYPE_CHECKING:
    from engine import Array
    from utils.pipeline.resume.records.arrays import RecordArrays


def part_path(path: Path, rank: int, size: int) -> Path:
    """Return the file of one part: ``result.samples-0of4.csv`` for ``result.samples.csv``."""
    return path.with_name(f"{path.stem}-{rank}of{size}{path.suffix}")


def merged(path: Path, parts: Sequence[Kept]) -> Kept:
    """Return the records of the whole run; the files of the parts are removed when the merged file is put in place.

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
        if path.suffix == ".npz":
            _merge_arrays(files, unfinished)
        else:
            _merge_rows(files, unfinished)
        return Kept(path, hash_files(unfinished), unfinished, tuple(files))
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise unwritable(path, error) from error


def _merge_rows(parts: list[Path], path: Path) -> None:
    """Write one row of each part in turn."""
    with ExitStack() as stack:
        rows = [_rows(stack.enter_context(_opened(part))) for part in parts]
        headers = [next(part, "") for part in rows]
        first = [next(part, "") for part in rows]
        # A part without samples does not know whether samples have units; the headers of the others are used.
        filled = {header for header, row in zip(headers, first, strict=True) if row} or set(headers)
        if len(filled) > 1 or not set(headers) <= filled | {header.replace(",unit,", ",", 1) for header in filled}:
            _refuse(path, sorted(set(headers)))
        with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            file.writelines(filled)
            file.writelines(first)
            file.writelines(chain.from_iterable(zip_longest(*rows, fillvalue="")))


def _merge_arrays(parts: list[Path], path: Path) -> None:
    from utils.pipeline.resume.records.arrays import read_arrays, write_arrays

    found = [read_arrays(part) for part in parts]
    filled = [one for one in found if len(one.index)] or found[:1]
    recorded = [one for one in found if len(one.values)]
    if not _of_one_run(found, filled, recorded):
        _refuse(path, sorted({one.metric_name for one in found}))
    with path.open("wb") as file:
        write_arrays(_joined_arrays(found, filled, recorded), file)


def _joined_arrays(found: list[RecordArrays], filled: list[RecordArrays], recorded: list[RecordArrays]) -> RecordArrays:
    """Return the concatenated columns of all parts; arguments as for :func:`_of_one_run`."""
    from utils.pipeline.resume.records.arrays import RecordArrays

    starts = np.cumsum([0, *(len(one.index) for one in found)])
    margins = [one.margins for one in found if one.margins is not None] or None
    return RecordArrays(
        found[0].metric_name,
        np.concatenate([one.index for one in found]),
        list(chain.from_iterable(one.names for one in found)),
        np.concatenate([one.ran for one in found]),
        np.concatenate([one.values for one in recorded]) if recorded else _empty(found),
        np.concatenate([one.sample + start for one, start in zip(found, starts, strict=False)]),
        _joined([one.sample_units for one in filled]),
        _joined([one.record_units for one in recorded]),
        None if margins is None else np.concatenate(margins),
    )


def _of_one_run(found: list[RecordArrays], filled: list[RecordArrays], recorded: list[RecordArrays]) -> bool:
    """Return whether parts have one metric, the same kinds of units (if filled), and records of one kind."""
    metrics = {one.metric_name for one in found}
    units = {one.sample_units is None for one in filled}
    margins = {one.margins is None for one in found}
    kinds = {(one.values.dtype, one.values.shape[1:], one.record_units is None) for one in recorded}
    return max(len(metrics), len(units), len(margins), len(kinds)) == 1


def _empty(found: list[RecordArrays]) -> Array:
    """Return an array of no records with the dtype of the first part with samples."""
    return next((one.values for one in found if one.ran.any()), found[0].values)


def _joined(units: list[list[str] | None]) -> list[str] | None:
    named = [names for names in units if names is not None]
    return [name for names in named for name in names] if named else None


def _refuse(path: Path, found: list[str]) -> NoReturn:
    fix = "run them again"
    raise DataError(f"the parts of {path.name[1:].removesuffix('.part')} have different first rows: {found}; {fix}")


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
