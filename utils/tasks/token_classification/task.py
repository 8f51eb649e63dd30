"""Token classification: a tag for every word, such as named entities; the metric is the F1 of the entities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine import ConfigError, DataError, Engine, ModelError
from utils.datasets.base import Dataset, ListDataset
from utils.datasets.text.tagged import TAG_SEQUENCES, TAGS, Sentence, load_tagged, split_text
from utils.metrics.base import Metric
from utils.metrics.text.entities import METRICS, parts, plain_tags, scheme_of, types_of
from utils.preprocess.text.lengths import count_truncated, truncation_line
from utils.preprocess.text.tokens import Tokens
from utils.tasks import Prepared, Rendering
from utils.tasks.common.text_input import TextTask, fed, inline_texts, longest
from utils.tasks.templates import sample_texts
from utils.tasks.token_classification.entities import EntityFile, UnknownTypes, entities_of, rendered
from utils.tasks.token_classification.scores import Tagged, tags_of
from utils.tasks.token_classification.settings import EXPORT_SETTINGS, FLAGS, LOWER, NOTE, now
from utils.tasks.token_classification.words import Aligned, looked_up, tokenized


class TokenClassification(TextTask):
    """Models from token ids to a class per token: N x L x C logits or probabilities, or N x L labels."""

    name = "token_classification"
    template = sample_texts.TOKEN_CLASSIFICATION
    data_help = "CoNLL's columns (word and tag), .jsonl with tokens and tags or text and entities, .txt, or a folder"
    writes = "CoNLL's columns: word, its tag in the data (if any), predicted tag"
    flags = FLAGS
    export_settings, metadata_key = EXPORT_SETTINGS, NOTE

    def check(self) -> None:
        """Check lengths and ``--tag_column``."""
        super().check()
        if self.options.tag_column in (0, 1):
            raise ConfigError(f"--tag_column {self.options.tag_column}: the first column has the words; use 2 or more")

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the sentences, and their tags if known (:func:`~utils.datasets.text.tagged.load_tagged`)."""
        column, encoding = self.options.tag_column, self.options.encoding
        return self.selected(load_tagged(paths["data"], column=column, encoding=encoding))

    def inline_samples(self) -> Dataset | None:
        """Return the sentences of ``--text``."""
        found = inline_texts(self.options)
        if found is None:
            return None
        texts = found.batch(range(len(found)))
        return ListDataset([split_text(text) for text in texts.samples], names=texts.names)

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> None:
        """Check that the model stores its tags, and that the tokenizer fits it."""
        self._labels()
        Tokens.find(self.model, self.options)

    def _labels(self) -> list[str]:
        found = self.model.stored.labels
        if not found:
            raise ModelError(
                f"{self.model.ckpt}: its metadata has no class_labels, so its tags are unknown; export it with labels"
            )
        return found

    def prepare(self, samples: Sequence[Sentence]) -> Prepared:
        """Tokenize sentences by the model's tokenizer, else word by word by the stored vocabulary.

        Contexts are :class:`Aligned`. Inputs are matched by name (:func:`~utils.tasks.common.text_input.fed`). Words
        beyond the model's length are cut off, and get the tag ``O``.

        Raises:
            ModelError: Tokenizer and vocabulary are missing, or an input is unknown.
            DataError: A sentence cannot be tokenized.
        """
        model, options = self.model, self.options
        tokens = Tokens.find(model, options)
        limit = longest(model, options, tokens)
        if tokens is None:
            encoded, contexts = looked_up(samples, model, limit)
        else:
            lower, subword = now("case", model, options) == LOWER, now("subword", model, options)
            encoded, contexts = tokenized(samples, tokens, limit, lower, subword)
        return fed(encoded, model)._replace(contexts=contexts)

    def decode(self, outputs: Any, contexts: Sequence[Aligned]) -> list[Tagged]:
        """Return the tags of each sentence (:func:`~utils.tasks.token_classification.scores.tags_of`)."""
        return tags_of(outputs, contexts, self._labels(), self.model.form(self.options), self.model)

    def _scheme(self) -> str:
        """Return the scheme of the model's tags."""
        prefixes = {found[0] for found in map(parts, plain_tags(self._labels())) if found is not None}
        auto = "IOBES" if prefixes & {"E", "S"} else "IOB2" if "B" in prefixes else "IOB1"
        return auto if self.options.scheme == "auto" else str(self.options.scheme)

    def metric(self, dataset: Dataset) -> Metric:
        """Return the metric of record. Raises DataError if a tag is not one of entities, for ``--metric f1``."""
        labels, tags = self._labels(), dataset.notes.get(TAGS, ())
        other = next((tag for tag in (*labels, *tags) if parts(*plain_tags([tag])) is None), None)
        if other is not None and self.options.metric == "f1":
            raise DataError(f"tag {other!r} is neither O nor B-, I-, E- or S- with a type; use --metric accuracy")
        types = sorted(types_of(labels) | types_of(tags)) if other is None else []
        real = scheme_of(dataset.notes.get(TAG_SEQUENCES, ()))
        return METRICS[self.options.metric](types, self.options.mode, self._scheme(), real, labels)

    def show(self, sample: Sentence, prediction: Tagged) -> Rendering:
        """Return the sentence with its entities in brackets; saving writes it and a line per entity."""
        return rendered(sample, entities_of(sample, prediction, self.options.mode, self._scheme()), prediction)

    def summary(self, predictions: Sequence[Tagged]) -> str:
        """Return how often each tag that begins an entity, or each tag without a prefix, was found."""
        tags = (tag for one in predictions for tag in plain_tags(one.tags))
        counts = Counter(tag.removeprefix("B-").removeprefix("S-") for tag in tags if tag[:2] not in ("O", "I-", "E-"))
        return ", ".join(f"{kind} x {count}" for kind, count in counts.most_common(8)) or "no entity"

    def warning_counts(self, contexts: Sequence[Any] | None) -> Mapping[str, int]:
        """Count truncated sentences."""
        return count_truncated(contexts)

    def format_warnings(self, counts: Mapping[str, int], samples: int) -> Sequence[str]:
        """Return a line about truncated sentences."""
        said = truncation_line(counts, samples)
        return [said] if said else []

    def diagnostics(self) -> UnknownTypes:
        """Return the check for types of entities that the model does not have."""
        return UnknownTypes(types_of(self._labels()))

    def prediction_writer(self, path: Path, dataset: Dataset) -> EntityFile:
        """Return a writer of CoNLL's columns."""
        return EntityFile(path)

    def reference_answers(self, file: Path, dataset: Dataset) -> Sequence[Sequence[str]]:
        """Read the tags in the last column of a file with the sentences of the data set, as :class:`EntityFile` writes.
        Raises DataError if it has other sentences."""
        found, own = load_tagged(file), dataset.batch(range(len(dataset))).samples
        if found.targets is None or [one.words for one in found.samples] != [one.words for one in own]:
            raise DataError(
                f"{file}: its sentences are not the data's; write word and tag per line, in the data's order"
            )
        return found.targets

    def agreement(self, prediction: Tagged, answer: Sequence[str]) -> float:
        """Return the share of words with the same tag."""
        return sum(one == other for one, other in zip(prediction.tags, answer, strict=True)) / len(answer)
