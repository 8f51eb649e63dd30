"""Passages in the order of a model's scores: judged again by pairs, shown, read and written as TREC's runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, DataError, ModelError, write_file
from utils.datasets.base import Batch, Dataset
from utils.datasets.text_table import read_lines
from utils.outputs import refuse_labels
from utils.tasks.base import Artifact, Options
from utils.tasks.model import Model

if TYPE_CHECKING:
    from utils.tasks.embedding import Rows

TOP = 10
"""Passages that two answers are compared by."""


class Found:
    """What was found for a query; no tuple, as only the best score is looked through for NaN.

    Attributes:
        ids: names of passages, the best first. scores: as many, float32, falling. texts: of the first ones.
    """

    def __init__(self, ids: Sequence[str], scores: Array, texts: Sequence[str]) -> None:
        self.ids, self.scores, self.texts = ids, scores, texts


class Reordered(NamedTuple):
    """Places in the corpus and their scores, the best first."""

    places: list[int]
    scores: Array


class Judge:
    """Scores pairs of query and passage by a model that reads both together.

    Args:
        engine: of a model with one logit, or two of which the second is ``relevant``. options: the flags.
    """

    def __init__(self, engine: Any, options: Options) -> None:
        from utils.tasks.embedding import Rows  # only what reads texts needs it

        self.rows: Rows = Rows(engine, options)
        self._most = getattr(options, "rerank", 1)

    def scores(self, query: str, texts: Sequence[str]) -> Array:
        """Return the score of each passage, float32."""
        encoded = self.rows.encode([(query, text) for text in texts])
        found: Array = self.rows.of(encoded, self._read)
        return found

    def again(self, query: str, places: Sequence[int], scores: Array, texts: Sequence[str]) -> Reordered:
        """Order the first passages anew; the others stay behind them in their order, each with 1 less than the last."""
        count = min(self._most, len(places))
        judged = self.scores(query, [texts[place] for place in places[:count]])
        order = np.argsort(-judged, kind="stable")
        least = np.float32(judged.min()) if len(judged) else np.float32(0)
        behind = least - np.arange(1, len(places) - count + 1, dtype=np.float32)
        first = [places[i] for i in order.tolist()]
        return Reordered([*first, *places[count:]], np.concatenate([judged[order], behind]))

    def _read(self, outputs: Any, lengths: Sequence[int]) -> Array:
        found = outputs[0] if isinstance(outputs, (list, tuple)) else outputs
        model = self.rows.model
        refuse_labels(model.form(None), model.ckpt, "a ranking needs a score for each pair", "")
        if found.dtype.kind != "f" or found.ndim > 2 or len(found) != len(lengths) or found.size > 2 * len(lengths):
            raise ModelError(
                f"{self.rows.model.ckpt}: its output is {list(found.shape)} {found.dtype} for {len(lengths)} pairs; a "
                "reranker gives a logit for each, or two"
            )
        found = found.astype(np.float32).reshape(len(lengths), -1)
        logits: Array = found[:, 0] if found.shape[1] == 1 else found[:, 1] - found[:, 0]
        return logits


def shown(query: str, found: Found, count: int) -> Artifact:
    """Return the first ``count`` passages in words and as data."""
    best = [
        {"rank": rank, "id": name, "score": round(float(score), 6), "text": text}
        for rank, (name, score, text) in enumerate(zip(found.ids, found.scores, found.texts, strict=False), start=1)
    ][:count]
    lines = [f"{one['rank']}. {one['score']:.3f} [{one['id']}] {_short(str(one['text']))}" for one in best]
    return Artifact("\n  ".join([_short(query), *lines]), {"query": query, "passages": best})


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 160 else f"{line[:157]}..."


class Run:
    """Writes what was found as a TREC run: ``query Q0 passage rank score name``."""

    def __init__(self, path: Path) -> None:
        self._path, self._lines = path, list[str]()

    def see(self, batch: Batch, predictions: Sequence[Found]) -> None:
        """Take in a batch."""
        for query, found in zip(batch.samples, predictions, strict=True):
            for rank, (name, score) in enumerate(zip(found.ids, found.scores, strict=True), start=1):
                self._lines.append(f"{query.id} Q0 {name} {rank} {float(score):.8g} tecoinfer\n")

    def close(self) -> None:
        """Write the file."""
        try:
            write_file(self._path, "".join(self._lines).encode("utf-8", "backslashreplace"))
        except OSError as error:
            why = error.strerror or error
            raise ConfigError(f"--save_predictions: {self._path} cannot be written ({why})") from error


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


def hinter(model: Model, options: Options) -> Said:
    """Return what tells of the run."""
    return Said()


def saver(path: Path, dataset: Dataset, model: Model, options: Options) -> Run:
    """Return what writes a TREC run."""
    return Run(path)


def answers(file: Path, dataset: Dataset, model: Model, options: Options) -> list[list[str] | None]:
    """Read the source's run as the names of the first :data:`TOP` passages of each query; ``None`` where it has none.

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


def agreement(prediction: Found, answer: Sequence[str]) -> float:
    """Return how alike two rankings are by their first passages: 1 for the same in one order, 0 for no common one.

    The mean over depths of the share that the passages down to there have in common (average overlap: Fagin, Kumar and
    Sivakumar 2003, "Comparing top k lists").
    """
    depth = min(TOP, len(answer), len(prediction.ids))
    shares = [len({*prediction.ids[:k]} & {*answer[:k]}) / k for k in range(1, depth + 1)]
    return sum(shares) / depth if depth else 0.0
