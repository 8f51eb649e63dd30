"""Reference classes of a source framework, read from a table or lines."""

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


class ReferenceClass(NamedTuple):
    """A class, and its score (NaN: unknown)."""

    place: int
    score: float


def read_answers(file: Path, dataset: Dataset, labels: Sequence[str] | None) -> list[ReferenceClass]:
    """Read the class of each sample, in the order of the data set.

    Args:
        file: a table with a column ``label`` and optionally ``score`` (0 to 1), or one class per line. A class is a
            label or its number. dataset: the samples. labels: the model's.

    Raises:
        DataError: The file cannot be read, has another number of lines than samples, or an unknown class.
    """
    if file.suffix.lower() in ENDINGS:
        table = read_table(file)
        column = table.column(None, LABELS, "")
        if column is None:
            raise DataError(f"{file}: has columns {table.listed()}; name the column of the classes 'label'")
        score = table.column(None, ("score",), "")
        rows = [(row.number, row.values.get(column), row.values.get(score or "")) for row in table.rows]
    else:
        rows = [(number, line.strip(), None) for number, line in read_lines(file) if line.strip()]
    if len(rows) != len(dataset):
        raise DataError(f"{file}: has {len(rows)} answers for {len(dataset)} texts; write one per text")
    return [
        ReferenceClass(_place(label, labels, f"{file}:{number}"), _score(score, f"{file}:{number}"))
        for number, label, score in rows
    ]


def _place(label: Any, labels: Sequence[str] | None, where: str) -> int:
    text = label if isinstance(label, str) else shown_value(label)
    if labels is not None and text in labels:
        return list(labels).index(text)
    if text.isascii() and text.isdigit() and len(text) < 10:
        return int(text)
    known = hint(text, labels) if labels else " (the model has no stored labels)"
    raise DataError(f"{where}: {text!r} is not a class of the model{known}; correct it, or write class numbers")


def _score(text: Any, where: str) -> float:
    if text is None or text == "":
        return float("nan")
    try:
        return float(text)
    except (TypeError, ValueError, OverflowError) as error:
        raise DataError(
            f"{where}: score {shown_value(text)} is not a number; leave it out, or write one from 0 to 1"
        ) from error


def agreement_of(prediction: Array, answer: ReferenceClass) -> float:
    """Return 1 less the difference of the scores (0 if unknown) if both have the same class, else 0."""
    best = int(np.argmax(prediction))
    if best != answer.place:
        return 0.0
    apart = abs(float(prediction[best]) - answer.score)
    return 1.0 if np.isnan(apart) else max(0.0, 1 - apart)
