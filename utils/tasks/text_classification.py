"""Text classification: a class for every text; the metric is accuracy or macro F1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, ConfigError, InputError, ModelError, TensorSpec
from utils.datasets.base import Dataset
from utils.datasets.text import load_texts
from utils.metrics.base import Metric
from utils.metrics.classification import refuse_trivial
from utils.metrics.f1 import Accuracy, MacroF1
from utils.preprocess.text.words import encode, numbered
from utils.stored import Stored
from utils.tasks.base import Artifact, Flag, Options, Task
from utils.tasks.model import Model
from utils.tasks.prepared import Prepared
from utils.tasks.templates.sentences import TEMPLATE

METRICS = {"accuracy": Accuracy, "macro_f1": MacroF1}
"""What ``--metric`` may say."""


def load(paths: Mapping[str, Path], options: Options) -> Dataset:
    """Return the texts, and their labels where they are known (:func:`~utils.datasets.text.load_texts`).

    The script for one sample takes the first texts of a file, a batch of them.
    """
    found = load_texts(paths["data"])
    if options.script != "single":
        return found
    return found.select(range(min(len(found), options.batch_size)))


def prepare(samples: Sequence[str], model: Model, options: Options) -> Prepared:
    """Number the words of each text by the vocabulary the export stored, as :mod:`utils.preprocess.text.words` does.

    Inputs go by name: one with ``mask`` in it is 1 for every word, one with ``type`` in it is 0 (BERT's segments), and
    the one that is left takes the numbers. Each input is a list of arrays, one per text and as long as it has words, at
    most ``--max_length``; ``collate`` pads them with 0.

    Raises:
        ModelError: no vocabulary is stored, it has no token for unknown words, or an input is none of these.
    """
    text = model.metadata.get("vocabulary")
    if text is None:
        raise ModelError(f"{model.ckpt}: no vocabulary is stored in its metadata; export the model with one")
    known, unknown = _vocabulary(text, model.ckpt)
    numbers = [encode(sample, known, unknown, options.max_length) for sample in samples]
    kinds = _kinds(model)
    return Prepared(
        [[_filled(row, kind, spec) for row in numbers] for kind, spec in zip(kinds, model.inputs, strict=True)]
    )


@lru_cache(maxsize=8)
def _vocabulary(text: str, ckpt: Path) -> tuple[dict[str, int], int]:
    """Read a stored vocabulary, once: a large one takes longer than a batch."""
    return numbered(Stored({"vocabulary": text}, ckpt).vocabulary or [], str(ckpt))


def _kinds(model: Model) -> list[str]:
    """Return what each input takes: ``mask``, ``type`` or ``words``."""
    kinds = [next((kind for kind in ("mask", "type") if kind in spec.name.lower()), "words") for spec in model.inputs]
    if kinds.count("words") != 1 or len(set(kinds)) != len(kinds):
        raise ModelError(
            f"{model.ckpt}: its inputs are {', '.join(spec.name for spec in model.inputs)}; text classification feeds "
            "one of word numbers and maybe one named ...mask... and one named ...type...; replace prepare in the task"
        )
    return kinds


def _filled(row: Array, kind: str, spec: TensorSpec) -> Array:
    values = {"words": row, "mask": np.ones_like(row), "type": np.zeros_like(row)}[kind]
    return values if spec.dtype.kind in "iu" else values.astype(spec.dtype)


def decode(outputs: Any, contexts: Any, model: Model, options: Options) -> list[Array]:
    """Return the softmax over the classes of N x C logits: N rows of C float32.

    Raises:
        InputError: the output is not N x C numbers.
        ConfigError: accuracy would be 1 whatever they are, as ``--topk`` takes all classes.
    """
    found = outputs[0] if isinstance(outputs, (list, tuple)) else outputs
    if found.ndim != 2 or found.dtype.kind != "f" or not found.shape[1]:
        raise InputError(
            f"{model.ckpt}: its first output has shape {found.shape} and dtype {found.dtype}; "
            "text classification takes N x C floating-point logits"
        )
    if options.script == "valid":
        refuse_trivial(options.topk, found.shape[1], model.ckpt)
    logits = found.astype(np.float32)
    with np.errstate(invalid="ignore"):  # an infinite logit makes its text's scores NaN, which no metric calls right
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        return list(powers / powers.sum(axis=1, keepdims=True))


def metric(options: Options, dataset: Dataset, model: Model) -> Metric:
    """Return top-k accuracy with macro F1 beside it, or macro F1 with the accuracy beside it."""
    return METRICS[options.metric](options.topk, model.stored.labels)


def show(sample: str, prediction: Array, model: Model, options: Options) -> Artifact:
    """Return the ``--topk`` best classes with their scores; of equal scores the earlier class comes first."""
    names = model.stored.labels
    _check_labels(names, len(prediction), model)
    best = np.argsort(-prediction, kind="stable")[: options.topk].tolist()
    answer = [
        {"label": names[place] if names else str(place), "score": round(float(prediction[place]), 4)} for place in best
    ]
    return Artifact("   ".join(f"{one['label']}  {one['score']:.2f}" for one in answer), answer)


def _check_labels(names: Sequence[str] | None, classes: int, model: Model) -> None:
    if names is not None and len(names) != classes:
        raise ModelError(
            f"{model.ckpt}: stores {len(names)} labels and gives scores of {classes} classes; export it with all labels"
        )


def _check(options: Options) -> None:
    if options.max_length < 0:
        raise ConfigError(f"--max_length {options.max_length} must be at least 0; 0 truncates nothing")
    if options.topk < 1:
        raise ConfigError(f"--topk {options.topk} must be at least 1")


FLAGS = (
    Flag("--max_length", "words of a text that are used, the first ones; 0: all", 0, int),
    Flag("--topk", "answers per text; accuracy is top-k accuracy", 1, int),
    Flag("--metric", "the metric of record; the other one is shown beside it", "accuracy", choices=tuple(METRICS)),
)

TEXT_CLASSIFICATION = Task(
    name="text_classification",
    domain="nlp",
    load=load,
    prepare=prepare,
    decode=decode,
    metric=metric,
    show=show,
    check=_check,
    flags=FLAGS,
    template=TEMPLATE,
    data_help="a .tsv, .csv or .jsonl file with columns text and label, or a .txt file",
)
"""Texts in, as word numbers, logits out; a model with another tokeniser replaces ``prepare``."""
