"""What an evaluation of text recognition says beside its metric: hints, and texts as a file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine import ConfigError, DataError, TecoInferError, write_file
from utils.datasets.base import Batch, Dataset
from utils.postprocess.text.ctc import Text
from utils.tasks.base import Options
from utils.tasks.model import Model
from utils.tasks.text_recognition_input import charset_of, lines_of, steps_of

SHOWN = 8
"""Characters that a hint names."""

MOST, FEW = 0.5, 20
"""A blank holds most steps of a trained model; so many lines must have been seen before anything is said of it."""


class TextHinter:
    """Looks for right texts that the model cannot write, and for a class that holds the blank's place.

    Args:
        model, options: as ``decode`` has them.
    """

    def __init__(self, model: Model, options: Options) -> None:
        self.model, self.options = model, options
        self.lines = self.unwritable = 0
        self.unknown: dict[str, None] = {}
        self.steps: np.ndarray[Any, np.dtype[np.int64]] | None = None
        self.blank = 0

    def see(self, outputs: Any, contexts: Sequence[Any], targets: Sequence[Any]) -> None:
        """Take in a batch."""
        try:
            steps = steps_of(outputs, len(contexts), self.model)
            charset = charset_of(self.model, self.options, steps.shape[-1])
        except (TecoInferError, LookupError):  # a model whose task decodes in another way
            return
        known = frozenset("".join(charset.characters))
        for target in targets:
            missing = [one for one in str(target) if one not in known]
            self.lines += 1
            self.unwritable += bool(missing)
            self.unknown.update(dict.fromkeys(missing))
        counts = np.bincount(steps.argmax(axis=-1).ravel(), minlength=steps.shape[-1])
        self.steps = counts if self.steps is None else self.steps + counts
        self.blank = charset.blank % steps.shape[-1]

    def hints(self) -> list[str]:
        """Return what looks wrong, one line each."""
        found = []
        if self.unwritable:
            shown = " ".join(list(self.unknown)[:SHOWN])
            more = f" and {len(self.unknown) - SHOWN} more" if len(self.unknown) > SHOWN else ""
            found.append(
                f"{self.unwritable} of {self.lines} texts hold characters that the model has not ({shown}{more}) and "
                "cannot be right; if it should have them, check --charset"
            )
        if self.steps is not None and self.lines >= FEW:
            often = int(self.steps.argmax())
            edge = {0: 0, len(self.steps) - 1: -1}.get(often)
            if edge is not None and often != self.blank and self.steps[often] > MOST * self.steps.sum():
                found.append(
                    f"most steps are of class {often}, and the blank is class {self.blank}; try --blank {edge}"
                )
        return found


class TextFile:
    """Writes what was read as PaddleOCR's label file: path, tab, text.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.rows = path, list[str]()

    def see(self, batch: Batch, predictions: Sequence[Text]) -> None:
        """Keep the texts of a batch."""
        self.rows += [f"{name}\t{one.text}\n" for name, one in zip(batch.names, predictions, strict=True)]

    def close(self) -> None:
        """Write the file."""
        try:
            write_file(self.path, "".join(self.rows).encode("utf-8", "backslashreplace"))
        except OSError as error:
            raise ConfigError(f"--save_predictions: {self.path} cannot be written ({error.strerror})") from error


def read_answers(file: Path, dataset: Dataset) -> list[Text | None]:
    """Read texts from rows ``path<tab>text``; pictures go by their path, or by their name where that is enough.

    Raises:
        DataError: the file cannot be read, a row has no tab, or no row is of a picture of the data set.
    """
    rows = {}
    for number, row in enumerate(lines_of(file, "--golden"), 1):
        path, tab, text = row.partition("\t")
        if row and not tab:
            raise DataError(f"{file}:{number}: {row[:80]!r} has no tab between path and text; correct the line")
        rows[path] = rows[Path(path).name] = text
    names = dataset.batch(range(len(dataset))).names
    found = [rows.get(name, rows.get(Path(name).name)) for name in names]
    if all(text is None for text in found):
        raise DataError(f"{file}: none of its texts is of a picture of the data set, such as {Path(names[0]).name}")
    return [None if text is None else Text(text, 1.0) for text in found]
