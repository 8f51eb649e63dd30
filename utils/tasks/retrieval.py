"""Task ``retrieval``: rank the passages of a corpus by a query, with an embedding model and an optional reranker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, Engine
from utils.datasets.base import Dataset
from utils.datasets.text.retrieval import CORPUS, Corpus, Query
from utils.postprocess.text.nearest import nearest
from utils.preprocess.text.lengths import count_truncated, truncation_line
from utils.preprocess.text.tokens import Encoded, Tokens
from utils.tasks import Flag, OpenSizes, Prepared
from utils.tasks.common.embedding import (
    BGE_QUERY,
    EMBEDDING_FLAGS,
    ENOUGH,
    NOTE,
    Embedder,
    Notes,
    check_embedding,
    embedding_settings,
)
from utils.tasks.common.passages import Judge, PassageRanking, unjudged
from utils.tasks.common.ranked import Answers, Found
from utils.tasks.common.text_input import longest

EMBEDDER, RERANKER = "embedder", "reranker"
"""Names of the two models."""


class Asked(NamedTuple):
    """The context of a query: its text, and its tokens."""

    text: str
    encoded: Encoded


class State(NamedTuple):
    """The embedding model, the corpus and its vectors, the reranker, and warnings."""

    embedder: Embedder
    corpus: Corpus
    vectors: Array
    judge: Judge | None
    warnings: Sequence[str]


class Retrieval(PassageRanking):
    """Ranks the passages of a corpus by query."""

    name = "retrieval"
    models = (EMBEDDER, RERANKER)
    optional_models = (RERANKER,)
    data_help = "a folder as BEIR's or MS MARCO's; or queries=FILE corpus=FILE qrels=FILE"
    flags = (
        *PassageRanking.flags,
        Flag("--rerank", "number of passages to rerank, with a reranker", 20, int),
        *EMBEDDING_FLAGS,
        Flag("--query_prefix", "text put before each query (default: as stored, or none)", None),
        Flag("--passage_prefix", "text put before each passage (default: as stored, or none)", None),
    )
    metadata_key = NOTE
    export_settings = embedding_settings(
        EMBEDDER, {"query_prefix": ("", "query: ", BGE_QUERY), "passage_prefix": ("", "passage: ")}
    )
    state: State

    def check(self) -> None:
        """Check the similarity, ``--rerank``, lengths and ranks."""
        check_embedding(self.options)
        if self.options.rerank < 1:
            raise ConfigError(f"--rerank {self.options.rerank} must be at least 1")
        super().check()

    def open_sizes(self) -> Mapping[str, OpenSizes]:
        """Return the planned lengths of both models."""
        lengths = super().open_sizes().get("model")
        return {} if lengths is None else {EMBEDDER: lengths, RERANKER: lengths}

    def prepare(self, samples: Sequence[Query]) -> Prepared:
        """Tokenize queries; return the numbers of tokens, N x 1 int64, and an :class:`Asked` per query as contexts."""
        model, options = self.model.named.get(EMBEDDER, self.model), self.options
        tokens, prefix = Tokens.of(model, options), Notes.of(model, options).query_prefix
        encoded = tokens.encode([prefix + one.text for one in samples], longest(model, options, tokens))
        asked = [Asked(one.text, found) for one, found in zip(samples, encoded, strict=True)]
        return Prepared([np.array([[len(one.encoded.ids)] for one in asked], np.int64).reshape(-1, 1)], list(asked))

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> State:
        """Compute the vectors of the corpus; with ``--resume`` they are stored there and reused."""
        from utils.tasks.common.kept_vectors import kept_vectors

        options = self.options
        embedder, corpus = Embedder(engines[EMBEDDER], options), dataset.notes[CORPUS]
        judge = Judge(engines[RERANKER], options) if RERANKER in engines else None
        prefix = embedder.notes.passage_prefix

        def make(start: int, stop: int) -> tuple[Array, dict[str, int]]:
            encoded = embedder.encode([prefix + text for text in corpus.texts[start:stop]])
            return embedder.of(encoded, f"passages {start + 1} to {stop}"), count_truncated(encoded)

        kept = None if options.resume is None else options.resume / "corpus"
        what = (dataset.fingerprint(), prefix, repr(embedder.notes), embedder.longest, options.batch_size)
        vectors, cut = kept_vectors(kept, engines[EMBEDDER], what, len(corpus.texts), ENOUGH, make, options)
        found = [truncation_line(cut, len(corpus.texts)).replace(" texts ", " passages ", 1)] if cut else []
        found += unjudged(dataset)
        lost = int(np.isnan(vectors).any(axis=1).sum())
        if lost:
            found.append(f"{lost} of {len(vectors)} passages have NaN in their vectors, so no ranking can be trusted")
        return State(embedder, corpus, vectors, judge, found)

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Asked]) -> Answers:
        """Search the corpus; return per query the best score (NaN if its vector or one of the corpus holds NaN), and
        the ranked passages."""
        state, topk = self.state, self.options.topk
        rows = state.embedder.of([one.encoded for one in contexts])
        places, scores = nearest(rows, state.vectors, max(self.options.depth, topk))
        sound = not np.isnan(state.vectors).any()
        found = Answers()
        for one, where, score in zip(contexts, places.tolist(), scores, strict=True):
            if state.judge is not None:
                where, score = state.judge.again(one.text, where, state.corpus.texts)
            ids, texts = [state.corpus.ids[i] for i in where], [state.corpus.texts[i] for i in where[:topk]]
            best = float(score[0]) if sound and not np.isnan(score).any() else float("nan")
            found.append((best, Found(ids, score, texts)))
        found.said, found.raw = state.warnings, [rows]
        return found
