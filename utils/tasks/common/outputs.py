"""Read a model's outputs: one row of class scores per sample from logits, probabilities or labels."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from engine import Array, InputError, ModelError
from tecoinfer_modelzoo.text import shape_text
from utils import outputs as kinds
from utils.tasks import Flag, Model, Options

_BY = "(default: by metadata or graph)"
KIND_FLAG = Flag("--output_kind", f"kind of the output {_BY}", None, choices=kinds.KINDS)
LAYOUT_FLAG = Flag("--output_layout", f"axis of the classes {_BY}", None, choices=kinds.LAYOUTS)

NEAR = 0.02
"""Tolerance on probabilities outside 0..1 and on their sum, as float16 and int8 round."""


class Rows(NamedTuple):
    """Scores of classes, N x C."""

    values: Array  # N x C floats or integers
    are_logits: bool  # before the softmax; else they are probabilities
    are_labels: bool = False  # the output is a label; the row is one-hot


def class_rows(outputs: Any, model: Model, options: Options) -> Rows:
    """Convert a classifier's outputs to one row of scores per sample.

    Args:
        outputs: of a call: N x C, N x C x 1 x 1 or N x 1 x 1 x C scores; N or N x 1 scores of the second of two
            classes; N or N x 1 labels.
        model: with the form of its output (:meth:`~utils.tasks.model.Model.form`). options: flags that override it.

    Raises:
        InputError: the output has another shape, or is not a probability as declared.
        ModelError: the number of stored labels is not that of classes, or the form of the output is unknown.
    """
    found, flags = _array(outputs), (getattr(options, "output_kind", None), getattr(options, "output_layout", None))
    form = model.class_forms.get(flags)
    if form is None:
        form = model.class_forms[flags] = model.form(options, 0)
    if form.kind == kinds.LABELS and not (form.source == kinds.DTYPE and found.ndim > 1 and found.size > len(found)):
        return Rows(_one_hot(labels_of(found, form, model), form, model), False, True)
    if form.sorted and form.kind != kinds.LABELS:
        kinds.refuse_labels(form, model.ckpt, "scores of classes are needed")
    if found.ndim == 1 and not _says_two(form, model):
        found = found[None]  # a vector holds the scores of one sample
    rows = _as_rows(found, model)
    if form.kind == kinds.LOG_PROBABILITIES:
        rows = np.exp(rows.astype(np.float32))
    elif form.kind == kinds.PROBABILITIES:
        check_probabilities(rows, form, model)
    are_logits = form.kind not in (kinds.PROBABILITIES, kinds.LOG_PROBABILITIES)
    if rows.shape[1] == 1:
        rows, are_logits = _of_two(rows, form, model, are_logits), False
    labels = model.stored.labels
    if labels is not None and len(labels) != rows.shape[1]:
        raise ModelError(
            f"{model.ckpt}: stores {len(labels)} labels and its output has {rows.shape[1]} classes "
            f"({shape_text(found.shape)}); export it with all labels, or correct --output_kind"
        )
    if are_logits and form.source == kinds.DEFAULT:
        _hint(rows, model)
    return Rows(rows, are_logits)


def first_of(outputs: Any) -> Any:
    """Return the first of a model's outputs, or its only one."""
    return outputs[0] if isinstance(outputs, (list, tuple)) else outputs


def _array(outputs: Any) -> Array:
    found = first_of(outputs)
    return np.asarray(found.numpy() if hasattr(found, "numpy") else found)


def _as_rows(found: Array, model: Model) -> Array:
    """Reshape an output with at most one dimension of classes to N x C."""
    wide = [size for size in found.shape[1:] if size != 1]
    if found.dtype.kind not in "fiu" or not found.ndim or not found.size or len(wide) > 1:
        raise InputError(
            f"{model.ckpt}: cannot classify outputs of shape {shape_text(found.shape)} and dtype {found.dtype}; they "
            "must be N x C numbers"
        )
    return found.reshape(len(found), -1)


def _of_two(rows: Array, form: kinds.OutputForm, model: Model, are_logits: bool) -> Array:
    """Convert N x 1 scores of the second class to N x 2 probabilities."""
    labels = model.stored.labels
    if not _says_two(form, model):
        many = "no labels" if labels is None else f"{len(labels)} labels"
        raise ModelError(
            f"{model.ckpt}: stores {many} and gives one score per sample, which needs two classes; export it with two "
            "labels, or set the kind of the score with --output_kind"
        )
    second = sigmoid(rows) if are_logits else rows.astype(np.float32)
    return np.concatenate([1 - second, second], axis=1)


def _says_two(form: kinds.OutputForm, model: Model) -> bool:
    """Return whether one score per sample is that of the second of two classes, by the labels, a flag or the graph."""
    labels = model.stored.labels
    if labels is not None:
        return len(labels) == 2
    return form.source in (kinds.FLAG, kinds.METADATA) or form.operator in ("Sigmoid", "HardSigmoid")


def sigmoid(values: Array) -> Array:
    """Return the logistic function of values, at least in float32, without overflow."""
    wide = np.asarray(values, np.result_type(values.dtype, np.float32))
    found: Array = 0.5 * (1 + np.tanh(wide / 2))
    return found


