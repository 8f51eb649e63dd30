"""Sentence similarity: the score of two sentences is that of their embeddings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, Engine
from utils.datasets.base import Dataset
from utils.datasets.text.sentence_pairs import SENTENCES, SentencePair, load_sentences, pairs_of
from utils.metrics.base import Metric
from utils.postprocess.text.nearest import nearest
from utils.preprocess.text.tokens import Encoded, Tokens
from utils.tasks import Flag, Prepared, Rendering
from utils.tasks.common.class_scores import JoinedRows, ScoreAnswers
from utils.tasks.common.embedding import EMBEDDING_FLAGS, NOTE, Embedder, Notes, check_embedding, embedding_settings
from utils.tasks.common.text_input import LENGTH_FLAGS, TextTask, longest, short


class Pair(NamedTuple):
    """Context of a sample: the tokens of its one or two sentences, and the text of the first."""

    first: Encoded
    second: Encoded | None
    text: str = ""


class PairScores(list[tuple[float, str]]):
    """Score of each sample, and for a single sentence the nearest other one."""

    @property
    def raw(self) -> list[Array]:
        """Return the scores, N x 1."""
        return [np.array([[score] for score, _ in self], np.float32).reshape(-1, 1)]


class Similarity(NamedTuple):
    """Prediction: similarity of two sentences, or of a single sentence to the nearest other one."""

    score: float
    nearest: str | None = None


class State(NamedTuple):
    """Embedder; for single sentences also all sentences and their vectors."""

    embedder: Embedder
    sentences: Sequence[str]
    others: Array | None


class SentenceSimilarity(JoinedRows, ScoreAnswers, TextTask):
    """Similarity of two sentences, or of each sentence to all others."""

    name = "sentence_similarity"
    data_help = "STS-B, SICK or another table with two sentences and a score per row; or sentences, one per line"
    flags = (
        *LENGTH_FLAGS,
        Flag("--text", "sentences to compare instead of data", None, nargs="+", metavar="TEXT",
             scripts=("single", "multi")),
        *EMBEDDING_FLAGS,
        Flag("--prefix", "text put before each sentence (default: as stored, or none)", None),
        Flag("--columns", "names of a table's columns, if not the usual ones: TEXT1 TEXT2 SCORE", [], nargs="+"),
        Flag("--metric", "the metric of record; the other one is reported too", "spearman",
             choices=("spearman", "pearson"), scripts=("valid",)),
    )  # fmt: skip
    metadata_key = NOTE
    optional_scores = True
    export_settings = embedding_settings("model", {"prefix": ("", "query: ")})
    state: State

    def check(self) -> None:
        """Check lengths, how vectors are compared, and ``--columns``."""
        super().check()
        check_embedding(self.options)
        if len(self.options.columns) > 3:
            raise ConfigError(f"--columns {' '.join(self.options.columns)}: give at most three: TEXT1 TEXT2 SCORE")

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return pairs of sentences, or single sentences (:func:`~utils.datasets.text.sentence_pairs.load_sentences`).
        Raises DataError if the data has single sentences, and ``valid`` needs pairs."""
        found = load_sentences(paths["data"], self.options.columns)
        if self.options.script == "valid" and SENTENCES in found.notes:
            raise DataError(
                f"{paths['data']} has one sentence per row, and the metric needs two; pass --columns TEXT1 TEXT2 "
                "SCORE, or run example_multi_batch.py"
            )
        return self.selected(found)

    def inline_samples(self) -> Dataset | None:
        """Return the sentences of ``--text``: two form a pair; each of more than two is compared with all others."""
        texts = getattr(self.options, "text", None)
        return None if texts is None else pairs_of(texts)

    def prepare(self, samples: Sequence[SentencePair]) -> Prepared:
        """Tokenize both sentences; return the numbers of tokens, N x 2 int64, and a :class:`Pair` per sample."""
        tokens = Tokens.of(self.model, self.options)
        prefix, limit = Notes.of(self.model, self.options).prefix, longest(self.model, self.options, tokens)
        firsts = tokens.encode([prefix + one.first for one in samples], limit)
        seconds = [None if one.second is None else tokens.encode([prefix + one.second], limit)[0] for one in samples]
        pairs = [Pair(a, b, one.first) for a, b, one in zip(firsts, seconds, samples, strict=True)]
        sizes = [(len(one.first.ids), 0 if one.second is None else len(one.second.ids)) for one in pairs]
        return Prepared([np.array(sizes, np.int64).reshape(-1, 2)], list(pairs))

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> State:
        """Return the embedder; the vectors of single sentences are computed here, once."""
        (engine,) = engines.values()
        embedder, sentences = Embedder(engine, self.options), dataset.notes.get(SENTENCES)
        if sentences is None:
            return State(embedder, (), None)
        encoded = embedder.encode([embedder.notes.prefix + text for text in sentences])
        return State(embedder, sentences, embedder.of(encoded, "sentences"))

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Pair]) -> PairScores:
        """Score the sentences of each pair, or a single sentence with all others."""
        texts = [one for pair in contexts for one in (pair.first, pair.second) if one is not None]
        rows = iter(self.state.embedder.of(texts))
        found = PairScores()
        for pair in contexts:
            own = next(rows)
            if pair.second is not None:
                found.append((float(np.dot(own.astype(np.float64), next(rows).astype(np.float64))), ""))
            else:
                found.append(_nearest(own, pair.text, self.state))
        return found

    def decode(self, outputs: Sequence[tuple[float, str]], contexts: Any) -> list[Similarity]:
        """Return the similarity of each sample: a cosine from -1 to 1, or an inner product."""
        return [Similarity(score, text or None) for score, text in outputs]

    def metric(self, dataset: Dataset) -> Metric:
        """Return the correlation with the ratings."""
        from utils.metrics.correlation import Correlation

        return Correlation(self.options.metric)

    def show(self, sample: SentencePair, prediction: Similarity) -> Rendering:
        """Return the score and both sentences."""
        way = Notes.of(self.model, self.options).compare
        answer: dict[str, Any] = {"score": round(prediction.score, 6), "compare": way, "first": sample.first}
        text = f"{way} {prediction.score:.3f}   {short(sample.first)} | "
        if sample.second is not None:
            return Rendering(text + short(sample.second), answer | {"second": sample.second})
        text += f"nearest: {short(prediction.nearest or '')}"
        return Rendering(text, answer | {"nearest": prediction.nearest})


def _nearest(own: Array, text: str, state: State) -> tuple[float, str]:
    """Return the score and the text of the nearest sentence with another text."""
    if state.others is None or np.isnan(own).any() or np.isnan(state.others).any():
        return math.nan, ""
    places, scores = nearest(own[None], state.others, state.sentences.count(text) + 1)
    texts = [state.sentences[place] for place in places[0].tolist()]
    which = next((i for i, one in enumerate(texts) if one != text), 0)
    return float(scores[0, which]), texts[which]
