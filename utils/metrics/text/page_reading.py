"""Metrics of page reading: characters, and lines found and read."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine import Array, ConfigError, DataError
from utils.metrics.base import RecordMetric
from utils.metrics.text.edits import FORMS, edit_distance, error_rate
from utils.metrics.text.polygons import Polygon

OVERLAP = 0.5
"""Minimum overlap (intersection over union, exclusive) of a found line, as in ICDAR 2015."""

COVERED = 0.5
"""Lines with more than this share of their area in an illegible line are ignored."""

RECORD = np.dtype(
    [
        ("edits", np.int32),  # in characters
        ("edits_joined", np.int32),  # the same without white space
        *(("length", np.int32), ("length_joined", np.int32)),
        ("boxed", np.bool_),  # the target has positions of lines
        *(("wanted", np.int32), ("found", np.int32), ("matched", np.int32)),  # lines
        ("read", np.int32),  # matched, and the text is right
        ("read_joined", np.int32),  # right ignoring white space
    ]
)
"""Record of a page."""


class PageErrorRate(RecordMetric):
    """Edits in characters over the characters of the target texts, over all pages; 0 is best, and it may exceed 1.

    Lines are matched one to one by their outlines, the largest overlap first. A pair counts with its edit distance, a
    missed line with its length, and a surplus line with the length of its text. Illegible lines (``###``), and lines
    found there, are ignored. A page with only a text is compared as a whole, with its lines in reading order joined by
    spaces.

    Args:
        form: Unicode normalisation of both texts, one of :data:`utils.metrics.text.edits.FORMS`.
    """

    name, higher_is_better = "page_cer", False

    def __init__(self, form: str = FORMS[0]) -> None:
        if form not in FORMS:
            raise ConfigError(f"{self.name}: normalisation {form!r} must be one of {', '.join(FORMS)}")
        self.form = form

    def records(self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None) -> Array:
        """Compare one batch.

        Args:
            predictions: per page its lines in reading order, objects with ``text`` and ``outline`` (N x 2).
            targets: per page an object with ``words`` (with ``text`` and ``outline``), or with ``None`` and ``text``.

        Raises:
            DataError: a target is of another kind.
        """
        found = np.zeros(len(targets), RECORD)
        for place, (prediction, target) in enumerate(zip(predictions, targets, strict=True)):
            if not hasattr(target, "words"):
                raise DataError(f"{self.name}: the target {target!r} is not that of a page; correct the data set")
            found[place] = self._whole(prediction, target) if target.words is None else self._lines(prediction, target)
        return found

    def _whole(self, prediction: Sequence[Any], target: Any) -> tuple[Any, ...]:
        read = self._form(" ".join(line.text for line in prediction))
        right = self._form(" ".join(target.text.split()))
        return (*_compared(read, right), False, 0, 0, 0, 0, 0)

    def _lines(self, prediction: Sequence[Any], target: Any) -> tuple[Any, ...]:
        wanted = [(self._form(word.text), Polygon(word.outline)) for word in target.words if word.text is not None]
        blind = [Polygon(word.outline) for word in target.words if word.text is None]
        found = [(self._form(line.text), Polygon(line.outline)) for line in prediction]
        found = [one for one in found if not any(_covered(one[1], other) for other in blind)]
        pairs = _matched([outline for _, outline in found], [outline for _, outline in wanted])
        texts = [(found[i][0], wanted[j][0]) for i, j in pairs]
        here, there = {i for i, _ in pairs}, {j for _, j in pairs}
        texts += [(text, "") for i, (text, _) in enumerate(found) if i not in here]
        texts += [("", text) for j, (text, _) in enumerate(wanted) if j not in there]
        sums = np.array([_compared(read, right) for read, right in texts], np.int64).reshape(-1, 4).sum(axis=0)
        matched = texts[: len(pairs)]
        right = sum(read == text for read, text in matched)
        joined = sum(_joined(read) == _joined(text) for read, text in matched)
        return (*sums.tolist(), True, len(wanted), len(found), len(pairs), right, joined)

    def _form(self, text: str) -> str:
        if self.form == "none" or text.isascii():
            return text
        return unicodedata.normalize(self.form, text)  # type: ignore[arg-type]

    def value(self, records: Array, weights: Array) -> float:
        """Return the weighted rate; NaN if all weights are 0."""
        return error_rate(records["edits"], records["length"], weights)

    def secondary(self) -> Mapping[str, float]:
        """Return the other figures.

        ``page_cer_joined``: the rate ignoring white space. ``precision``, ``recall``, ``hmean``: of finding lines, over
        all pages with outlines. ``end_to_end``: the harmonic mean if a line counts as found only with the right text;
        ``end_to_end_joined``: the same ignoring white space. ``lines``: number of target lines.
        """
        kept = self._all()
        ones, boxed = np.ones(len(kept)), kept[kept["boxed"]]
        figures = {"page_cer_joined": error_rate(kept["edits_joined"], kept["length_joined"], ones)}
        if len(boxed):
            wanted, found = int(boxed["wanted"].sum()), int(boxed["found"].sum())
            matched, read, joined = (int(boxed[name].sum()) for name in ("matched", "read", "read_joined"))
            figures |= {
                "precision": _share(matched, found),
                "recall": _share(matched, wanted),
                "hmean": _share(2 * matched, found + wanted),
                "end_to_end": _share(2 * read, found + wanted),
                "end_to_end_joined": _share(2 * joined, found + wanted),
                "lines": float(wanted),
            }
        return figures


def _matched(found: Sequence[Polygon], wanted: Sequence[Polygon]) -> list[tuple[int, int]]:
    """Return pairs of indices, one to one, the largest overlap first; of equal ones the earlier."""
    shares = [(-found[i].overlap(wanted[j]), i, j) for i in range(len(found)) for j in range(len(wanted))]
    pairs: list[tuple[int, int]] = []
    taken: tuple[set[int], set[int]] = set(), set()
    for _, i, j in sorted(one for one in shares if -one[0] > OVERLAP):
        if i not in taken[0] and j not in taken[1]:
            pairs.append((i, j))
            taken[0].add(i)
            taken[1].add(j)
    return pairs


def _covered(one: Polygon, other: Polygon) -> bool:
    return one.area > 0 and one.common(other) / one.area > COVERED


def _compared(read: str, right: str) -> tuple[int, int, int, int]:
    one, other = _joined(read), _joined(right)
    return edit_distance(read, right), edit_distance(one, other), len(right), len(other)


def _joined(text: str) -> str:
    return "".join(text.split())


def _share(part: int, whole: int) -> float:
    """Return a share of lines; 1 of none."""
    return part / whole if whole else 1.0
