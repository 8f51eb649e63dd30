"""Base classes of retrieval and reranking: passages of a corpus ranked for each query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from engine import Array, ConfigError, DataError, ModelError
from tecoinfer_modelzoo.text import one_line
from utils.datasets.base import Dataset
from utils.datasets.text.retrieval import UNJUDGED, Query, files_of, load_retrieval
from utils.metrics.base import Metric
from utils.outputs import refuse_labels
from utils.tasks import Flag, Rendering
from utils.tasks.common.class_scores import JoinedRows
from utils.tasks.common.embedding import Rows
from utils.tasks.common.ranked import RANK_FLAGS, Found, RankingTask, shown
from utils.tasks.common.text_input import LENGTH_FLAGS, TextTask


class Judge(Rows):
    """Scoring of pairs of query and passage by a cross-encoder with one logit, or two: irrelevant and relevant."""

    def scores(self, query: str, texts: Sequence[str]) -> Array:
        """Return the score of each passage, float32."""
        return self.of(self.encode([(query, text) for text in texts]))

    def again(self, query: str, places: Sequence[int], texts: Sequence[str]) -> tuple[list[int], Array]:
        """Rerank the first passages; the others follow in their order, each with a score 1 lower than the previous one.
        Return places in the corpus and their scores, the best first."""
        count = min(self.options.rerank, len(places))
        judged = self.scores(query, [texts[place] for place in places[:count]])
        order = np.argsort(-judged, kind="stable")
        least = np.float32(judged.min()) if len(judged) else np.float32(0)
        behind = least - np.arange(1, len(places) - count + 1, dtype=np.float32)
        first = [places[i] for i in order.tolist()]
        return [*first, *places[count:]], np.concatenate([judged[order], behind])

    def read(self, outputs: Any, lengths: Sequence[int]) -> Array:
        """Return the logit of each pair, or the difference of two."""
        found = outputs[0] if isinstance(outputs, (list, tuple)) else outputs
        refuse_labels(self.model.form(None), self.model.ckpt, "a ranking needs a score for each pair", "")
        if found.dtype.kind != "f" or found.ndim > 2 or len(found) != len(lengths) or found.size > 2 * len(lengths):
            raise ModelError(
                f"{self.model.ckpt}: its output is {list(found.shape)} {found.dtype} for {len(lengths)} pairs; "
                "expected one or two logits per pair"
            )
        found = found.astype(np.float32).reshape(len(lengths), -1)
        logits: Array = found[:, 0] if found.shape[1] == 1 else found[:, 1] - found[:, 0]
        return logits


class PassageRanking(JoinedRows, RankingTask, TextTask):
    """Task that ranks passages; :attr:`infer` returns :class:`Answers`."""

    flags: ClassVar[tuple[Flag, ...]] = (
        *LENGTH_FLAGS,
        Flag("--text", "queries, instead of a file's", None, nargs="+", metavar="TEXT", scripts=("single", "multi")),
        Flag("--split", "part of the data set: the name of its file with judgments", "test"),
        Flag("--topk", "number of passages shown", 3, int, scripts=("single", "multi")),
        Flag("--depth", "number of passages ranked per query", 100, int),
        *RANK_FLAGS,
    )

    def check(self) -> None:
        """Check lengths and ranks."""
        RankingTask.check(self)
        TextTask.check(self)

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the queries, with the corpus in their notes (:func:`~utils.datasets.text.retrieval.load_retrieval`).
        ``--text`` replaces the file of queries."""
        options = self.options
        typed, judged = getattr(options, "text", None) or (), options.script == "valid"
        if any(not text.strip() for text in typed):
            raise ConfigError("--text: a query is empty; write one, in quotes")
        found = load_retrieval(files_of(paths, options.split), judged=judged, typed=typed)
        if judged and found.targets is None:
            raise DataError(
                f"{options.data_text} has no judgments; put them in qrels/{options.split}.tsv, or qrels=FILE"
            )
        return found if typed else self.selected(found)

    def metric(self, dataset: Dataset) -> Metric:
        """Return the metric of record."""
        from utils.metrics.ranking import Ranking

        return Ranking(self.options.metric, self.options.cut)

    def show(self, sample: Query, prediction: Found) -> Rendering:
        """Return the best passages with their scores."""
        return shown(one_line(sample.text), prediction, self.options.topk)


def unjudged(dataset: Dataset) -> list[str]:
    """Return a line about queries without a judgment, if there are any."""
    count = dataset.notes.get(UNJUDGED)
    return [f"{count} queries have no judgment in this split and were skipped"] if count else []
