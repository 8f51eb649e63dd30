"""Sentence similarity: how alike are two sentences? One model makes a vector of each."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, Engine, read_regular
from utils.datasets.base import Dataset
from utils.datasets.sentence_pairs import SENTENCES, SentencePair, load_sentences, pairs_of
from utils.metrics.base import Metric
from utils.postprocess.text.nearest import nearest
from utils.preprocess.text.tokens import Encoded, Tokens
from utils.tasks.base import Artifact, Flag, Options, Task
from utils.tasks.embedding import EMBEDDING_FLAGS, Embedder, Notes, check_embedding, choices
from utils.tasks.model import Model
from utils.tasks.prepared import Prepared
from utils.tasks.text_input import LENGTH_FLAGS, check_lengths, longest, open_lengths


class Pair(NamedTuple):
    """What is kept of a sample: the tokens of both sentences; of one alone, those of the first. ``text``: the first."""

    first: Encoded
    second: Encoded | None
    text: str = ""

    @property
    def cut(self) -> int:
        """Return how many tokens were left out."""
        return self.first.cut + (self.second.cut if self.second is not None else 0)

    @property
    def ids(self) -> Array:
        """Return the numbers of the longer sentence."""
        return max((self.first.ids, self.first.ids if self.second is None else self.second.ids), key=len)


class Likeness(NamedTuple):
    """The answer: how alike two sentences are, and of a sentence alone which other one is the nearest."""

    score: float
    nearest: str | None = None


def load(paths: Mapping[str, Path], options: Options) -> Dataset:
    """Return pairs of sentences, or sentences alone (:func:`~utils.datasets.sentence_pairs.load_sentences`).

    The script for one sample takes the first ones of a file, a batch of them.

    Raises:
        DataError: ``valid`` got sentences that are in no pair.
    """
    found = load_sentences(paths["data"], options.columns)
    if options.script == "valid" and SENTENCES in found.notes:
        raise DataError(
            f"{paths['data']} has one sentence per row, and the metric compares two; name the columns: --columns "
            "TEXT1 TEXT2 SCORE, or look at them with example_multi_batch.py"
        )
    return found if options.script != "single" else found.select(range(min(len(found), options.batch_size)))


def typed(options: Options) -> Dataset | None:
    """Return the sentences of ``--text``: two are a pair, of more each is compared with all others."""
    return None if getattr(options, "text", None) is None else pairs_of(options.text)


def prepare(samples: Sequence[SentencePair], model: Model, options: Options) -> Prepared:
    """Number the tokens of both sentences.

    Returns:
        As the only array how many tokens they have, N x 2 int64; as contexts a :class:`Pair` for each.
    """
    tokens = Tokens.of(model, options)
    prefix, limit = Notes.of(model, options).prefix, longest(model, options, tokens)
    firsts = tokens.encode([prefix + one.first for one in samples], limit)
    seconds = [None if one.second is None else tokens.encode([prefix + one.second], limit)[0] for one in samples]
    pairs = [Pair(a, b, one.first) for a, b, one in zip(firsts, seconds, samples, strict=True)]
    sizes = [(len(one.first.ids), 0 if one.second is None else len(one.second.ids)) for one in pairs]
    return Prepared([np.array(sizes, np.int64).reshape(-1, 2)], list(pairs))


def collate(parts: Sequence[Prepared], model: Model) -> list[Array]:
    """Put the counts of parts together; the tokens travel as contexts."""
    return [np.concatenate([np.asarray(part.arrays[0]) for part in parts])]


class State(NamedTuple):
    """What makes vectors; and where each sentence is looked for among all, these and their vectors."""

    embedder: Embedder
    sentences: Sequence[str]
    others: Array | None


def setup(engines: Mapping[str, Engine], dataset: Dataset, options: Options) -> State:
    """Return what makes vectors; sentences alone are all made vectors of, once."""
    (engine,) = engines.values()
    embedder, sentences = Embedder(engine, options), dataset.notes.get(SENTENCES)
    if sentences is None:
        return State(embedder, (), None)
    encoded = embedder.rows.encode([embedder.notes.prefix + text for text in sentences])
    return State(embedder, sentences, embedder.of(encoded, "sentences"))


class Compared(list[tuple[float, str]]):
    """For each sample its score, and the nearest other sentence where it is one alone."""

    @property
    def raw(self) -> list[Array]:
        """Return the scores, N x 1."""
        return [np.array([[score] for score, _ in self], np.float32).reshape(-1, 1)]


def infer(engines: Mapping[str, Engine], arrays: Any, contexts: Sequence[Pair], state: State) -> Compared:
    """Compare the sentences of each pair, or one alone with all others."""
    texts = [one for pair in contexts for one in (pair.first, pair.second) if one is not None]
    rows = iter(state.embedder.of(texts))
    found = Compared()
    for pair in contexts:
        own = next(rows)
        if pair.second is not None:
            found.append((float(np.dot(own.astype(np.float64), next(rows).astype(np.float64))), ""))
        else:
            found.append(_nearest(own, pair.text, state))
    return found


def _nearest(own: Array, text: str, state: State) -> tuple[float, str]:
    """Return the score and the text of the nearest sentence but those that are the same."""
    if state.others is None or np.isnan(own).any() or np.isnan(state.others).any():
        return math.nan, ""
    places, scores = nearest(own[None], state.others, state.sentences.count(text) + 1)
    texts = [state.sentences[place] for place in places[0].tolist()]
    which = next((i for i, one in enumerate(texts) if one != text), 0)
    return float(scores[0, which]), texts[which]


def decode(outputs: Sequence[tuple[float, str]], contexts: Any, model: Model, options: Options) -> list[Likeness]:
    """Return how alike the sentences of each pair are: a cosine from -1 to 1, or an inner product."""
    return [Likeness(score, text or None) for score, text in outputs]


def metric(options: Options, dataset: Dataset, model: Model) -> Metric:
    """Return the correlation with the ratings."""
    from utils.metrics.correlation import Correlation

    return Correlation(options.metric)


def show(sample: SentencePair, prediction: Likeness, model: Model, options: Options) -> Artifact:
    """Return the score and what was compared."""
    way = Notes.of(model, options).compare
    answer: dict[str, Any] = {"score": round(prediction.score, 6), "compare": way, "first": sample.first}
    if sample.second is not None:
        text = f"{way} {prediction.score:.3f}   {_short(sample.first)} | {_short(sample.second)}"
        return Artifact(text, answer | {"second": sample.second})
    return Artifact(
        f"{way} {prediction.score:.3f}   {_short(sample.first)} | nearest: {_short(prediction.nearest or '')}",
        answer | {"nearest": prediction.nearest},
    )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."


def answers(file: Path, dataset: Dataset, model: Model, options: Options) -> list[float | None]:
    """Read the source's scores: a JSON list, or a number per line, in the order of the samples.

    Raises:
        DataError: they are no numbers, or not as many as samples.
    """
    try:
        text = read_regular(file).decode("utf-8-sig")
        found = json.loads(text) if text.lstrip().startswith("[") else [float(line) for line in text.split()]
        numbers = [None if one is None else float(one) for one in found]
    except (OSError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(f"{file}: no list of scores ({error}); write a number per line, or a JSON list") from error
    if len(numbers) != len(dataset):
        raise DataError(f"{file} has {len(numbers)} scores for {len(dataset)} samples; write one for each")
    return numbers


def agreement(prediction: Likeness, answer: float) -> float:
    """Return 1 where two scores are equal, less what they differ by, and 0 at least."""
    return max(0.0, 1.0 - abs(prediction.score - answer))


def _check(options: Options) -> None:
    check_lengths(options)
    check_embedding(options)
    if len(options.columns) > 3:
        raise ConfigError(f"--columns {' '.join(options.columns)}: two texts and a score, three at most")


FLAGS = (
    *LENGTH_FLAGS,
    Flag(
        "--text", "sentences to compare instead of data", None, nargs="+", metavar="TEXT", scripts=("single", "multi")
    ),
    *EMBEDDING_FLAGS,
    Flag("--prefix", "text put before each sentence (default: as stored, or none)", None),
    Flag("--columns", "names of a table's columns, where they are not the usual: TEXT1 TEXT2 SCORE", [], nargs="+"),
    Flag(
        "--metric",
        "the metric of record; the other one is shown beside it",
        "spearman",
        choices=("spearman", "pearson"),
        scripts=("valid",),
    ),
)

SENTENCE_SIMILARITY = Task(
    name="sentence_similarity",
    domain="nlp",
    load=load,
    typed=typed,
    prepare=prepare,
    decode=decode,
    metric=metric,
    show=show,
    setup=setup,
    collate=collate,
    infer=infer,
    open_sizes=open_lengths,
    check=_check,
    flags=FLAGS,
    watched=False,
    data_help="STS-B, SICK or another table with two sentences and a score per row; or sentences, one per line",
    choices=choices("model", {"prefix": ("", "query: ")}),
    stored_under="embedding",
    answers=answers,
    agreement=agreement,
)
"""Two sentences in, how alike they are out."""
