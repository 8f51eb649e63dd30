"""Text classification: a class for every text, or pair of texts; accuracy, macro F1 or Matthews' correlation."""

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
from utils.metrics.classification import refuse_trivial
from utils.metrics.f1 import Accuracy, MacroF1, Matthews
from utils.outputs import DEFAULT, DTYPE, LABELS, refuse_topk
from utils.preprocess.text.lengths import count_cut, say_cut
from utils.preprocess.text.tokens import Encoded, Given, Tokens
from utils.preprocess.text.words import encode, numbered
from utils.stored import Stored
from utils.tasks.base import ExportSetting, Flag, Options, Rendering
from utils.tasks.common.outputs import KIND_FLAG, are_labels, class_rows, in_words
from utils.tasks.common.text_input import (
    COLUMN_FLAGS,
    LENGTH_FLAGS,
    TEXT_FLAGS,
    TextTask,
    columns_of,
    fed,
    longest,
    typed_texts,
)
from utils.tasks.legacy import LegacyTask
from utils.tasks.model import Model
from utils.tasks.prepared import Prepared
from utils.tasks.templates.sentences import TEMPLATE

METRICS: Mapping[str, Callable[..., Metric]] = {"accuracy": Accuracy, "macro_f1": MacroF1, "matthews": Matthews}
"""What ``--metric`` may say."""

NOTE = "text_classification"
"""Key of what an export may store: the values of :data:`USUAL` that differ."""

CASES, PAIR_ORDERS = ("kept", "lower"), ("given", "swapped")

USUAL = {"case": CASES[0], "pair_order": PAIR_ORDERS[0], "label_order": ""}
"""How texts go in, and which class each output is: ``1,0`` says that the first one is class 1."""

ORDERS = ("1,0", "0,2,1", "1,0,2", "1,2,0", "2,0,1", "2,1,0")
"""Orders of two or three classes that are tried after an export."""

LISTED = 5
"""Classes that the summary names."""


def now(key: str, model: Model, options: Options) -> Any:
    """Return the value in use of a key of :data:`USUAL`: what the flag says, else what is stored, else the usual one.

    Raises:
        ModelError: the export stored something else.
    """
    value = getattr(options, key, None)
    if value is not None:
        return value
    if NOTE not in model.metadata:
        return USUAL[key]
    notes = model.stored.json(NOTE)
    value = notes.get(key, USUAL[key]) if isinstance(notes, dict) else None
    known = {"case": CASES, "pair_order": PAIR_ORDERS}.get(key)
    if not isinstance(value, str) or (known is not None and value not in known):
        what = f"one of {', '.join(known)}" if known else "a text such as '1,0'"
        raise ModelError(f"{model.ckpt}: metadata {NOTE!r}: {key} {value!r} must be {what}; export the model again")
    return value


def _max_length(model: Model, options: Options) -> Any:
    return longest(model, options, Tokens.find(model, options))


