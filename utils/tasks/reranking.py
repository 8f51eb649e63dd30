"""Reranking: candidates of a query are ordered by a cross-encoder, which reads query and passage together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from engine import Array, Engine
from utils.datasets.base import Dataset
from utils.datasets.text.retrieval import CANDIDATES, CORPUS, Corpus, Query
from utils.tasks import Prepared
from utils.tasks.common.passages import Judge, PassageRanking, unjudged
from utils.tasks.common.ranked import Answers, Found


class State(NamedTuple):
    """Scorer, corpus, candidates per query (places in the corpus), and lines for the report."""

    judge: Judge
    corpus: Corpus
    candidates: Mapping[str, Sequence[int]] | None
    said: Sequence[str]


class Reranking(PassageRanking):
    """Ranking of each query's candidates by a model that reads query and passage together."""

    name = "reranking"
    data_help = "a folder as BEIR's or MS MARCO's; or queries=FILE corpus=FILE qrels=FILE candidates=RUN"
    state: State

    def prepare(self, samples: Sequence[Query]) -> Prepared:
        """Return the number of characters of each query, N x 1 int64; the queries are the contexts."""
        return Prepared([np.array([[len(one.text)] for one in samples], np.int64).reshape(-1, 1)], list(samples))

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> State:
        """Return the scorer, and the corpus with its candidates."""
        (engine,) = engines.values()
        corpus, candidates, depth = dataset.notes[CORPUS], dataset.notes.get(CANDIDATES), self.options.depth
        said = unjudged(dataset)
        if candidates is None and len(corpus.ids) > depth:
            first = (
                f"candidates are missing, so each query is scored with the first {depth} of {len(corpus.ids)} "
                "passages; pass candidates=RUN, or raise --depth"
            )
            said = [first, *said]
        return State(Judge(engine, self.options), corpus, candidates, said)

    def infer(self, engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Query]) -> Answers:
        """Score at most ``--depth`` candidates of each query; without candidates, the first passages of the corpus.
        Return the best score of each query (NaN if any is NaN), and its candidates by falling score."""
        (judge, corpus, candidates, said), depth = self.state, self.options.depth
        found, raw = Answers(), np.zeros((len(contexts), depth), np.float32)
        for row, query in zip(raw, contexts, strict=True):
            known = range(len(corpus.ids)) if candidates is None else candidates.get(query.id, ())
            places = list(known[:depth])
            scores: Array = judge.scores(query.text, [corpus.texts[i] for i in places]).reshape(-1)
            row[: len(scores)] = scores
            order = np.argsort(-scores, kind="stable").tolist()
            ids, texts = [corpus.ids[places[i]] for i in order], [corpus.texts[places[i]] for i in order]
            best = float("nan") if np.isnan(scores).any() else float(scores.max(initial=0.0))
            found.append((best, Found(ids, scores[order], texts[: self.options.topk])))
        found.said, found.raw = said, [raw]
        return found
