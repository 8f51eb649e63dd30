"""From what a graph network gives to probabilities, whether it is logits, probabilities or labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from engine import Array, InputError, shape_text
from utils.outputs import LABELS, LOG_PROBABILITIES, PROBABILITIES
from utils.tasks.base import Options
from utils.tasks.model import Model
from utils.tasks.outputs import check_probabilities, class_rows, labels_of


def probabilities_of(found: Array, binary: bool, model: Model, options: Options) -> list[Array]:
    """Return the answer to each graph, float64: T probabilities, or those of C classes.

    Args:
        found: N x T or N x C scores, or N x T or N x 1 labels. binary: each of T answers is yes or no.
        model: says what its output is. options: flags that say otherwise.

    Raises:
        InputError: the output has another shape, or does not hold what it should.
        ModelError: as many labels are stored as there are no classes, or it cannot be known what the output is.
    """
    if not binary:
        rows = class_rows(found, model, options)
        values = rows.values.astype(np.float64)
        return list(softmax(values) if rows.are_logits else values)
    if found.ndim != 2:
        raise InputError(f"{model.ckpt}: its output has shape {shape_text(found.shape)}; N x T numbers are needed")
    form, values = model.form(options), found.astype(np.float64)
    if form.kind == LABELS:
        return list(labels_of(values, replace(form, classes=2), model, named=False))
    if form.kind == LOG_PROBABILITIES:
        return list(np.exp(values))
    if form.kind != PROBABILITIES:
        return list(sigmoid(values))
    check_probabilities(values, form, model)
    return list(values)


def softmax(values: Array) -> Array:
    """Return the softmax over the last axis of N x C float64."""
    with np.errstate(invalid="ignore", over="ignore"):
        powers = np.exp(values - values.max(axis=1, keepdims=True))
        found: Array = powers / powers.sum(axis=1, keepdims=True)
    return found


def sigmoid(values: Array) -> Array:
    """Return the logistic function of float64 values."""
    with np.errstate(invalid="ignore", over="ignore"):
        found: Array = 1 / (1 + np.exp(-values))
    return found
