"""Tags of sentences from a model's scores of tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from engine import Array, InputError, ModelError
from tecoinfer_modelzoo.text import shape_text
from utils.outputs import CHANNELS_FIRST, LABELS, LOG_PROBABILITIES, PROBABILITIES, OutputForm
from utils.tasks import Model
from utils.tasks.common.class_scores import softmax
from utils.tasks.common.outputs import check_probabilities, first_of, label_steps
from utils.tasks.token_classification.words import Aligned

OUTSIDE = "O"


class Tagged(NamedTuple):
    """Tags of a sentence.

    Attributes:
        tags: one per word; ``O`` for a word that the model did not see.
        scores: probability of each, 0 for such a word.
        score: their mean over the words that the model saw; NaN if its output has NaN.
        margin: smallest difference of a word's two highest outputs.
    """

    tags: tuple[str, ...]
    scores: tuple[float, ...]
    score: float
    margin: float = math.nan


def tags_of(
    outputs: Any, contexts: Sequence[Aligned], labels: Sequence[str], form: OutputForm, model: Model
) -> list[Tagged]:
    """Return the tags of each sentence; of equal scores the first class wins.

    Args:
        outputs: of a call: N x L x C or (``channels_first``) N x C x L scores, or N x L labels.
        contexts: one per sentence. labels: C tags. form: of the output. model: for messages.

    Raises:
        InputError: The output has another shape.
        ModelError: The number of classes is not that of the labels.
    """
    found = np.asarray(first_of(outputs))
    if form.kind == LABELS:
        found = label_steps(found, form, model)
    elif form.layout == CHANNELS_FIRST and found.ndim == 3:
        found = np.moveaxis(found, 1, 2)
    if found.ndim != 3 or found.dtype.kind != "f":
        raise InputError(
            f"{model.ckpt}: its first output has shape {shape_text(found.shape)} and dtype {found.dtype}; token "
            "classification takes N x L x C scores, or N x L labels"
        )
    if found.shape[2] != len(labels):
        raise ModelError(
            f"{model.ckpt}: stores {len(labels)} labels and its output has {found.shape[2]} classes; export it with "
            "all labels, or correct --output_layout"
        )
    if form.kind == PROBABILITIES:
        check_probabilities(found, form, model)
    given = form.kind in (PROBABILITIES, LABELS)
    scale: Any = np.asarray if given else np.exp if form.kind == LOG_PROBABILITIES else softmax
    return [_tagged(row, context.places, labels, scale) for row, context in zip(found, contexts, strict=True)]


def _tagged(rows: Array, places: Array, labels: Sequence[str], scale: Any) -> Tagged:
    """Return the tags of a sentence from the L x C scores of its tokens; ``scale`` returns their probabilities."""
    known = places >= 0
    if not known.any():
        return Tagged((OUTSIDE,) * len(places), (0.0,) * len(places), 0.0)
    own = rows[places[known]].astype(np.float32)
    ranked = np.sort(own, axis=1)
    margin = float((ranked[:, -1] - ranked[:, -2]).min()) if own.shape[1] > 1 else math.inf
    tags, scores = np.full(len(places), OUTSIDE, object), np.zeros(len(places))
    tags[known] = [labels[place] for place in own.argmax(axis=1)]
    scores[known] = scale(own).max(axis=1)
    return Tagged(tuple(tags), tuple(scores.tolist()), float(scores[known].mean()), margin)
