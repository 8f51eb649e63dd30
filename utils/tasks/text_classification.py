"""Classification of texts or pairs of texts; metrics: accuracy, macro F1 and Matthews' correlation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, ConfigError, Engine, InputError, ModelError
from utils.datasets.base import Dataset
from utils.datasets.text.texts import load_texts
from utils.metrics.base import Metric
from utils.metrics.classification import check_topk
from utils.metrics.f1 import Accuracy, MacroF1, Matthews
from utils.outputs import LABELS, refuse_topk
from utils.preprocess.text.lengths import count_truncated, truncation_line
from utils.preprocess.text.tokens import Encoded, Given, Tokens
from utils.preprocess.text.words import encode, numbered
from utils.stored import ModelMetadata
from utils.tasks import ExportSetting, Flag, Model, Options, Prepared, Rendering, at_least
from utils.tasks.common.checks import setting_in_use
from utils.tasks.common.class_scores import ClassAnswers, check_class_scores, most_frequent, softmax
from utils.tasks.common.outputs import KIND_FLAG, class_rows, in_words
from utils.tasks.common.text_input import (
    COLUMN_FLAGS,
    LENGTH_FLAGS,
    TEXT_FLAGS,
    TextTask,
    columns_of,
    fed,
    inline_texts,
    longest,
)
from utils.tasks.templates import sample_tables

METRICS: Mapping[str, Callable[..., Metric]] = {"accuracy": Accuracy, "macro_f1": MacroF1, "matthews": Matthews}
"""Values of ``--metric``."""

NOTE = "text_classification"
"""Metadata key, optional: the values that differ from :data:`USUAL`."""

CASES, PAIR_ORDERS = ("kept", "lower"), ("given", "swapped")

USUAL = {"case": CASES[0], "pair_order": PAIR_ORDERS[0], "label_order": ""}
"""Defaults of the input format and of the order of outputs: ``1,0`` means that output 0 is class 1."""

ORDERS = ("1,0", "0,2,1", "1,0,2", "1,2,0", "2,0,1", "2,1,0")
"""Orders of two or three classes that ``teco fix`` tries."""

LISTED = 5
"""Number of classes in the summary."""


def now(key: str, model: Model, options: Options) -> Any:
    """Return the value in use of a key of :data:`USUAL` (:func:`.setting_in_use`)."""
    known = {"case": CASES, "pair_order": PAIR_ORDERS}.get(key, ())
    what = f"one of {', '.join(known)}" if known else "a text such as '1,0'"
    return setting_in_use(
        key,
        model,
        options,
        NOTE,
        USUAL,
        lambda _, value: isinstance(value, str) and (not known or value in known),
        what,
    )


def _max_length(model: Model, options: Options) -> Any:
    return longest(model, options, Tokens.find(model, options))


class TextClassification(ClassAnswers, TextTask):
    """Models from token ids to logits; a model with another tokenizer overrides ``prepare``."""

    name = "text_classification"
    domain_default = True
    template = sample_tables.TEXT_CLASSIFICATION
    data_help = "a .tsv, .csv or .jsonl file with texts (or pairs) and labels, one of GLUE's folders, or a .txt file"
    flags = (
        *TEXT_FLAGS,
        *LENGTH_FLAGS,
        *COLUMN_FLAGS,
        KIND_FLAG,
        Flag("--topk", "answers per text; accuracy is top-k accuracy", 1, int),
        Flag("--metric", "the metric of record; the others are reported too", "accuracy", choices=tuple(METRICS)),
        Flag("--neutral", "ratings closer to 0 are left out of a second accuracy, if texts have ratings", 0.0, float),
        Flag("--case", "case of letters: kept, or lower", None, choices=CASES),
        Flag("--pair_order", "which of two texts the model reads first", None, choices=PAIR_ORDERS),
        Flag("--label_order", "class of each output, such as 1,0", None, metavar="ORDER"),
    )
    metadata_key = NOTE
    export_settings = (
        ExportSetting("--label_order", ORDERS, "decode", partial(now, "label_order")),
        ExportSetting("--case", CASES[::-1], "prepare", partial(now, "case")),
        ExportSetting("--pair_order", PAIR_ORDERS[::-1], "prepare", partial(now, "pair_order")),
        ExportSetting("--max_length", (128, 256, 512, 64), "prepare", _max_length, fine=True),
    )

    def check(self) -> None:
        """Check lengths, ``--topk`` and ``--neutral``."""
        super().check()
        at_least(self.options, topk=1)
        if not self.options.neutral >= 0:
            raise ConfigError(f"--neutral {self.options.neutral} must be at least 0")

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the texts, and their labels if known (:func:`~utils.datasets.text.texts.load_texts`)."""
        return self.selected(load_texts(paths["data"], columns_of(self.options)))

    def inline_samples(self) -> Dataset | None:
        """Return the texts of ``--text`` and ``--pair``."""
        return inline_texts(self.options)

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> None:
        """Check that the tokenizer fits the model."""
        Tokens.find(self.model, self.options)

    def prepare(self, samples: Sequence[Given]) -> Prepared:
        """Tokenize texts by the model's tokenizer, else by the stored vocabulary; contexts are the tokens.

        Inputs are matched by name (:func:`~utils.tasks.common.text_input.fed`); texts are truncated to the model's
        length (:func:`~utils.tasks.common.text_input.longest`).

        Raises:
            ModelError: Tokenizer and vocabulary are missing, or an input is unknown.
            DataError: A text cannot be tokenized.
        """
        model, options = self.model, self.options
        lower, swapped = now("case", model, options) == "lower", now("pair_order", model, options) == "swapped"
        given = [_as_trained(sample, lower, swapped) for sample in samples]
        tokens = Tokens.find(model, options)
        if tokens is not None:
            return fed(tokens.encode(given, longest(model, options, tokens)), model)
        text = model.metadata.get("vocabulary")
        if text is None:
            raise ModelError(
                f"{model.ckpt}: its metadata has neither a tokenizer nor a vocabulary; export the model with one, or "
                "pass --tokenizer tokenizer.json"
            )
        return fed(_words(given, text, model, longest(model, options)), model)

    def decode(self, outputs: Any, contexts: Any) -> list[Array]:
        """Return probabilities, N rows of C float32, in the order of the classes; softmax of logits.

        Raises:
            InputError: The output is not N x C, or ``--label_order`` has another number of classes.
            ConfigError: ``--topk`` is the number of classes, so that accuracy is always 1, or the model outputs labels
                and ``--topk`` is above 1.
        """
        model, options = self.model, self.options
        found = outputs[0] if isinstance(outputs, (list, tuple)) else outputs
        check_class_scores(found, model, options)
        rows = class_rows(found, model, options)
        classes = rows.values.shape[1]
        if rows.are_labels:
            refuse_topk(options.topk, model.ckpt)
        if options.script == "valid":
            check_topk(options.topk, classes, model.ckpt)
        logits = rows.values[:, self._order(classes)].astype(np.float32)
        return list(softmax(logits) if rows.are_logits else logits)

    def _order(self, classes: int) -> Array:
        """Return the output of each class."""
        text = str(now("label_order", self.model, self.options))
        if not text:
            return np.arange(classes)
        words = text.split(",")
        if sorted(words) != sorted(map(str, range(classes))):
            raise InputError(
                f"--label_order {text}: {self.model.ckpt} has {classes} classes; name each of 0 to {classes - 1} once, "
                f"as in {','.join(map(str, reversed(range(min(classes, 3)))))}"
            )
        return np.argsort([int(word) for word in words])

    def metric(self, dataset: Dataset) -> Metric:
        """Return the metric of record; with ratings it also reports figures from these."""
        rated = {"rated": True, "neutral": self.options.neutral} if dataset.notes.get("rated") else {}
        return METRICS[self.options.metric](self.options.topk, self.model.stored.labels, **rated)

    def show(self, sample: Given, prediction: Array) -> Rendering:
        """Return the ``--topk`` best classes with their scores; the lower class first if scores are equal."""
        names, classes = self.model.stored.labels, len(prediction)
        if names is not None and len(names) != classes:
            raise ModelError(
                f"{self.model.ckpt}: stores {len(names)} labels and outputs scores of {classes} classes; export it "
                "with all labels"
            )
        scored = self.model.form(self.options).kind != LABELS
        answer = [
            {
                "label": names[place] if names else str(place),
                "score": round(float(prediction[place]), 4) if scored else None,
            }
            for place in np.argsort(-prediction, kind="stable")[: self.options.topk].tolist()
        ]
        return Rendering("   ".join(map(in_words, answer)), answer)

    def summary(self, predictions: Sequence[Array]) -> str:
        """Return how often each class came first."""
        return most_frequent(predictions, self.model.stored.labels, LISTED)

    def warning_counts(self, contexts: Sequence[Any] | None) -> Mapping[str, int]:
        """Count truncated texts."""
        return count_truncated(contexts)

    def format_warnings(self, counts: Mapping[str, int], samples: int) -> Sequence[str]:
        """Return a line about truncated texts."""
        said = truncation_line(counts, samples)
        return [said] if said else []


