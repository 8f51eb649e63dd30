"""Shared by text and speech recognition: reference texts, diagnostics and lexicons."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import Array, DataError, TecoInferError
from tecoinfer_modelzoo.files import utf8_text
from utils.datasets.base import Dataset
from utils.tasks import Compare

if TYPE_CHECKING:
    from utils.postprocess.text.ctc import Text
    from utils.postprocess.text.lexicon import Lexicon

SHOWN = 8
"""Number of characters in a hint."""

MOST, FEW = 0.5, 20
"""Share of steps above which a class looks like the blank, and number of texts needed for that hint."""


class TextAnswers(Compare):
    """Reference answers of a task whose predictions have a ``text``."""

    def reference_answers(self, file: Path, dataset: Dataset) -> list[Text | None]:
        """Read texts from rows ``path<tab>text``, matched by path, else by file name.
        Raises DataError if the file cannot be read, a row has no tab, or no row matches a sample of the data set."""
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
            raise DataError(
                f"{file}: none of its texts matches a sample of the data set, such as {Path(names[0]).name}"
            )
        return [None if text is None else Text(text, 1.0) for text in found]

    def agreement(self, prediction: Any, answer: Any) -> float:
        """Return 1 - edit distance / length of the longer text."""
        from utils.metrics.text.edits import edit_distance

        longest = max(len(prediction.text), len(answer.text))
        return 1.0 if not longest else 1 - edit_distance(prediction.text, answer.text) / longest


class TextDiagnostics:
    """Diagnostics for target texts with unsupported characters, and for a wrong blank class.

    Args:
        read: ``(outputs, contexts) -> (counts, characters, blank)`` of a batch: steps at which each class has the
            highest score, C int64; characters of the model; class of its blank, 0 or more. written: converts a target
            text for the comparison with the characters. advice: fix for missing characters.
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
        """Add a batch."""
        try:
            counts, known, self._blank = self._read(outputs, contexts)
        except (TecoInferError, LookupError):  # the task decodes another kind of output
            return
        for target in targets:
            missing = [one for one in self._written(str(target)) if one not in known]
            self._texts += 1
            self._unwritable += bool(missing)
            self._unknown.update(dict.fromkeys(missing))
        self._steps = counts if self._steps is None else self._steps + counts

    def hints(self) -> list[str]:
        """Return one line per problem."""
        found = []
        if self._unwritable:
            shown = " ".join(list(self._unknown)[:SHOWN])
            more = f" and {len(self._unknown) - SHOWN} more" if len(self._unknown) > SHOWN else ""
            found.append(
                f"{self._unwritable} of {self._texts} texts have characters that the model lacks ({shown}{more}) and "
                f"cannot be recognised; {self._advice}"
            )
        if self._steps is not None and self._texts >= FEW:
            often = int(self._steps.argmax())
            edge = {0: 0, len(self._steps) - 1: -1}.get(often)
            if edge is not None and often != self._blank and self._steps[often] > MOST * self._steps.sum():
                found.append(f"most steps have class {often}, and the blank is class {self._blank}; try --blank {edge}")
        return found


def lines_of(file: Path, flag: str) -> list[str]:
    """Return the lines of a UTF-8 file; only line feeds end a line, other separators are characters.
    Raises DataError if the file cannot be read; ``flag`` is part of the message."""
    return utf8_text(file, flag).replace("\r\n", "\n").removesuffix("\n").split("\n")


@lru_cache(maxsize=4)
def lexicon_of(file: Path, names: tuple[str, ...]) -> Lexicon:
    """Return the words of a file, one per line, as a tree over the classes; warn about unsupported words."""
    from utils.postprocess.text.lexicon import Lexicon

    found = Lexicon([word.strip() for word in lines_of(file, "--lexicon")], names)
    if found.unwritable:
        warnings.warn(
            f"--lexicon {file}: {len(found.unwritable)} of its words have characters that the model lacks, such as "
            f"{found.unwritable[0]!r}; they are never recognised",
            stacklevel=2,
        )
    return found
