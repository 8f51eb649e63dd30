"""Scores of classes, and answers of a source framework that are classes or one number per sample."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from engine import Array, DataError, InputError
from tecoinfer_modelzoo.files import text_of
from tecoinfer_modelzoo.text import shown_value
from utils.datasets.base import Dataset
from utils.outputs import DEFAULT, DTYPE
from utils.tasks import Compare, Model, Options, Prepared
from utils.tasks.collating import joined
from utils.tasks.common.outputs import are_labels


def softmax(values: Array) -> Array:
    """Return the softmax over the last axis of N x C floats; a row with an infinite value becomes NaN."""
    with np.errstate(invalid="ignore", over="ignore"):
        powers = np.exp(values - values.max(axis=1, keepdims=True))
        found: Array = powers / powers.sum(axis=1, keepdims=True)
    return found


def check_class_scores(found: Array, model: Model, options: Options) -> None:
    """Raise InputError if an output of unknown form is not N x C floats of at least two classes, nor labels."""
    unsure = model.form(options).source in (DEFAULT, DTYPE)
    if unsure and (found.ndim != 2 or found.dtype.kind != "f" or found.shape[1] < 2) and not are_labels(found):
        raise InputError(
            f"{model.ckpt}: its first output has shape {found.shape} and dtype {found.dtype}; classification takes "
            "N x C floating-point scores of two classes or more"
        )


def label_of(labels: Sequence[str] | None, place: int) -> str:
    """Return the name of a class, or its number if it has no name."""
    return labels[place] if labels and place < len(labels) else str(place)


def most_frequent(predictions: Sequence[Array], labels: Sequence[str] | None, limit: int) -> str:
    """Return how often each class has the highest score, the ``limit`` most frequent classes first."""
    places, counts = np.unique([int(np.argmax(one)) for one in predictions], return_counts=True)
    order = np.argsort(-counts, kind="stable")[:limit].tolist()
    listed = ", ".join(f"{label_of(labels, int(places[one]))} x {counts[one]}" for one in order)
    return listed + (f", and {len(places) - limit} more classes" if len(places) > limit else "")


class JoinedRows:
    """Collation of a task whose arrays all have the samples along the first axis."""

    def collate(self, parts: Sequence[Prepared]) -> list[Array]:
        """Join the parts along the first axis (:func:`~utils.tasks.collating.joined`)."""
        return joined(parts)


class ReferenceClass(NamedTuple):
    """A class, and its score (NaN: unknown)."""

    place: int
    score: float


class ClassAnswers(Compare):
    """Reference answers of a task whose predictions are scores of classes."""

    def reference_answers(self, file: Path, dataset: Dataset) -> Sequence[ReferenceClass]:
        """Read the class of each sample, in the order of the data set.

        Args:
            file: a table with a column ``label`` and optionally ``score`` (0 to 1), or one class per line. A class is a
                label or its number.

        Raises:
            DataError: the file cannot be read, has another number of lines than samples, or an unknown class.
        """
        from utils.datasets.text.tables import ENDINGS, read_lines, read_table
        from utils.datasets.text.texts import LABELS

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
        labels, listed = self.class_labels(), [(f"{file}:{number}", label, score) for number, label, score in rows]
        return [ReferenceClass(_place(label, labels, at), _score(score, at)) for at, label, score in listed]

    def class_labels(self) -> Sequence[str] | None:
        """Return the names of the classes; the default is those that the model stores."""
        return self.model.stored.labels

    def agreement(self, prediction: Array, answer: ReferenceClass) -> float:
        """Return 1 less the difference of the scores (0 if unknown) if both have the same class, else 0."""
        best = int(np.argmax(prediction))
        if best != answer.place:
            return 0.0
        apart = abs(float(prediction[best]) - answer.score)
        return 1.0 if np.isnan(apart) else max(0.0, 1 - apart)


def _place(label: Any, labels: Sequence[str] | None, where: str) -> int:
    from utils.metrics.class_names import hint

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
        shown = shown_value(text)
        raise DataError(f"{where}: score {shown} is not a number; leave it out, or write one from 0 to 1") from error


class ScoreAnswers(Compare):
    """Reference answers of a task whose predictions have one ``score``."""

    score_name: ClassVar[str] = "scores"  # plural name of the scores, for messages
    optional_scores: ClassVar[bool] = False  # whether JSON null marks a missing score

    def reference_answers(self, file: Path, dataset: Dataset) -> list[float | None]:
        """Read a JSON list of numbers, or one number per line, in the order of the samples.
        Raises DataError if the file is not such a list, or has another length than the data set."""
        what = self.score_name
        try:
            text = text_of(file)
            found = json.loads(text) if text.lstrip().startswith("[") else text.split()
            numbers = [None if one is None and self.optional_scores else float(one) for one in found]
        except (OSError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise DataError(f"{file}: not a list of {what} ({error}); write one per line, or a JSON list") from error
        if len(numbers) != len(dataset):
            raise DataError(f"{file} has {len(numbers)} {what} for {len(dataset)} samples; write one for each")
        return numbers

    def agreement(self, prediction: Any, answer: float) -> float:
        """Return 1 less the difference of the scores, at least 0."""
        apart: float = abs(prediction.score - answer)
        return max(0.0, 1.0 - apart)