def _as_trained(sample: Given, lower: bool, swapped: bool) -> Given:
    """Return a sample in the case, and a pair in the order, of the model's training data."""
    if isinstance(sample, str):
        return sample.lower() if lower else sample
    one, two = (text.lower() for text in sample) if lower else sample
    return (two, one) if swapped else (one, two)


def _words(samples: Sequence[Given], text: str, model: Model, limit: int) -> list[Encoded]:
    """Return the words of each text by the stored vocabulary (:mod:`utils.preprocess.text.words`)."""
    known, unknown = _vocabulary(text, model.ckpt)
    found = []
    for sample in samples:
        if not isinstance(sample, str):
            raise ModelError(f"{model.ckpt}: has a vocabulary of words, which supports single texts only, not pairs")
        numbers = encode(sample, known, unknown)
        kept = numbers[: limit or None]
        nothing = np.zeros_like(kept)
        found.append(Encoded(kept, nothing, np.stack([nothing, nothing], 1), nothing, len(numbers) - len(kept)))
    return found


@lru_cache(maxsize=8)
def _vocabulary(text: str, ckpt: Path) -> tuple[dict[str, int], int]:
    """Read a stored vocabulary, cached: a large one takes longer than a batch."""
    return numbered(ModelMetadata({"vocabulary": text}, ckpt).vocabulary or [], str(ckpt))
