"""Retrieval: which passages of a corpus answer a query? One model makes vectors; another may judge the best again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, Engine, one_line
from utils.datasets.base import Dataset
from utils.datasets.retrieval import CORPUS, UNJUDGED, Corpus, Query, files_of, load_retrieval
from utils.metrics.base import Metric
from utils.postprocess.text.nearest import nearest
from utils.preprocess.text.lengths import count_cut, say_cut
from utils.preprocess.text.tokens import Encoded, Tokens
from utils.tasks.base import Artifact, Flag, Options, Task
from utils.tasks.embedding import BGE_QUERY, EMBEDDING_FLAGS, ENOUGH, Embedder, Notes, check_embedding, choices
from utils.tasks.model import Model
from utils.tasks.prepared import Prepared
from utils.tasks.ranked import Found, Judge, agreement, answers, hinter, saver, shown
from utils.tasks.text_input import LENGTH_FLAGS, check_lengths, longest, open_lengths

EMBEDDER, RERANKER = "embedder", "reranker"
"""Names of the two models."""


class Asked(NamedTuple):
    """What is kept of a query: its text, and its tokens."""

    text: str
    encoded: Encoded

    @property
    def cut(self) -> int:
        """Return how many tokens were left out."""
        return self.encoded.cut

    @property
    def ids(self) -> Array:
        """Return the numbers of the tokens."""
        return self.encoded.ids


class Answers(list[tuple[float, Found]]):
    """For each query its best score, NaN where it is lost, and what was found.

    Attributes:
        said: about the whole run. raw: what the model gave, a row for each query.
    """

    said: Sequence[str] = ()
    raw: Sequence[Array] = ()


def load(paths: Mapping[str, Path], options: Options) -> Dataset:
    """Return the queries; the corpus is a note of theirs (:func:`~utils.datasets.retrieval.load_retrieval`).

    ``--text`` takes the place of the file with queries. The script for one sample takes a batch of them.
    """
    typed = getattr(options, "text", None) or ()
    if any(not text.strip() for text in typed):
        raise ConfigError("--text: an empty query asks nothing; write one, in quotes")
    found = load_retrieval(files_of(paths, options.split), judged=options.script == "valid", typed=typed)
    if options.script == "valid" and found.targets is None:
        raise DataError(f"{options.data_text} has no judgments; put them in qrels/{options.split}.tsv, or qrels=FILE")
    return found if options.script != "single" or typed else found.select(range(min(len(found), options.batch_size)))


def prepare(samples: Sequence[Query], model: Model, options: Options) -> Prepared:
    """Number the tokens of queries.

    Returns:
        As the only array how many tokens they have, N x 1 int64; as contexts an :class:`Asked` for each.
    """
    model = model.named.get(EMBEDDER, model)
    tokens = Tokens.of(model, options)
    prefix = Notes.of(model, options).query_prefix
    encoded = tokens.encode([prefix + one.text for one in samples], longest(model, options, tokens))
    asked = [Asked(one.text, found) for one, found in zip(samples, encoded, strict=True)]
    return Prepared([np.array([[len(one.ids)] for one in asked], np.int64).reshape(-1, 1)], list(asked))


def collate(parts: Sequence[Prepared], model: Model) -> list[Array]:
    """Put the counts of parts together; the tokens travel as contexts."""
    return [np.concatenate([np.asarray(part.arrays[0]) for part in parts])]


class State(NamedTuple):
    """What makes vectors, the corpus and its vectors, what judges again, and what there is to say."""

    embedder: Embedder
    corpus: Corpus
    vectors: Array
    judge: Judge | None
    options: Options
    said: Sequence[str]


def setup(engines: Mapping[str, Engine], dataset: Dataset, options: Options) -> State:
    """Make vectors of the corpus, once; with ``--resume`` they are kept there and read again."""
    from utils.tasks.kept_vectors import kept_vectors

    embedder, corpus = Embedder(engines[EMBEDDER], options), dataset.notes[CORPUS]
    judge = Judge(engines[RERANKER], options) if RERANKER in engines else None
    prefix = embedder.notes.passage_prefix

    def make(start: int, stop: int) -> tuple[Array, dict[str, int]]:
        encoded = embedder.rows.encode([prefix + text for text in corpus.texts[start:stop]])
        return embedder.of(encoded, f"passages {start + 1} to {stop}"), count_cut(encoded)

    kept = None if options.resume is None else options.resume / "corpus"
    what = (dataset.fingerprint(), prefix, repr(embedder.notes), embedder.rows.longest, options.batch_size)
    vectors, cut = kept_vectors(kept, engines[EMBEDDER], what, len(corpus.texts), ENOUGH, make, options)
    said = [say_cut(cut, len(corpus.texts)).replace(" texts ", " passages ", 1)] if cut else []
    if dataset.notes.get(UNJUDGED):
        said.append(f"{dataset.notes[UNJUDGED]} queries have no judgment in this split and were not asked")
    lost = int(np.isnan(vectors).any(axis=1).sum())
    if lost:
        said.append(f"{lost} of {len(vectors)} passages have NaN in their vectors, so no ranking can be trusted")
    return State(embedder, corpus, vectors, judge, options, said)


def infer(engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Asked], state: State) -> Answers:
    """Look queries up.

    Returns:
        For each its best score, which is NaN where its vector or one of the corpus holds NaN, and what was found.
    """
    rows, options = state.embedder.of([one.encoded for one in contexts]), state.options
    depth = max(options.depth, options.topk)
    places, scores = nearest(rows, state.vectors, depth)
    sound = not np.isnan(state.vectors).any()
    found = Answers()
    for one, where, score in zip(contexts, places.tolist(), scores, strict=True):
        if state.judge is not None:
            where, score = state.judge.again(one.text, where, score, state.corpus.texts)
        ids, texts = [state.corpus.ids[i] for i in where], [state.corpus.texts[i] for i in where[: options.topk]]
        best = float(score[0]) if sound and not np.isnan(score).any() else float("nan")
        found.append((best, Found(ids, score, texts)))
    found.said, found.raw = state.said, [rows]
    return found


def decode(outputs: Sequence[tuple[float, Found]], contexts: Any, model: Model, options: Options) -> list[Found]:
    """Return what was found for each query, the best first."""
    return [found for _, found in outputs]


def metric(options: Options, dataset: Dataset, model: Model) -> Metric:
    """Return the metric of rankings."""
    from utils.metrics.ranking import Ranking

    return Ranking(options.metric, options.cut)


def show(sample: Query, prediction: Found, model: Model, options: Options) -> Artifact:
    """Return the best passages with their scores."""
    return shown(one_line(sample.text), prediction, options.topk)


def sizes(options: Options) -> dict[str, dict[tuple[int, int], tuple[int, ...]]]:
    """Return the planned lengths of both models."""
    lengths = open_lengths(options).get("model")
    return {} if lengths is None else {EMBEDDER: lengths, RERANKER: lengths}


def check(options: Options) -> None:
    """Refuse what cannot be.

    Raises:
        ConfigError: names the flag.
    """
    check_embedding(options)
    if options.rerank < 1:
        raise ConfigError(f"--rerank {options.rerank} must be at least 1")
    check_ranking(options)


def check_ranking(options: Options) -> None:
    """Refuse what no task that ranks passages can do.

    Raises:
        ConfigError: names the flag.
    """
    check_lengths(options)
    for key in ("topk", "depth", "cut"):
        if getattr(options, key) < 1:
            raise ConfigError(f"--{key} {getattr(options, key)} must be at least 1")
    if options.script == "valid" and options.depth < options.cut:
        raise ConfigError(f"--depth {options.depth} finds fewer passages than --cut {options.cut} looks at; raise it")


RANKING_FLAGS = (
    Flag("--text", "queries, instead of a file's", None, nargs="+", metavar="TEXT", scripts=("single", "multi")),
    Flag("--split", "part of the data set: the name of its file with judgments", "test"),
    Flag("--topk", "passages that are shown", 3, int, scripts=("single", "multi")),
    Flag("--depth", "passages that are ranked for a query", 100, int),
    Flag("--cut", "rank that nDCG, recall and the reciprocal rank look at", 10, int, scripts=("valid",)),
    Flag(
        "--metric",
        "the metric of record; the others are shown beside it",
        "ndcg",
        choices=("ndcg", "recall", "mrr", "map"),
        scripts=("valid",),
    ),
)
"""Flags of all tasks that rank passages."""

FLAGS = (
    *LENGTH_FLAGS,
    *RANKING_FLAGS,
    Flag("--rerank", "passages that the reranker judges again, where there is one", 20, int),
    *EMBEDDING_FLAGS,
    Flag("--query_prefix", "text put before each query (default: as stored, or none)", None),
    Flag("--passage_prefix", "text put before each passage (default: as stored, or none)", None),
)

RETRIEVAL = Task(
    name="retrieval",
    domain="nlp",
    load=load,
    prepare=prepare,
    decode=decode,
    metric=metric,
    show=show,
    setup=setup,
    collate=collate,
    infer=infer,
    open_sizes=sizes,
    check=check,
    flags=FLAGS,
    models=(EMBEDDER, RERANKER),
    optional=(RERANKER,),
    watched=False,
    data_help="a folder as BEIR's or MS MARCO's; or queries=FILE corpus=FILE qrels=FILE",
    choices=choices(EMBEDDER, {"query_prefix": ("", "query: ", BGE_QUERY), "passage_prefix": ("", "passage: ")}),
    stored_under="embedding",
    answers=answers,
    agreement=agreement,
    hinter=hinter,
    saver=saver,
    saves="what was found as a TREC run",
)
"""Queries in, the passages of a corpus that answer them out."""