class TextClassification(TextTask):
    """Texts in, as token numbers, logits out; a model with another tokeniser overrides ``prepare``."""

    name = "text_classification"
    domain_default = True
    template = TEMPLATE
    data_help = "a .tsv, .csv or .jsonl file with texts (or pairs) and labels, one of GLUE's folders, or a .txt file"
    flags = (
        *TEXT_FLAGS,
        *LENGTH_FLAGS,
        *COLUMN_FLAGS,
        KIND_FLAG,
        Flag("--topk", "answers per text; accuracy is top-k accuracy", 1, int),
        Flag("--metric", "the metric of record; the others are shown beside it", "accuracy", choices=tuple(METRICS)),
        Flag(
            "--neutral", "ratings nearer to 0 are left out of a second accuracy, where texts have ratings", 0.0, float
        ),
        Flag("--case", "letters as they are, or small ones", None, choices=CASES),
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
        if self.options.topk < 1:
            raise ConfigError(f"--topk {self.options.topk} must be at least 1")
        if not self.options.neutral >= 0:
            raise ConfigError(f"--neutral {self.options.neutral} must be at least 0")

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the texts, and their labels where they are known (:func:`~utils.datasets.text.texts.load_texts`)."""
        return self.selected(load_texts(paths["data"], columns_of(self.options)))

    def inline_samples(self) -> Dataset | None:
        """Return the texts of ``--text`` and ``--pair``."""
        return typed_texts(self.options)

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> None:
        """Refuse, before any text, a tokenizer of another model."""
        Tokens.find(self.model, self.options)

    def prepare(self, samples: Sequence[Given]) -> Prepared:
        """Number the tokens of each text, by the model's tokenizer or else the vocabulary that the export stored.

        Inputs go by name (:func:`~utils.tasks.common.text_input.fed`); texts are cut to what the model takes
        (:func:`~utils.tasks.common.text_input.longest`); contexts are the tokens.

        Raises:
            ModelError: neither a tokenizer nor a vocabulary is known, or an input is none of these.
            DataError: a text cannot be tokenized.
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
                f"{model.ckpt}: neither a tokenizer nor a vocabulary is stored in its metadata; export the model with "
                "one, or give its tokenizer.json with --tokenizer FILE"
            )
        return fed(_words(given, text, model, longest(model, options)), model)

    def decode(self, outputs: Any, contexts: Any) -> list[Array]:
        """Return probabilities, N rows of C float32, in the order of the classes; of logits by a softmax.

        Raises:
            InputError: the output is not N x C numbers of at least two classes, or ``--label_order`` is of another
                number.
            ConfigError: accuracy would be 1 whatever they are, as ``--topk`` takes all classes; or the model gives
                labels, and ``--topk`` asks for more.
        """
        model, options = self.model, self.options
        found = outputs[0] if isinstance(outputs, (list, tuple)) else outputs
        unsure = model.form(options).source in (DEFAULT, DTYPE)
        if unsure and (found.ndim != 2 or found.dtype.kind != "f" or found.shape[1] < 2) and not are_labels(found):
            raise InputError(
                f"{model.ckpt}: its first output has shape {found.shape} and dtype {found.dtype}; "
                "text classification takes N x C floating-point logits of two classes or more"
            )
        rows = class_rows(found, model, options)
        classes = rows.values.shape[1]
        if rows.are_labels:
            refuse_topk(options.topk, model.ckpt)
        if options.script == "valid":
            refuse_trivial(options.topk, classes, model.ckpt)
        logits = rows.values[:, self._order(classes)].astype(np.float32)
        if not rows.are_logits:
            return list(logits)
        with np.errstate(
            invalid="ignore"
        ):  # an infinite logit makes its text's scores NaN, which no metric calls right
            powers = np.exp(logits - logits.max(axis=1, keepdims=True))
            return list(powers / powers.sum(axis=1, keepdims=True))

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
        """Return the metric of record, with the others beside it; where texts have ratings, what these tell too."""
        rated = {"rated": True, "neutral": self.options.neutral} if dataset.notes.get("rated") else {}
        return METRICS[self.options.metric](self.options.topk, self.model.stored.labels, **rated)

    def show(self, sample: Given, prediction: Array) -> Rendering:
        """Return the ``--topk`` best classes with their scores; of equal scores the earlier class comes first."""
        names, classes = self.model.stored.labels, len(prediction)
        if names is not None and len(names) != classes:
            raise ModelError(
                f"{self.model.ckpt}: stores {len(names)} labels and gives scores of {classes} classes; export it with "
                "all labels"
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
        """Return how often each class came first, the most frequent ones."""
        best = np.array([int(np.argmax(prediction)) for prediction in predictions])
        names, (classes, counts) = self.model.stored.labels, np.unique(best, return_counts=True)
        order = np.argsort(-counts, kind="stable")[:LISTED].tolist()
        listed = ", ".join(f"{names[classes[one]] if names else classes[one]} x {counts[one]}" for one in order)
        return listed + (f", and {len(classes) - LISTED} more classes" if len(classes) > LISTED else "")

    def warning_counts(self, contexts: Sequence[Any] | None) -> Mapping[str, int]:
        """Count the texts that were cut."""
        return count_cut(contexts)

    def format_warnings(self, counts: Mapping[str, int], samples: int) -> Sequence[str]:
        """Say how many texts were cut."""
        said = say_cut(counts, samples)
        return [said] if said else []

    def reference_answers(self, file: Path, dataset: Dataset) -> Sequence[Any]:
        """Read the source framework's answers (:func:`~utils.tasks.common.text_answers.read_answers`)."""
        from utils.tasks.common.text_answers import read_answers

        return read_answers(file, dataset, self.model.stored.labels)

    def agreement(self, prediction: Array, answer: Any) -> float:
        """Return 1 where both say the same class, less what their scores differ by where that is known; else 0."""
        from utils.tasks.common.text_answers import agreement_of

        return agreement_of(prediction, answer)


def _as_trained(sample: Given, lower: bool, swapped: bool) -> Given:
    """Return a sample in the case, and a pair in the order, that the model was trained with."""
    if isinstance(sample, str):
        return sample.lower() if lower else sample
    one, two = (text.lower() for text in sample) if lower else sample
    return (two, one) if swapped else (one, two)


def _words(samples: Sequence[Given], text: str, model: Model, limit: int) -> list[Encoded]:
    """Return the words of each text by the vocabulary that is stored (:mod:`utils.preprocess.text.words`)."""
    known, unknown = _vocabulary(text, model.ckpt)
    found = []
    for sample in samples:
        if not isinstance(sample, str):
            raise ModelError(f"{model.ckpt}: stores a vocabulary of words, for one text and not two; give it one")
        numbers = encode(sample, known, unknown)
        kept = numbers[: limit or None]
        nothing = np.zeros_like(kept)
        found.append(Encoded(kept, nothing, np.stack([nothing, nothing], 1), nothing, len(numbers) - len(kept)))
    return found


@lru_cache(maxsize=8)
def _vocabulary(text: str, ckpt: Path) -> tuple[dict[str, int], int]:
    """Read a stored vocabulary, once: a large one takes longer than a batch."""
    return numbered(Stored({"vocabulary": text}, ckpt).vocabulary or [], str(ckpt))


TEXT_CLASSIFICATION = LegacyTask.view(TextClassification)
"""The same in the form before, for scripts that use ``dataclasses.replace``."""