def labels_of(found: Array, form: kinds.OutputForm, model: Model, named: bool = True) -> Array:
    """Check labels, and return them unchanged, with NaN.

    Args:
        found: the output. form: of the output. model: for its stored labels and messages.
        named: the stored labels are the names of these classes.

    Raises:
        InputError: a label is not an integer of at least 0, or not below the number of classes.
        ModelError: the number of stored labels is not that of the graph's classes.
    """
    valid = found[~np.isnan(found)] if found.dtype.kind == "f" else found
    wrong = valid[(valid != np.floor(valid)) | (valid < 0)] if valid.dtype.kind == "f" else valid[valid < 0]
    if wrong.size:
        raise InputError(
            f"{model.ckpt}: output {form.name!r} must hold labels, got {wrong[0]:g}; set its kind with --output_kind"
        )
    classes, labels = form.classes, model.stored.labels if named else None
    if classes is not None and labels is not None and classes != len(labels) and (classes, len(labels)) != (2, 1):
        raise ModelError(
            f"{model.ckpt}: stores {len(labels)} labels and its output {form.name!r} is one of {classes} classes; "
            "export it with all labels"
        )
    if classes is not None and valid.size and valid.max() >= classes:
        raise InputError(
            f"{model.ckpt}: output {form.name!r} gives class {valid.max():g} and has {classes} classes "
            f"(0 to {classes - 1}); export it with all labels"
        )
    return found


def _one_hot(labels: Array, form: kinds.OutputForm, model: Model) -> Array:
    """Return one-hot rows, N x C float32; a row of NaN for a label of NaN."""
    if not labels.size or labels.size != len(labels):
        raise InputError(
            f"{model.ckpt}: output {form.name!r} holds labels of shape {shape_text(labels.shape)}; one per sample is "
            "needed"
        )
    if form.classes is None:
        raise ModelError(
            f"{model.ckpt}: output {form.name!r} holds labels of an unknown number of classes; store class_labels in "
            "its metadata"
        )
    flat = labels.reshape(-1).astype(np.float64)
    lost = np.isnan(flat)
    rows = np.zeros((len(flat), form.classes), np.float32)
    rows[np.arange(len(flat)), np.where(lost, 0, flat).astype(np.int64)] = 1
    rows[lost] = np.nan
    return rows


def check_probabilities(values: Array, form: kinds.OutputForm, model: Model) -> None:
    """Check values declared as probabilities by a flag or the metadata; a form from the graph is not checked.
    Raises InputError if a value lies outside 0..1."""
    if form.source == kinds.GRAPH or not values.size:
        return
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if low < -NEAR or high > 1 + NEAR:
        raise InputError(
            f"{model.ckpt}: output {form.name!r} gives {low if low < -NEAR else high:g}, which is not a probability; "
            "use --output_kind logits, or export the model with its softmax or sigmoid"
        )


def are_shares(values: Array) -> bool:
    """Return whether rows of values look like probabilities of classes: not negative, with a sum of 1."""
    if values.dtype.kind != "f" or values.ndim < 2 or values.shape[-1] < 2 or not values.size:
        return False
    sums = values.sum(axis=-1, dtype=np.float32)
    return bool((values >= 0).all() and (np.abs(sums - 1) <= NEAR).all())


def _hint(rows: Array, model: Model) -> None:
    """Warn if an output of unknown kind looks like probabilities."""
    if are_shares(rows):
        warnings.warn(
            f"{model.ckpt}: its output is read as logits, but looks like probabilities (in 0..1 with a sum of 1); if "
            "so, use --output_kind probabilities",
            stacklevel=3,
        )


def as_logarithms(values: Array, form: kinds.OutputForm, model: Model) -> Array:
    """Return logits, ... x C floats, unchanged, and probabilities as their logarithms.
    Raises ModelError if the output holds labels, and InputError if values are not probabilities as declared."""
    kinds.refuse_labels(form, model.ckpt, "scores are needed", "")
    if form.kind != kinds.PROBABILITIES:
        return values
    check_probabilities(values, form, model)
    wide = values.astype(np.float32)
    return np.log(np.maximum(wide, np.finfo(np.float32).tiny))


def are_labels(found: Array) -> bool:
    """Return whether an output can be labels: integers, one per sample."""
    return found.dtype.kind in "iub" and found.ndim > 0 and found.size == len(found)


def in_words(answer: Mapping[str, Any]) -> str:
    """Return a class with its score, if there is one, as text."""
    return str(answer["label"]) if answer["score"] is None else f"{answer['label']}  {answer['score']:.2f}"


def are_logits(form: kinds.OutputForm) -> bool | None:
    """Return whether scores are logits or log probabilities, which need a softmax; ``None``: unknown."""
    return None if form.source == kinds.DEFAULT else form.kind not in (kinds.PROBABILITIES, kinds.LABELS)


def label_steps(outputs: Any, form: kinds.OutputForm, model: Model) -> Array:
    """Convert labels of steps, N x T or T x N, to one-hot scores with a last axis of classes. Raises InputError if the
    output has another shape, or does not hold labels. Raises ModelError if the number of classes is unknown."""
    found = _array(outputs)
    found = found[..., 0] if found.ndim == 3 and found.shape[2] == 1 else found
    if found.ndim != 2:
        raise InputError(
            f"{model.ckpt}: output {form.name!r} holds labels of shape {shape_text(found.shape)}; samples x steps are "
            "needed"
        )
    words = model.stored.vocabulary
    form = form if form.classes is not None or words is None else replace(form, classes=len(words) + 1)
    numbers = labels_of(found, form, model, named=False)
    return _one_hot(numbers.reshape(-1), form, model).reshape(*found.shape, -1)


def outputs_of(engine: Any, rows: Array, step: int) -> list[Array]:
    """Return each output of a model for all rows, in calls of ``step`` rows; the last call repeats its last row.

    Args:
        engine: of a model with one input. rows: N x ..., N at least 1. step: at least 1.
    """
    parts = []
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        filled = np.concatenate([part, np.repeat(part[-1:], step - len(part), axis=0)])
        outputs = engine([np.ascontiguousarray(filled)])
        outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        parts.append([np.asarray(one)[: len(part)] for one in outputs])
    return [np.concatenate(column) for column in zip(*parts, strict=True)]
