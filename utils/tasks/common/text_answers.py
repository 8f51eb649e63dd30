"""What a source framework said of texts: the classes it gave them, read from a table or lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, DataError
from tecoinfer_modelzoo.text import shown_value
from utils.datasets.base import Dataset
from utils.datasets.text.tables import ENDINGS, read_lines, read_table
from utils.datasets.text.texts import LABELS
from utils.metrics.class_names import hint


class Said(NamedTuple):
    """A class, and the score it got (NaN: not known)."""

    place: int
    score: float


def read_answers(file: Path, dataset: Dataset, labels: Sequence[str] | None) -> list[Said]:
    """Read the class of each text, in the order of the data set.

    Args:
        file: a table with a column ``label`` and maybe one ``score`` (0 to 1), or lines with a class each. A class is
            one of the labels, or its number.
        dataset: says how many texts there are. labels: the model's.

    Raises:
        DataError: the file cannot be read, has not a line per text, or names no class.
    """
    if file.suffix.lower() in ENDINGS:
        table = read_table(file)
        column = table.column(None, LABELS, "")
        if column is None:
            raise DataError(f"{file}: the columns are {table.listed()}; call that of the classes 'label'")
        score = table.column(None, ("score",), "")
        rows = [(row.number, row.values.get(column), row.values.get(score or "")) for row in table.rows]
    else:
        rows = [(number, line.strip(), None) for number, line in read_lines(file) if line.strip()]
    if len(rows) != len(dataset):
        raise DataError(f"{file}: {len(rows)} answers, and the data set has {len(dataset)} texts; give one per text")
    return [
        Said(_place(label, labels, f"{file}:{number}"), _score(score, f"{file}:{number}"))
        for number, label, score in rows
    ]


def _place(label: Any, labels: Sequence[str] | None, where: str) -> int:
    text = label if isinstance(label, str) else shown_value(label)
    if labels is not None and text in labels:
        return list(labels).index(text)
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    known = hint(text, labels) if labels else " (the model stores no names)"
    raise DataError(f"{where}: {text!r} is no class of the model{known}; correct it, or write class numbers")


def _score(text: Any, where: str) -> float:
    if text is None or text == "":
        return float("nan")
    try:
        return float(text)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"{where}: score {shown_value(text)} is no number; leave it out, or write one from 0 to 1"
        ) from error


def agreement_of(prediction: Array, answer: Said) -> float:
    """Return 1 where scores and an answer say the same class, less what the scores differ by where known; else 0."""
    best = int(np.argmax(prediction))
    if best != answer.place:
        return 0.0
    apart = abs(float(prediction[best]) - answer.score)
    return 1.0 if np.isnan(apart) else max(0.0, 1 - apart)
