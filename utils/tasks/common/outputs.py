"""A model's outputs as a task reads them: one row of scores per sample, whatever kind of output gave them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from engine import Array, InputError, ModelError
from tecoinfer_modelzoo.text import shape_text
from utils.outputs import (
    DEFAULT,
    DTYPE,
    FLAG,
    GRAPH,
    KINDS,
    LABELS,
    LAYOUTS,
    LOG_PROBABILITIES,
    METADATA,
    PROBABILITIES,
    OutputForm,
    refuse_labels,
)
from utils.tasks.base import Flag, Options
from utils.tasks.model import Model

KIND_FLAG = Flag("--output_kind", "what the model gives (default: as stored, or by its graph)", None, choices=KINDS)
LAYOUT_FLAG = Flag(
    "--output_layout", "where the output's classes lie (default: as stored, or by its graph)", None, choices=LAYOUTS
)

NEAR = 0.02
"""How far a probability may lie outside 0..1, and a sum of them from 1: float16 and int8 round."""


class Rows(NamedTuple):
    """Scores of classes, N x C, and how to read them.

    Attributes:
        values: N x C floats, or whole numbers as the model gave them.
        are_logits: a softmax is still to be taken; else they are probabilities.
        are_labels: the model gave the label of one class: 1 stands there, and 0 elsewhere.
    """

    values: Array
    are_logits: bool
    are_labels: bool = False


def class_rows(outputs: Any, model: Model, options: Options) -> Rows:
    """Return what a classifier gives as one row of scores per sample.

    Args:
        outputs: of a call: N x C, N x C x 1 x 1 or N x 1 x 1 x C scores; N or N x 1 scores of the second of two
            classes; N or N x 1 labels.
        model: says what its output is (:meth:`~utils.tasks.model.Model.form`). options: flags that say otherwise.

    Raises:
        InputError: the output has another shape, or is no probability where it should be one.
        ModelError: as many labels are stored as there are no classes, or it cannot be known what the output is.
    """
    found, flags = _array(outputs), (getattr(options, "output_kind", None), getattr(options, "output_layout", None))
    form = model.class_forms.get(flags)
    if form is None:
        form = model.class_forms[flags] = model.form(options, 0)
    if form.kind == LABELS and not (form.source == DTYPE and found.ndim > 1 and found.size > len(found)):
        return Rows(_one_hot(labels_of(found, form, model), form, model), False, True)
    if form.sorted and form.kind != LABELS:
        refuse_labels(form, model.ckpt, "scores of classes are needed")
    if found.ndim == 1 and not _says_two(form, model):
        found = found[None]  # a vector is the scores of one sample
    rows = _as_rows(found, model)
    if form.kind == LOG_PROBABILITIES:
        rows = np.exp(rows.astype(np.float32))
    elif form.kind == PROBABILITIES:
        check_probabilities(rows, form, model)
    are_logits = form.kind not in (PROBABILITIES, LOG_PROBABILITIES)
    if rows.shape[1] == 1:
        rows, are_logits = _of_two(rows, form, model, are_logits), False
    labels = model.stored.labels
    if labels is not None and len(labels) != rows.shape[1]:
        raise ModelError(
            f"{model.ckpt}: stores {len(labels)} labels and its output has {rows.shape[1]} classes "
            f"({shape_text(found.shape)}); export it with all labels, or correct --output_kind"
        )
    if are_logits and form.source == DEFAULT:
        _hint(rows, model)
    return Rows(rows, are_logits)


def _array(outputs: Any) -> Array:
    found = outputs[0] if isinstance(outputs, (list, tuple)) else outputs
    return np.asarray(found.numpy() if hasattr(found, "numpy") else found)


def _as_rows(found: Array, model: Model) -> Array:
    """Return N x C of an output whose further dimensions are 1, or which has no dimension for classes."""
    wide = [size for size in found.shape[1:] if size != 1]
    if found.dtype.kind not in "fiu" or not found.ndim or not found.size or len(wide) > 1:
        raise InputError(
            f"{model.ckpt}: cannot classify outputs of shape {shape_text(found.shape)} and dtype {found.dtype}; they "
            "must be N x C numbers"
        )
    return found.reshape(len(found), -1)


def _of_two(rows: Array, form: OutputForm, model: Model, are_logits: bool) -> Array:
    """Return N x 2 probabilities of N x 1 scores of the second class."""
    labels = model.stored.labels
    if not _says_two(form, model):
        many = "no labels" if labels is None else f"{len(labels)} labels"
        raise ModelError(
            f"{model.ckpt}: stores {many} and gives one score per sample, which says one of two classes; export it "
            "with two labels, or say what the score is with --output_kind"
        )
    second = sigmoid(rows) if are_logits else rows.astype(np.float32)
    return np.concatenate([1 - second, second], axis=1)


def _says_two(form: OutputForm, model: Model) -> bool:
    """Say whether one score per sample can be that of the second of two classes: by the labels, a flag or the graph."""
    labels = model.stored.labels
    if labels is not None:
        return len(labels) == 2
    return form.source in (FLAG, METADATA) or form.operator in ("Sigmoid", "HardSigmoid")


def sigmoid(values: Array) -> Array:
    """Return the logistic function of values, in float32 at least, without an overflow."""
    wide = np.asarray(values, np.result_type(values.dtype, np.float32))
    found: Array = 0.5 * (1 + np.tanh(wide / 2))
    return found


def labels_of(found: Array, form: OutputForm, model: Model, named: bool = True) -> Array:
    """Return labels as they are, checked; NaN among them stays.

    Args:
        found: the output. form: what it is. model: for its stored labels and messages.
        named: the stored labels name these classes.

    Raises:
        InputError: they are not whole numbers from 0 on, or not below the number of classes.
        ModelError: as many labels are stored as the graph has no classes.
    """
    known = found[~np.isnan(found)] if found.dtype.kind == "f" else found
    odd = known[(known != np.floor(known)) | (known < 0)] if known.dtype.kind == "f" else known[known < 0]
    if odd.size:
        raise InputError(
            f"{model.ckpt}: output {form.name!r} holds labels, and {odd[0]:g} is none; say what it is with "
            "--output_kind"
        )
    classes, labels = form.classes, model.stored.labels if named else None
    if classes is not None and labels is not None and classes != len(labels) and (classes, len(labels)) != (2, 1):
        raise ModelError(
            f"{model.ckpt}: stores {len(labels)} labels and its output {form.name!r} is one of {classes} classes; "
            "export it with all labels"
        )
    if classes is not None and known.size and known.max() >= classes:
        raise InputError(
            f"{model.ckpt}: output {form.name!r} gives class {known.max():g} and has {classes} classes "
            f"(0 to {classes - 1}); export it with all labels"
        )
    return found


def _one_hot(labels: Array, form: OutputForm, model: Model) -> Array:
    """Return N x C float32 with 1 at each sample's label; a row of NaN where it is NaN."""
    if not labels.size or labels.size != len(labels):
        raise InputError(
            f"{model.ckpt}: output {form.name!r} holds labels of shape {shape_text(labels.shape)}; one per sample is "
            "needed"
        )
    if form.classes is None:
        raise ModelError(
            f"{model.ckpt}: output {form.name!r} holds labels, and how many classes there are is not known; store "
            "class_labels in its metadata"
        )
    flat = labels.reshape(-1).astype(np.float64)
    lost = np.isnan(flat)
    rows = np.zeros((len(flat), form.classes), np.float32)
    rows[np.arange(len(flat)), np.where(lost, 0, flat).astype(np.int64)] = 1
    rows[lost] = np.nan
    return rows


