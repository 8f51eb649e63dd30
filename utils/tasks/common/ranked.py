"""Rankings: rendering, comparison with a reference run, and TREC run files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo.text import one_line, shortened
from utils.datasets.base import Batch, Dataset
from utils.datasets.text.tables import read_lines
from utils.tasks import Flag, Rendering, Task, at_least
from utils.tasks.common.prediction_files import LineFile

TOP = 10
"""Number of first passages in the comparison of two rankings."""

RANK_FLAGS = (
    Flag("--cut", "last rank of nDCG, recall and reciprocal rank", 10, int, scripts=("valid",)),
    Flag("--metric", "the metric of record; the others are reported too", "ndcg",
         choices=("ndcg", "recall", "mrr", "map"), scripts=("valid",)),
)  # fmt: skip
"""Flags of the metric of rankings."""


class Found:
    """Ranking of a query; not a tuple, so that only the best score is checked for NaN.

    Attributes:
        ids: names of passages, the best first. scores: their scores, float32, falling. texts: of the first passages.
    """

    def __init__(self, ids: Sequence[str], scores: Array, texts: Sequence[str]) -> None:
        self.ids, self.scores, self.texts = ids, scores, texts


class Answers(list[tuple[float, Found]]):
    """Best score (NaN if the ranking is unreliable) and ranking of each query."""

    said: Sequence[str] = ()  # lines about the run
    raw: Sequence[Array] = ()  # model outputs, a row for each query


def shown(query: str, found: Found, count: int) -> Rendering:
    """Return the first ``count`` passages as text and as data."""
    best = [
        {"rank": rank, "id": name, "score": round(float(score), 6), "text": text}
        for rank, (name, score, text) in enumerate(zip(found.ids, found.scores, found.texts, strict=False), start=1)
    ][:count]
    lines = [f"{one['rank']}. {one['score']:.3f} [{one['id']}] {_short(str(one['text']))}" for one in best]
    return Rendering("\n  ".join([_short(query), *lines]), {"query": query, "passages": best})


def _short(text: str) -> str:
    return shortened(one_line(text), 160, end=False)


class TrecRunWriter(LineFile):
    """Writer of a TREC run: ``query Q0 passage rank score name``."""

    def see(self, batch: Batch, predictions: Sequence[Found]) -> None:
        """Add a batch."""
        for query, found in zip(batch.samples, predictions, strict=True):
            for rank, (name, score) in enumerate(zip(found.ids, found.scores, strict=True), start=1):
                self.rows.append(f"{query.id} Q0 {name} {rank} {float(score):.8g} tecoinfer\n")


class RankingDiagnostics:
    """Diagnostics with the lines that ``infer`` reports: about the corpus, and samples that were truncated or
    skipped."""

    def __init__(self) -> None:
        self._said: Sequence[str] = ()

    def see(self, outputs: Any, contexts: Any, targets: Any) -> None:
        """Take the lines from the attribute ``said`` of a batch's outputs, if there is one."""
        self._said = getattr(outputs, "said", self._said)

    def hints(self) -> Sequence[str]:
        """Return the lines."""
        return list(self._said)


class RankingTask(Task):
    """Base class of tasks whose predictions are rankings."""

    writes = "the rankings as a TREC run"

    def reference_answers(self, file: Path, dataset: Dataset) -> list[list[str] | None]:
        """Read the first :data:`TOP` names of each query from a TREC run; ``None`` for queries that it lacks.
        Raises DataError if a line is invalid."""
        found: dict[str, list[tuple[float, str]]] = {}
        for number, line in read_lines(file):
            fields = line.split()
            if not fields:
                continue
            try:
                found.setdefault(fields[0], []).append((-float(fields[4]), fields[2]))
            except (IndexError, ValueError) as error:
                raise DataError(
                    f"{file}:{number}: not a line of a TREC run (query Q0 passage rank score name); correct it"
                ) from error
        queries = [query.id for query in dataset.batch(range(len(dataset))).samples]
        return [[name for _, name in sorted(found[query])[:TOP]] if query in found else None for query in queries]

    def agreement(self, prediction: Found, answer: Sequence[str]) -> float:
        """Return the average overlap of the first :data:`TOP` names, 0 to 1: the mean over depths of the common share.
        Source: Fagin, Kumar and Sivakumar 2003, "Comparing top k lists"."""
        depth = min(TOP, len(answer), len(prediction.ids))
        shares = [len({*prediction.ids[:k]} & {*answer[:k]}) / k for k in range(1, depth + 1)]
        return sum(shares) / depth if depth else 0.0

    def check(self) -> None:
        """Check the ranks."""
        options = self.options
        at_least(options, topk=1, depth=1, cut=1)
        if options.script == "valid" and options.depth < options.cut:
            raise ConfigError(f"--depth {options.depth} must be at least --cut {options.cut}; raise it")

    def decode(self, outputs: Sequence[tuple[float, Any]], contexts: Any) -> list[Any]:
        """Return the ranking of each query."""
        return [found for _, found in outputs]

    def diagnostics(self) -> RankingDiagnostics:
        """Return the diagnostics that report the corpus and skipped samples."""
        return RankingDiagnostics()

    def prediction_writer(self, path: Path, dataset: Dataset) -> TrecRunWriter:
        """Return a writer of a TREC run."""
        return TrecRunWriter(path)
