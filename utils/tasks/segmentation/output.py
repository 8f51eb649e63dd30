"""Outputs of a segmentation model in any layout: scores per class, foreground scores, or class numbers."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

from engine import Array, InputError, ModelError
from tecoinfer_modelzoo.text import shape_text
from utils import outputs as kinds
from utils.postprocess.image.class_maps import log_odds, logarithms
from utils.tasks import Model, Options
from utils.tasks.common.outputs import are_shares, check_probabilities, labels_of


class Maps(NamedTuple):
    """Output with the class axis first: N x C x h x w scores, or N x h x w class numbers."""

    values: Array  # the numbers
    kind: str  # one of KINDS
    independent: bool = False  # whether the probabilities of classes are independent (of a sigmoid)

    def scores(self, one: Array) -> Array:
        """Return one image's scores in a form that can be interpolated: logits or logarithms."""
        if self.kind == kinds.LOG_PROBABILITIES and self.values.shape[1] == 1:
            return log_odds(np.exp(one.astype(np.float32)))
        if self.kind != kinds.PROBABILITIES:
            return one
        return log_odds(one) if self.independent else logarithms(one)


def class_count(model: Model, options: Options, place: int) -> int | None:
    """Return the number of classes of an output; ``None`` if unknown.
    Raises ModelError if the metadata cannot be read, or contradicts the graph."""
    spec, form = model.outputs[place], model.form(options, place)
    if form.kind == kinds.LABELS:
        return form.classes
    if len(spec.shape) == 3:
        return 2
    channels = spec.shape[-1 if form.layout == kinds.CHANNELS_LAST else 1] if len(spec.shape) == 4 else None
    return None if channels is None else max(2, channels)


def read(found: Array, samples: int, canvas: tuple[int, int], model: Model, options: Options, place: int) -> Maps:
    """Return an output with its kind.

    Args:
        found: the output. samples: number of images. canvas: height and width of the input.
        model: its metadata and graph define the kind. options: flags override it. place: index of the output.

    Raises:
        InputError: The output has another shape, or values that contradict its kind.
        ModelError: The number of labels is not that of classes, or the kind is unknown.
    """
    form = model.form(options, place)
    if form.kind == kinds.LABELS or found.dtype.kind in "iub":
        return Maps(_labels(found, samples, form, model), kinds.LABELS)
    kinds.refuse_labels(form, model.ckpt, "scores of classes are needed")
    if found.ndim == 3 and form.source != kinds.DEFAULT:
        found = found[:, None]
    if found.ndim != 4 or found.dtype.kind != "f" or len(found) != samples:
        raise _unknown(found, samples, model)
    if _layout(found, canvas, form, model) == kinds.CHANNELS_LAST:
        found = np.moveaxis(found, 3, 1)
    channels, labels = found.shape[1], model.stored.labels
    if labels is not None and len(labels) != channels and not (channels == 1 and len(labels) <= 2):
        raise ModelError(
            f"{model.ckpt}: stores {len(labels)} labels and its output has {channels} channels "
            f"({shape_text(found.shape)}, {form.layout or kinds.CHANNELS_FIRST}); export it with all labels, or pass "
            "--output_layout"
        )
    if channels == 1 and form.source == kinds.DEFAULT and _are_whole(found):
        raise ModelError(
            f"{model.ckpt}: output {form.name!r} has one channel of whole numbers, which may be labels or logits; "
            "pass --output_kind labels, or --output_kind logits"
        )
    if form.kind != kinds.PROBABILITIES:
        if channels == 1 and form.source == kinds.DEFAULT:
            _hint(found, model)
        return Maps(found, form.kind)
    check_probabilities(found, form, model)
    return Maps(found, kinds.PROBABILITIES, channels == 1 or not _exclude(found, form))


def _labels(found: Array, samples: int, form: kinds.OutputForm, model: Model) -> Array:
    """Return class numbers, N x h x w; -1 for NaN."""
    if found.ndim == 4 and found.shape[1] == 1:
        found = found[:, 0]
    elif found.ndim == 4 and found.shape[3] == 1:
        found = found[..., 0]
    if found.ndim != 3 or len(found) != samples:
        raise _unknown(found, samples, model)
    numbers = labels_of(found, form, model)
    if numbers.dtype.kind != "f":
        return numbers
    return np.where(np.isnan(numbers), -1, numbers).astype(np.int16)


def _unknown(found: Array, samples: int, model: Model) -> InputError:
    return InputError(
        f"{model.ckpt}: an output of shape {found.shape} and dtype {found.dtype} for {samples} samples; expected "
        "scores N x C x h x w or N x h x w x C, or class numbers N x h x w; if the graph does not define the kind, "
        "pass --output_kind"
    )


def _layout(found: Array, canvas: tuple[int, int], form: kinds.OutputForm, model: Model) -> str:
    """Return the layout: the form's, else by the number of labels, else by the input's aspect ratio.
    Maps have the size of the input, or are smaller by an equal factor in both directions."""
    if form.layout is not None:
        return form.layout
    labels = model.stored.labels
    if labels is not None and (found.shape[1] == len(labels)) != (found.shape[3] == len(labels)):
        return kinds.CHANNELS_FIRST if found.shape[1] == len(labels) else kinds.CHANNELS_LAST
    first, last = (_is_part(sides, canvas) for sides in (found.shape[2:], found.shape[1:3]))
    return kinds.CHANNELS_LAST if last and not first else kinds.CHANNELS_FIRST


def _is_part(sides: tuple[int, ...], canvas: tuple[int, int]) -> bool:
    steps = [whole / side if side else 0 for whole, side in zip(canvas, sides, strict=True)]
    return steps[0] == steps[1] and steps[0] >= 1


def _exclude(found: Array, form: kinds.OutputForm) -> bool:
    """Return whether the probabilities of a pixel sum to 1."""
    if form.operator:
        return form.operator == "Softmax"
    return are_shares(np.moveaxis(found, 1, -1))


def _hint(found: Array, model: Model) -> None:
    """Warn if foreground scores of unknown kind look like probabilities."""
    low, high = float(np.nanmin(found, initial=1)), float(np.nanmax(found, initial=0))
    if 0 <= low < high <= 1:
        warnings.warn(
            f"{model.ckpt}: its output is read as logits, and all values are in 0..1; if they are probabilities, pass "
            "--output_kind probabilities",
            stacklevel=3,
        )


def _are_whole(found: Array) -> bool:
    """Return whether all values are class numbers."""
    known = found[~np.isnan(found)]
    return bool(known.size and (known >= 0).all() and (known == np.floor(known)).all() and known.max() > 0)
