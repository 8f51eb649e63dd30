"""Conversion of a classifier's raw outputs to scores and labels."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

import numpy as np

from engine import ConfigError, DataError, InputError, ModelError
from tecoinfer_modelzoo.files import text_of
from tecoinfer_modelzoo.text import shape_text
from utils.stored import ModelMetadata

__all__ = ["ClassScore", "Labels", "answers", "labels_from", "postprocess", "scores"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Labels: TypeAlias = "Mapping[str, str] | Sequence[str] | str | os.PathLike[str] | None"

_WORDNET_ID = re.compile(r"^n\d{8}\s+")


class ClassScore(TypedDict):
    """A class of an image: its score in 0..1 (``None`` if the model returns labels only) and its name."""

    score: float | None
    label: str


def postprocess(
    outputs: Any, target: str = "sdaa", topk: int = 1, labels: Labels = None
) -> list[ClassScore] | list[list[ClassScore]]:
    """Return a classifier's ``topk`` best classes.

    Args:
        outputs: N x C logits (see :func:`scores` for other forms).
        target: accepted for scripts of the original zoo and not used; outputs of any target are accepted.
        topk: number of classes, best first; at most C are returned.
        labels: see :func:`labels_from`; ``None`` for the class index as text. In a loop, read a file once with
            :func:`labels_from` and pass the list.

    Returns ``topk`` answers for one sample (N is 1, or ``outputs`` a vector); a list of such lists for more. Raises
    ConfigError if ``topk`` is below 1, InputError if the outputs are not one array of logits, and DataError if the
    labels cannot be read, or there are not C of them.
    """
    results = answers(outputs, topk, labels)
    return results[0] if len(results) == 1 else results


def answers(outputs: Any, topk: int = 1, labels: Labels = None, *, are_logits: bool = True) -> list[list[ClassScore]]:
    """Return the result of :func:`postprocess` as one list of answers per sample, even for a batch of one.

    Equal logits keep the order of their classes. A NaN makes the scores of its sample NaN and is ranked last. Without
    ``are_logits``, the outputs are probabilities, and no softmax is applied.
    """
    if topk < 1:
        raise ConfigError(f"topk {topk} must be at least 1")
    logits = _logits(outputs)
    names = labels_from(labels)
    if names is None:
        names = [str(index) for index in range(logits.shape[1])]
    if len(names) != logits.shape[1]:
        raise DataError(
            f"{len(names)} labels for a model with {logits.shape[1]} classes; pass the labels it was trained with"
        )
    best = _best(logits, min(topk, logits.shape[1]))
    best_scores = np.take_along_axis(_softmax(logits) if are_logits else logits, best, axis=1)
    return [
        [ClassScore(score=score, label=names[index]) for index, score in zip(*row, strict=True)]
        for row in zip(best.tolist(), best_scores.tolist(), strict=True)
    ]


def scores(outputs: Any) -> Array:
    """Return the softmax over the classes as N x C float32. Raises InputError if the outputs have another form.

    They are logits of any real dtype: N x C, N x C x 1 x 1, a vector of C, a list or tuple with one such array, or an
    object with such a ``numpy()`` (a torch or paddle tensor).
    """
    return _softmax(_logits(outputs))


def labels_from(source: Labels) -> list[str] | None:
    """Return the class labels, in class order; ``None`` if ``source`` is ``None``, or metadata without labels.

    The source is an engine's ``metadata`` (key ``class_labels``, a JSON list), a path to a text file with one label per
    line (in ``synset.txt`` the WordNet id before the name is removed), or the labels themselves. Raises DataError if
    the file or the metadata cannot be read or has no labels.
    """
    if isinstance(source, Mapping):
        try:
            return ModelMetadata(source).labels
        except ModelError as error:
            raise DataError(str(error)) from error
    if isinstance(source, (str, os.PathLike)):
        return _labels_in_file(Path(source))
    return None if source is None else list(source)


def _labels_in_file(path: Path) -> list[str]:
    try:
        lines = text_of(path).rstrip().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: cannot read labels ({error}); pass a UTF-8 text file with one label per line"
        ) from error
    if not lines:
        raise DataError(f"{path}: holds no labels; write one label per line")
    return [_WORDNET_ID.sub("", line.strip()) for line in lines]


def _logits(outputs: Any) -> Array:
    """Return the outputs as N x C float32."""
    array = only_output(outputs)
    trailing = array.shape[2:]
    if array.dtype.kind not in "fiu" or not array.ndim or not array.size or any(length != 1 for length in trailing):
        what = f"shape {shape_text(array.shape)} and dtype {array.dtype}"
        raise InputError(f"cannot classify outputs of {what}; they must be N x C numbers")
    return array.reshape((1, -1) if array.ndim == 1 else array.shape[:2]).astype(np.float32)


def only_output(outputs: Any) -> Array:
    """Return the only output as an array, also a framework's tensor; raise InputError if there are several, or none."""
    if isinstance(outputs, (list, tuple)):
        if len(outputs) != 1:
            raise InputError(
                f"got {len(outputs)} outputs, but classification needs one; pass the one with the class scores"
            )
        outputs = outputs[0]
    return np.asarray(outputs.numpy() if hasattr(outputs, "numpy") else outputs)


def _best(logits: Array, count: int) -> Array:
    """Return N x count class indices, best first; sorts the candidates only, four times faster than all."""
    keys = -logits  # ascending, so NaN sorts last
    limits = np.partition(keys, count - 1, axis=1)[:, count - 1]
    best = np.empty((len(keys), count), np.intp)
    for row, limit, result in zip(keys, limits, best, strict=True):
        candidates = np.flatnonzero(~(row > limit))  # with equal ones, and all if the limit is NaN
        result[:] = candidates[np.argsort(row[candidates], kind="stable")[:count]]
    return best


def _softmax(logits: Array) -> Array:
    """Return the softmax over the last axis; the maximum is subtracted first, so nothing overflows."""
    with np.errstate(invalid="ignore"):  # NaN and infinite logits give NaN scores
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        normalised: Array = exponentials / exponentials.sum(axis=1, keepdims=True)
    return normalised
