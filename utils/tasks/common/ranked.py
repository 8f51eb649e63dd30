"""Passages in the order of a model's scores: shown, compared, read and written as TREC's runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine import Array, DataError
from tecoinfer_modelzoo.text import one_line, shortened
from utils.datasets.base import Batch, Dataset
from utils.datasets.text.tables import read_lines
from utils.tasks.base import Rendering, Task
from utils.tasks.common.prediction_files import LineFile

TOP = 10
"""Passages that two answers are compared by."""


class Found:
    """What was found for a query; no tuple, as only the best score is looked through for NaN.

    Attributes:
        ids: names of passages, the best first. scores: as many, float32, falling. texts: of the first ones.
    """

    def __init__(self, ids: Sequence[str], scores: Array, texts: Sequence[str]) -> None:
        self.ids, self.scores, self.texts = ids, scores, texts


def shown(query: str, found: Found, count: int) -> Rendering:
    """Return the first ``count`` passages in words and as data."""
    best = [
        {"rank": rank, "id": name, "score": round(float(score), 6), "text": text}
        for rank, (name, score, text) in enumerate(zip(found.ids, found.scores, found.texts, strict=False), start=1)
    ][:count]
    lines = [f"{one['rank']}. {one['score']:.3f} [{one['id']}] {_short(str(one['text']))}" for one in best]
    return Rendering("\n  ".join([_short(query), *lines]), {"query": query, "passages": best})


def _short(text: str) -> str:
    return shortened(one_line(text), 160, end=False)


class Run(LineFile):
    """Writes what was found as a TREC run: ``query Q0 passage rank score name``."""

    def see(self, batch: Batch, predictions: Sequence[Found]) -> None:
        """Take in a batch."""
        for query, found in zip(batch.samples, predictions, strict=True):
            for rank, (name, score) in enumerate(zip(found.ids, found.scores, strict=True), start=1):
                self.rows.append(f"{query.id} Q0 {name} {rank} {float(score):.8g} tecoinfer\n")


class Said:
    """Tells what is to be said of a run: of what is ranked, and of samples that were cut or left out."""

    def __init__(self) -> None:
        self._said: Sequence[str] = ()

    def see(self, outputs: Any, contexts: Any, targets: Any) -> None:
        """Take in a batch; its outputs may have lines as ``said``."""
        self._said = getattr(outputs, "said", self._said)

    def hints(self) -> Sequence[str]:
        """Return the lines."""
        return list(self._said)


class RankingTask(Task):
    """What tasks share whose answers are rankings: how they are compared with the source's, told of and written."""

    writes = "what was found as a TREC run"

    def reference_answers(self, file: Path, dataset: Dataset) -> list[list[str] | None]:
        """Read the source's run: the names of the first :data:`TOP` of each query; ``None`` where it has none.

        Raises:
            DataError: a line is none of a TREC run.
        """
        found: dict[str, list[tuple[float, str]]] = {}
        for number, line in read_lines(file):
            fields = line.split()
            if not fields:
                continue
            try:
                found.setdefault(fields[0], []).append((-float(fields[4]), fields[2]))
            except (IndexError, ValueError) as error:
                raise DataError(f"{file}:{number}: not: query Q0 passage rank score name; correct the line") from error
        queries = [query.id for query in dataset.batch(range(len(dataset))).samples]
        return [[name for _, name in sorted(found[query])[:TOP]] if query in found else None for query in queries]

    def agreement(self, prediction: Found, answer: Sequence[str]) -> float:
        """Return how alike two rankings are by their first names: 1 for the same in one order, 0 for no common one.

        The mean over depths of the share that the names down to there have in common (average overlap: Fagin, Kumar and
        Sivakumar 2003, "Comparing top k lists").
        """
        depth = min(TOP, len(answer), len(prediction.ids))
        shares = [len({*prediction.ids[:k]} & {*answer[:k]}) / k for k in range(1, depth + 1)]
        return sum(shares) / depth if depth else 0.0

    def diagnostics(self) -> Said:
        """Return what tells of what is ranked, and of samples that were left out."""
        return Said()

    def prediction_writer(self, path: Path, dataset: Dataset) -> Run:
        """Return what writes a TREC run."""
        return Run(path)
