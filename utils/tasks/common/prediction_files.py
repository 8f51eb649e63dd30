"""How the answers of an evaluation become a file that other programs read: ``--save_predictions``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from engine import ConfigError
from tecoinfer_modelzoo.files import write_file
from utils.datasets.base import Batch


class LineFile:
    """A saver of one text file; a concrete one's ``see`` adds to ``rows``, which are written as they are.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, list[str]()

    def close(self) -> None:
        """Write the file."""
        write_predictions(self.path, "".join(self.rows))


class RowsWriter(LineFile):
    """A :class:`LineFile` of the rows that a function makes of each sample.

    Args:
        path: the file.
        rows_of: from a sample's name, its target (``None``: it has none) and its prediction to rows with line feeds.
    """

    def __init__(self, path: Path, rows_of: Callable[[str, Any, Any], Iterable[str]]) -> None:
        super().__init__(path)
        self._rows_of = rows_of

    def see(self, batch: Batch, predictions: Sequence[Any]) -> None:
        """Take in a batch."""
        targets = batch.targets if batch.targets is not None else [None] * len(predictions)
        for name, target, one in zip(batch.names, targets, predictions, strict=True):
            self.rows += self._rows_of(name, target, one)


def write_predictions(path: Path, text: str) -> None:
    """Write the file in UTF-8; what has no place there is written as an escape.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        write_file(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(f"--save_predictions: {path} cannot be written ({why})") from error
