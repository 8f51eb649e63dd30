"""Scores of classes, and answers of a source framework that are classes or one number per sample."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from engine import Array, DataError, InputError
from tecoinfer_modelzoo.files import text_of
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


class ClassAnswers(Compare):
    """Reference answers of a task whose predictions are scores of classes."""

    def reference_answers(self, file: Path, dataset: Dataset) -> Sequence[Any]:
        """Read classes, with or without scores (:func:`~utils.tasks.common.text_answers.read_answers`)."""
        from utils.tasks.common.text_answers import read_answers

        return read_answers(file, dataset, self.model.stored.labels)

    def agreement(self, prediction: Array, answer: Any) -> float:
        """Return 1 less the difference of the scores if the classes are the same, else 0."""
        from utils.tasks.common.text_answers import agreement_of

        return agreement_of(prediction, answer)


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
