"""Translation by an encoder and a decoder with a cache; the metrics are BLEU and chrF."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from engine import Array, ConfigError, DataError, Engine, Timeline
from tecoinfer_modelzoo.formatting import clean_line
from tecoinfer_modelzoo.text import one_line, shortened
from utils.datasets.base import Dataset
from utils.datasets.text.parallel import load_pairs
from utils.datasets.text.tables import read_lines
from utils.metrics.base import Metric
from utils.metrics.text.translation import METRICS, chrf, letter_counts
from utils.preprocess.text.lengths import count_truncated, truncation_line
from utils.preprocess.text.tokens import Encoded, Tokens
from utils.tasks import Model, OpenSizes, Prepared, Rendering, at_least
from utils.tasks.common.generation import figures_of
from utils.tasks.common.text_input import TextTask, fed, inline_texts, longest
from utils.tasks.templates import sample_texts
from utils.tasks.translation.decoding import Translated, TranslationFile, Writing, constants_of, likelihood, save
from utils.tasks.translation.settings import (
    DECODER,
    ENCODER,
    EXPORT_SETTINGS,
    FLAGS,
    LOWER,
    NOTE,
    Notes,
    now,
    plans_of,
    sizes_of,
    target_tokens,
)

MOST_PENALTY = 10.0

ENDS = {"stop": "ended", "limit": "cut by --max_new_tokens or --lengths", "nan": "NaN"}


class Translation(TextTask):
    """Models of two files: source tokens to states, and tokens with a cache and the states to logits."""

    name = "translation"
    models = (ENCODER, DECODER)
    template = sample_texts.TRANSLATION
    data_help = "src=A ref=B (texts, a line each), or a .tsv, .csv, .jsonl file with sources and translations, or .txt"
    writes = "a translation per line, as sacrebleu reads it"
    flags = FLAGS
    export_settings, metadata_key = EXPORT_SETTINGS, NOTE

    def check(self) -> None:
        """Check lengths, ``--max_new_tokens``, and that ``--length_penalty`` goes with a beam search."""
        super().check()
        at_least(self.options, max_new_tokens=1, beam_width=1)
        penalty = self.options.length_penalty
        if penalty is not None and not abs(penalty) <= MOST_PENALTY:
            raise ConfigError(
                f"--length_penalty {penalty:g} must be from -{MOST_PENALTY:g} to {MOST_PENALTY:g}; usual is 1"
            )
        if penalty is not None and self.options.beam_width == 1:
            raise ConfigError("--length_penalty needs a beam search; add --beam_width 4, or leave it out")

    @property
    def decoder(self) -> Model:
        """The decoder, which stores its tokens."""
        return self.model.named.get(DECODER, self.model)

    def open_sizes(self) -> Mapping[str, OpenSizes]:
        """Return the planned lengths of sources, and of the decoder's cache."""
        return sizes_of(self.options, super().open_sizes()["model"])

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return sources, with references if known (:func:`~utils.datasets.text.parallel.load_pairs`)."""
        options = self.options
        how: dict[str, Any] = {"source": options.source_column, "target": options.target_column}
        return self.selected(load_pairs(paths, **how, encoding=options.encoding))

    def inline_samples(self) -> Dataset | None:
        """Return the texts of ``--text``."""
        return inline_texts(self.options)

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> None:
        """Check the decoder's metadata, and that both tokenizers fit."""
        Notes.of(self.decoder)
        Tokens.of(self.model, self.options)
        target_tokens(self.decoder, self.options)

    def prepare(self, samples: Sequence[str]) -> Prepared:
        """Tokenize sources, with the prefix in front; contexts are the tokens.

        Raises:
            ModelError: The tokenizer is missing, or an input is unknown.
            DataError: A text cannot be tokenized.
        """
        model, options = self.model, self.options
        prefix, lower = now("prefix", model, options), now("case", model, options) == LOWER
        texts = [prefix + (one.lower() if lower else one) for one in samples]
        tokens = Tokens.of(model, options)
        return fed(tokens.encode(texts, longest(model, options, tokens)), model)

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Encoded]) -> list[Any]:
        """Return ``(score, tokens)`` per text, the score NaN if the model outputs NaN.
        With ``--skip_postprocess`` return the logits after the start tokens, N x V float32."""
        outputs = engines[ENCODER](arrays)
        states: list[Array] = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        constants = constants_of(self.model, self.decoder, arrays, states)
        writing = Writing(engines[DECODER], self.decoder, plans_of(self.options), constants)
        if getattr(self.options, "skip_postprocess", False):
            return [writing.first(len(contexts))]
        broken = np.zeros(len(contexts), bool)
        for state in states:
            broken |= np.isnan(state.reshape(len(state), -1)).any(axis=1)
        options = self.options
        penalty = 1.0 if options.length_penalty is None else options.length_penalty
        found = writing.translate(len(contexts), options.max_new_tokens, options.beam_width, penalty)
        return [(float("nan") if lost else likelihood(one), one) for one, lost in zip(found, broken, strict=True)]

    def decode(self, outputs: Sequence[Any], contexts: Sequence[Encoded]) -> list[Translated]:
        """Return the text of each translation."""
        tokens = target_tokens(self.decoder, self.options)
        return [Translated(tokens.decode(one.ids).strip(), score, len(one.ids), one.why) for score, one in outputs]

    def metric(self, dataset: Dataset) -> Metric:
        """Return the metric of record."""
        return METRICS[self.options.metric](self.options.tokenize, self.options.lowercase)

    def show(self, sample: str, prediction: Translated) -> Rendering:
        """Return the source with its translation as one line; saving writes both into a text file."""
        source, text = (shortened(clean_line(one), 200) for one in (sample, prediction.text))
        answer = {"source": sample, **prediction._asdict(), "score": round(prediction.score, 4)}
        line = f"{source} -> {text or '(nothing)'}  {prediction.score:.2f}"
        return Rendering(line, answer, partial(save, sample, prediction))

    def summary(self, predictions: Sequence[Translated]) -> str:
        """Return the number of tokens, and the reasons of the translations' ends."""
        ends = Counter(one.why for one in predictions)
        listed = ", ".join(f"{count} {ENDS.get(why, why)}" for why, count in sorted(ends.items()))
        return f"{sum(one.tokens for one in predictions)} tokens; {listed}"

    def extra_figures(self, timeline: Timeline, samples: int) -> dict[str, float]:
        """Return tokens/s and the time to the first token (:func:`~utils.tasks.common.generation.figures_of`)."""
        return figures_of(timeline)

    def warning_counts(self, contexts: Sequence[Any] | None) -> Mapping[str, int]:
        """Count truncated sources."""
        return count_truncated(contexts)

    def format_warnings(self, counts: Mapping[str, int], samples: int) -> Sequence[str]:
        """Return a line about truncated sources."""
        said = truncation_line(counts, samples)
        return [said] if said else []

    def prediction_writer(self, path: Path, dataset: Dataset) -> TranslationFile:
        """Return a writer of a translation per line."""
        return TranslationFile(path)

    def reference_answers(self, file: Path, dataset: Dataset) -> Sequence[str]:
        """Read a translation per line, in the order of the data. Raises DataError if there are more or fewer."""
        lines = [text for _, text in read_lines(file)]
        lines = lines[:-1] if lines and not lines[-1] else lines
        if len(lines) != len(dataset):
            raise DataError(f"{file} has {len(lines)} lines for {len(dataset)} texts; write a translation per line")
        return lines

    def agreement(self, prediction: Translated, answer: str) -> float:
        """Return chrF of the two translations, 0 to 1; 1 if they are equal."""
        same = one_line(prediction.text) == one_line(answer)
        return 1.0 if same else chrf(np.array(letter_counts(prediction.text, answer))) / 100
