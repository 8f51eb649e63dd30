"""The per-sample records of several processes: one file each, merged into one in the order of the data set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from itertools import chain, zip_longest
from pathlib import Path
from typing import TextIO

from engine.base import ConfigError, DataError


def part_path(path: Path, rank: int, size: int) -> Path:
    """Return the file of one part: ``result.samples-0of4.csv`` for ``result.samples.csv``."""
    return path.with_name(f"{path.stem}-{rank}of{size}{path.suffix}")


def merge_records(path: Path, size: int) -> None:
    """Write the records file of the whole run from those of its parts, row by row, and remove those.

    The result has the very bytes a single process writes: one row of each part in turn.

    Args:
        path: the file to write; the parts lie beside it (:func:`part_path`), on a disk all machines share.
        size: number of parts.

    Raises:
        DataError: a part is missing, or the parts are not of one run.
        ConfigError: the file cannot be written.
    """
    parts = [part_path(path, rank, size) for rank in range(size)]
    unfinished = path.with_name(f".{path.name}.part")
    with ExitStack() as stack:
        rows = [_rows(stack.enter_context(_opened(part))) for part in parts]
        headers = {next(part, "") for part in rows}
        if len(headers) > 1:
            raise DataError(f"the parts of {path} have different first rows: {sorted(headers)}; run them again")
        try:
            with unfinished.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
                file.writelines(headers)
                file.writelines(chain.from_iterable(zip_longest(*rows, fillvalue="")))
            unfinished.replace(path)
        except OSError as error:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            raise ConfigError(f"records file {path} cannot be written: {error.strerror}; see to its folder") from error
    for part in parts:
        part.unlink()


def _opened(part: Path) -> TextIO:
    try:
        return part.open(encoding="utf-8", errors="surrogateescape", newline="")
    except OSError as error:
        raise DataError(
            f"the records of a process, {part}, cannot be read: {error.strerror}; put --json into a folder that all "
            "machines share"
        ) from error


def _rows(file: TextIO) -> Iterator[str]:
    """Yield the rows as they are written; a quoted name may hold line breaks."""
    row = ""
    for line in file:
        row += line
        if row.count('"') % 2 == 0:
            yield row
            row = ""
