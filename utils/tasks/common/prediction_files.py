"""Writers of prediction files for ``--save_predictions``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from engine import ConfigError
from tecoinfer_modelzoo.files import write_file
from utils.datasets.base import Batch


class LineFile:
    """Writer of one text file; a subclass' ``see`` appends lines to ``rows``."""

    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, list[str]()

    def close(self) -> None:
        """Write the file."""
        write_predictions(self.path, "".join(self.rows))


class RowsWriter(LineFile):
    """A :class:`LineFile` of the rows that ``rows_of(name, target or None, prediction)`` returns, with line feeds."""

    def __init__(self, path: Path, rows_of: Callable[[str, Any, Any], Iterable[str]]) -> None:
        super().__init__(path)
        self._rows_of = rows_of

    def see(self, batch: Batch, predictions: Sequence[Any]) -> None:
        """Add a batch."""
        targets = batch.targets if batch.targets is not None else [None] * len(predictions)
        for name, target, one in zip(batch.names, targets, predictions, strict=True):
            self.rows += self._rows_of(name, target, one)


def write_predictions(path: Path, text: str) -> None:
    """Write the file in UTF-8, lone surrogates as escapes. Raises ConfigError if the file cannot be written."""
    try:
        write_file(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(f"--save_predictions: {path} cannot be written ({why})") from error
