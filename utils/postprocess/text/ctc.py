"""Decoding of CTC, where a model returns at every step one of its characters, or a blank.

Connectionist temporal classification (Graves et al., 2006): a text results from a path, one class per step, by merging
repetitions and removing blanks. *Greedy* decoding takes the most likely path; :mod:`utils.postprocess.text.beam`
searches for the most likely text, as the sum over its paths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine import Array, ConfigError

NEAR_ONE = 0.02
"""Tolerance of the sum of a step's probabilities: 7000 of them, each rounded to float16 or int8."""


class Text(NamedTuple):
    """A decoded text.

    Attributes:
        text: the characters, left to right; empty if every step is blank.
        score: 0 to 1. Greedy: the mean probability of the steps that gave a character. Beam: the probability of the
            whole text. 0 for an empty text of greedy decoding.
        margin: greedy: the smallest gap between the two best classes of a step, in the unit of the outputs; NaN for
            other decoders.
    """

    text: str
    score: float
    margin: float = math.nan


def greedy(
    outputs: Array, charset: Sequence[str], blank: int = 0, *, time_major: bool = False, logits: bool | None = None
) -> list[Text]:
    """Return the text of the most likely path of each sample.

    The score uses the first step of each run, as in PP-OCR. The text of a sample with NaN is empty, with NaN as its
    score. Raises ConfigError if the outputs have another form, or the charset another length.

    Args:
        outputs: N x T x C, float: probabilities, their logarithms or logits; T x N x C if ``time_major``.
        charset: the C - 1 texts of the classes in their order, without the blank; usually one character each.
        blank: class of the blank; negative ones count from the end.
        logits: the outputs are not probabilities; ``None``: see :func:`probabilities`.
    """
    steps, names = batch_first(outputs, time_major), class_texts(outputs, charset, blank)
    empty = blank % len(names)
    path = steps.argmax(axis=-1)
    kept = path != empty
    kept[:, 1:] &= path[:, 1:] != path[:, :-1]
    best = _best(steps, path, logits)
    gaps = _gaps(steps)
    return [
        _read(row[mask], score, mask, names, gap) for row, mask, score, gap in zip(path, kept, best, gaps, strict=True)
    ]


def _gaps(steps: Array) -> list[float]:
    """Return per sample of N x T x C the smallest gap between the two best classes of a step."""
    if steps.shape[-1] < 2 or not steps.shape[1]:
        return [math.inf] * len(steps)
    best = np.partition(steps, -2, axis=-1)[..., -2:].astype(np.float64)
    with np.errstate(invalid="ignore"):  # infinite outputs give NaN
        gaps: list[float] = (best[..., 1] - best[..., 0]).min(axis=1).tolist()
    return gaps


def _read(classes: Array, score: Array, kept: Array, names: Sequence[str], gap: float) -> Text:
    if np.isnan(score).any():
        return Text("", math.nan, math.nan)
    text = "".join([names[place] for place in classes.tolist()])
    return Text(text, float(score[kept].mean()) if len(classes) else 0.0, gap)


def greedy_classes(steps: Array, blank: int = 0) -> tuple[list[int], float]:
    """Return the classes of the most likely path of T x C probabilities, without repetitions and blanks, and its score.

    The score is that of :class:`Text`: NaN if the steps contain NaN, 0 for no class.
    """
    if np.isnan(steps).any():
        return [], float("nan")
    path = steps.argmax(axis=-1)
    kept = path != blank
    kept[1:] &= path[1:] != path[:-1]
    classes = path[kept]
    return classes.tolist(), float(steps[kept, classes].mean()) if len(classes) else 0.0


def probabilities(outputs: Array, logits: bool | None = None) -> Array:
    """Return the outputs, ... x C probabilities, their logarithms or logits, as probabilities in float32.

    With ``logits`` a softmax is applied (which converts logarithms to their probabilities). ``None``: they are
    probabilities if none is negative and each step's sum is 1.
    """
    values = np.asarray(outputs, np.float32)
    if logits is None:
        logits = not are_probabilities(values)
    if not logits:
        return values
    with np.errstate(invalid="ignore"):  # infinite outputs become NaN, which the caller reports
        powers = np.exp(values - values.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True), np.float32)


def are_probabilities(values: Array) -> bool:
    """Return whether no value of ... x C is negative and each step's sum is 1; steps with NaN are ignored."""
    sums = values.sum(axis=-1, dtype=np.float32)
    known = ~np.isnan(sums)
    return bool((values.min(axis=-1)[known] >= 0).all() and (np.abs(sums[known] - 1) <= NEAR_ONE).all())


def _best(steps: Array, path: Array, logits: bool | None) -> Array:
    """Return the probability of each step's most likely class, N x T, without storing the softmax of all classes."""
    top = np.take_along_axis(steps, path[..., None], axis=-1)[..., 0].astype(np.float32)
    if logits is None:
        logits = not are_probabilities(steps)
    if not logits:
        return top
    with np.errstate(invalid="ignore"):  # as in probabilities
        return np.asarray(1 / np.exp(steps.astype(np.float32) - top[..., None]).sum(axis=-1), np.float32)


def batch_first(outputs: Array, time_major: bool) -> Array:
    """Return the outputs as N x T x C. Raises ConfigError if they do not have three dimensions."""
    steps = np.asarray(outputs)
    if steps.ndim != 3:
        raise ConfigError(f"the output has the shape {list(steps.shape)}; CTC needs samples x steps x classes")
    return steps.swapaxes(0, 1) if time_major else steps


def class_texts(outputs: Array, charset: Sequence[str], blank: int) -> list[str]:
    """Return a text per class, with an empty one for the blank.

    Raises ConfigError if the charset's length is not the number of classes minus one, or the blank is not a class.
    """
    classes = np.shape(outputs)[-1]
    if len(charset) != classes - 1:
        raise ConfigError(
            f"the output has {classes} classes and the charset {len(charset)} characters; there must be one class more "
            "than characters (the blank)"
        )
    if not -classes <= blank < classes:
        raise ConfigError(f"the blank is class {blank} of {classes}; it must be one of them, such as 0 or -1")
    names = list(charset)
    names.insert(blank % classes, "")
    return names