def check_probabilities(values: Array, form: OutputForm, model: Model) -> None:
    """Raise where what a flag or the metadata call probabilities are none; what the graph says needs no look.

    Raises:
        InputError: a value lies outside 0..1.
    """
    if form.source == GRAPH or not values.size:
        return
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if low < -NEAR or high > 1 + NEAR:
        raise InputError(
            f"{model.ckpt}: output {form.name!r} gives {low if low < -NEAR else high:g}, which is not a probability; "
            "use --output_kind logits, or export the model with its softmax or sigmoid"
        )


def are_shares(values: Array) -> bool:
    """Say whether rows of values look like the probabilities of classes: none is negative, and each row's sum is 1."""
    if values.dtype.kind != "f" or values.ndim < 2 or values.shape[-1] < 2 or not values.size:
        return False
    sums = values.sum(axis=-1, dtype=np.float32)
    return bool((values >= 0).all() and (np.abs(sums - 1) <= NEAR).all())


def _hint(rows: Array, model: Model) -> None:
    """Warn of scores that look like probabilities where nothing says what they are."""
    if are_shares(rows):
        warnings.warn(
            f"{model.ckpt}: its output is read as logits, and looks like probabilities: they are in 0..1 and their "
            "sums are 1; if they are, say --output_kind probabilities",
            stacklevel=3,
        )


def as_logarithms(values: Array, form: OutputForm, model: Model) -> Array:
    """Return numbers whose softmax is that of the model: logits as they are, probabilities as their logarithms.

    Args:
        values: ... x C floats. form: what they are. model: for messages.

    Raises:
        ModelError: they are labels. InputError: they are no probabilities.
    """
    refuse_labels(form, model.ckpt, "scores are needed", "")
    if form.kind != PROBABILITIES:
        return values
    check_probabilities(values, form, model)
    wide = values.astype(np.float32)
    return np.log(np.maximum(wide, np.finfo(np.float32).tiny))


def are_labels(found: Array) -> bool:
    """Say whether an output of whole numbers can be labels: it has one per sample."""
    return found.dtype.kind in "iub" and found.ndim > 0 and found.size == len(found)


def in_words(answer: Mapping[str, Any]) -> str:
    """Return a class with its score, where it has one."""
    return str(answer["label"]) if answer["score"] is None else f"{answer['label']}  {answer['score']:.2f}"


def are_logits(form: OutputForm) -> bool | None:
    """Say whether scores of steps are logits, or logarithms, which a softmax is taken of; ``None``: it is not known."""
    return None if form.source == DEFAULT else form.kind not in (PROBABILITIES, LABELS)


def label_steps(outputs: Any, form: OutputForm, model: Model) -> Array:
    """Return labels of steps, N x T or T x N, as scores with a further axis of classes: 1 at each label, 0 elsewhere.

    Raises:
        InputError: they have another shape, or are no labels. ModelError: how many classes there are is not known.
    """
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
