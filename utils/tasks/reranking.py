"""Reranking: in which order do candidates answer a query? One model reads query and passage together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from engine import Array, Engine
from utils.datasets.base import Dataset
from utils.datasets.retrieval import CANDIDATES, CORPUS, UNJUDGED, Corpus, Query
from utils.tasks.base import Options
from utils.tasks.model import Model
from utils.tasks.prepared import Prepared
from utils.tasks.ranked import Found, Judge
from utils.tasks.retrieval import RANKING_FLAGS, RETRIEVAL, Answers, check_ranking
from utils.tasks.text_input import LENGTH_FLAGS, open_lengths


def prepare(samples: Sequence[Query], model: Model, options: Options) -> Prepared:
    """Return how many characters queries have, N x 1 int64; the queries travel as contexts."""
    return Prepared([np.array([[len(one.text)] for one in samples], np.int64).reshape(-1, 1)], list(samples))


class State(NamedTuple):
    """What judges, the corpus, the candidates of each query, and what there is to say."""

    judge: Judge
    corpus: Corpus
    candidates: Mapping[str, Sequence[int]] | None
    options: Options
    said: Sequence[str]


def setup(engines: Mapping[str, Engine], dataset: Dataset, options: Options) -> State:
    """Return what judges pairs."""
    (engine,) = engines.values()
    corpus, candidates = dataset.notes[CORPUS], dataset.notes.get(CANDIDATES)
    said = []
    if candidates is None and len(corpus.ids) > options.depth:
        said.append(
            f"no candidates are given, so each query is judged with the first {options.depth} of {len(corpus.ids)} "
            "passages; pass candidates=RUN, or raise --depth"
        )
    if dataset.notes.get(UNJUDGED):
        said.append(f"{dataset.notes[UNJUDGED]} queries have no judgment in this split and were not asked")
    return State(Judge(engine, options), corpus, candidates, options, said)


def infer(engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Query], state: State) -> Answers:
    """Judge each query with its candidates, at most ``--depth`` of them; without any, with the first of the corpus.

    Returns:
        For each its best score, which is NaN where any is, and the candidates, the best first.
    """
    found, corpus = Answers(), state.corpus
    raw = np.zeros((len(contexts), state.options.depth), np.float32)
    for row, query in zip(raw, contexts, strict=True):
        known = range(len(corpus.ids)) if state.candidates is None else state.candidates.get(query.id, ())
        places = list(known[: state.options.depth])
        scores: Array = state.judge.scores(query.text, [corpus.texts[i] for i in places]).reshape(-1)
        row[: len(scores)] = scores
        order = np.argsort(-scores, kind="stable").tolist()
        ids, texts = [corpus.ids[places[i]] for i in order], [corpus.texts[places[i]] for i in order]
        best = float("nan") if np.isnan(scores).any() else float(scores.max(initial=0.0))
        found.append((best, Found(ids, scores[order], texts[: state.options.topk])))
    found.said, found.raw = state.said, [raw]
    return found


RERANKING = replace(
    RETRIEVAL,
    name="reranking",
    prepare=prepare,
    setup=setup,
    infer=infer,
    open_sizes=open_lengths,
    check=check_ranking,
    flags=(*LENGTH_FLAGS, *RANKING_FLAGS),
    models=(),
    optional=(),
    choices=(),
    stored_under="",
    data_help="a folder as BEIR's or MS MARCO's; or queries=FILE corpus=FILE qrels=FILE candidates=RUN",
)
"""Queries in, their candidates in the order of a model that reads both together out."""
