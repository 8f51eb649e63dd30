"""What tasks share that read a text off a line of an image, or off a recording: words, golden texts, diagnostics."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import Array, DataError, TecoInferError
from tecoinfer_modelzoo.files import utf8_text
from utils.datasets.base import Dataset
from utils.tasks.base import Compare

if TYPE_CHECKING:
    from utils.postprocess.text.ctc import Text
    from utils.postprocess.text.lexicon import Lexicon

SHOWN = 8
"""Characters that a hint names."""

MOST, FEW = 0.5, 20
"""A blank holds most steps of a trained model; so many texts must have been seen before anything is said of it."""


class TextAnswers(Compare):
    """Texts of a source framework, and how far a prediction agrees with one."""

    def reference_answers(self, file: Path, dataset: Dataset) -> list[Text | None]:
        """Read texts from rows ``path<tab>text``; samples go by their path, or by their name where that is enough.

        Raises:
            DataError: the file cannot be read, a row has no tab, or no row is of a sample of the data set.
        """
        from utils.postprocess.text.ctc import Text

        rows = {}
        for number, row in enumerate(lines_of(file, "--golden"), 1):
            path, tab, text = row.partition("\t")
            if row and not tab:
                raise DataError(f"{file}:{number}: {row[:80]!r} has no tab between path and text; correct the line")
            rows[path] = rows[Path(path).name] = text
        names = dataset.batch(range(len(dataset))).names
        found = [rows.get(name, rows.get(Path(name).name)) for name in names]
        if all(text is None for text in found):
            raise DataError(f"{file}: none of its texts is of a sample of the data set, such as {Path(names[0]).name}")
        return [None if text is None else Text(text, 1.0) for text in found]

    def agreement(self, prediction: Any, answer: Any) -> float:
        """Return 1 where two texts are the same, 0 where they share nothing: 1 - edits over the longer one's length."""
        from utils.metrics.text.edits import edit_distance

        longest = max(len(prediction.text), len(answer.text))
        return 1.0 if not longest else 1 - edit_distance(prediction.text, answer.text) / longest


class TextDiagnostics:
    """Looks for right texts that the model cannot write, and for a class that holds the blank's place.

    Args:
        read: from outputs and contexts of a batch to how many steps each class is the likeliest of (int64, C), the
            characters that the model can write, and the class of its blank, 0 or more.
        written: how a right text is compared with those characters. advice: what to do about characters it lacks.
    """

    def __init__(
        self,
        read: Callable[[Any, Sequence[Any]], tuple[Array, frozenset[str], int]],
        written: Callable[[str], str],
        advice: str,
    ) -> None:
        self._read, self._written, self._advice = read, written, advice
        self._texts = self._unwritable = self._blank = 0
        self._unknown: dict[str, None] = {}
        self._steps: Array | None = None

    def see(self, outputs: Any, contexts: Sequence[Any], targets: Sequence[Any]) -> None:
        """Take in a batch."""
        try:
            counts, known, self._blank = self._read(outputs, contexts)
        except (TecoInferError, LookupError):  # a model whose task decodes in another way
            return
        for target in targets:
            missing = [one for one in self._written(str(target)) if one not in known]
            self._texts += 1
            self._unwritable += bool(missing)
            self._unknown.update(dict.fromkeys(missing))
        self._steps = counts if self._steps is None else self._steps + counts

    def hints(self) -> list[str]:
        """Return what looks wrong, one line each."""
        found = []
        if self._unwritable:
            shown = " ".join(list(self._unknown)[:SHOWN])
            more = f" and {len(self._unknown) - SHOWN} more" if len(self._unknown) > SHOWN else ""
            found.append(
                f"{self._unwritable} of {self._texts} texts hold characters that the model has not ({shown}{more}) and "
                f"cannot be right; {self._advice}"
            )
        if self._steps is not None and self._texts >= FEW:
            often = int(self._steps.argmax())
            edge = {0: 0, len(self._steps) - 1: -1}.get(often)
            if edge is not None and often != self._blank and self._steps[often] > MOST * self._steps.sum():
                found.append(
                    f"most steps are of class {often}, and the blank is class {self._blank}; try --blank {edge}"
                )
        return found


def lines_of(file: Path, flag: str) -> list[str]:
    """Return the lines of a UTF-8 file; only line feeds end one, other separators are characters.

    Raises:
        DataError: it cannot be read; the line names the flag.
    """
    return utf8_text(file, flag).replace("\r\n", "\n").removesuffix("\n").split("\n")


@lru_cache(maxsize=4)
def lexicon_of(file: Path, names: tuple[str, ...]) -> Lexicon:
    """Return the words of a file, one per line, as a tree over the classes; words that cannot be written warn once."""
    from utils.postprocess.text.lexicon import Lexicon

    found = Lexicon([word.strip() for word in lines_of(file, "--lexicon")], names)
    if found.unwritable:
        warnings.warn(
            f"--lexicon {file}: {len(found.unwritable)} of its words hold characters that the model has not, such as "
            f"{found.unwritable[0]!r}; they are never recognised",
            stacklevel=2,
        )
    return found
