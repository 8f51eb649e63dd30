"""Beam search over the steps of a decoder with a cache.

The best ``width`` unfinished texts of each prompt are kept, by the sum of the logarithms of their probabilities. A
finished one is ranked by this sum divided by its number of tokens to the power of ``penalty``. A prompt is done when it
has ``width`` finished texts, and the best unfinished one, ranked by its present length, is not better than the worst of
them. These are the rules, and so the texts, of transformers' ``generate`` with ``early_stopping=False``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from engine import Array, Timeline
from utils.tasks.common.generation import FIRST, NEXT, Continuation, Step


class Beams(NamedTuple):
    """Settings of a search.

    Attributes:
        width: texts kept for each prompt. tokens: maximum number of new tokens, the end included.
        end: token that ends a text. penalty: power of the length. forbidden: tokens that are never chosen.
    """

    width: int
    tokens: int
    end: int
    penalty: float = 1.0
    forbidden: tuple[int, ...] = ()

    def rank(self, score: float, length: int) -> float:
        """Return the rank of a text of ``length`` tokens; the highest is the best."""
        return float(score / length**self.penalty)


class Text(NamedTuple):
    """New tokens of a text, the end included, and the sum of their logarithms."""

    score: float
    ids: tuple[int, ...]


@dataclass
class Search:
    """The search for one prompt: texts to continue, best first, and finished ones with their ranks, best first."""

    running: list[Text] = field(default_factory=lambda: [Text(0.0, ())])
    finished: list[tuple[float, Text]] = field(default_factory=list)

    def advance(self, logarithms: Array, how: Beams) -> list[int]:
        """Take the next token of each running text; return the rows of ``logarithms`` that the new ones continue.

        ``logarithms``: of the tokens' probabilities, a row per running text, x V float64. No row is returned at the
        end of the search.
        """
        sums = (logarithms + np.array([[one.score] for one in self.running])).reshape(-1)
        count = min(2 * how.width, len(sums))  # at most `width` of them end: one of each row
        best = np.sort(np.argpartition(-sums, count - 1)[:count])
        best = best[np.argsort(-sums[best], kind="stable")]
        before, self.running, rows = self.running, [], []
        for place, found in enumerate(best.tolist()):
            row, token = divmod(found, logarithms.shape[1])
            text = Text(float(sums[found]), (*before[row].ids, token))
            if token == how.end or len(text.ids) == how.tokens:
                if place < how.width:
                    self.finished.append((how.rank(text.score, len(text.ids)), text))
            elif len(self.running) < how.width:
                self.running.append(text)
                rows.append(row)
        self.finished = sorted(self.finished, key=lambda one: -one[0])[: how.width]
        return [] if self._done(how) else rows

    def _done(self, how: Beams) -> bool:
        if not self.running:
            return True
        if len(self.finished) < how.width:
            return False
        first = self.running[0]
        return how.rank(first.score, len(first.ids)) <= self.finished[-1][0]

    def best(self, how: Beams) -> Continuation:
        """Return the best finished text."""
        _, text = self.finished[0]
        ended = text.ids[-1] == how.end
        ids = list(text.ids[:-1] if ended else text.ids)
        return Continuation(ids, text.score, len(text.ids), "stop" if ended else "limit")


def search(step: Step, prompts: Sequence[Array], how: Beams, timeline: Timeline | None = None) -> list[Continuation]:
    """Return the best continuation of each prompt.

    Args:
        step: feeds tokens; its cache has a row per running text. prompts: int64, at least one token each.
        how: settings. timeline: gets spans as :func:`~utils.tasks.common.generation.generate` adds them.
    """
    made = [Continuation(score=float("nan"), why="nan") for _ in prompts]
    open_ones = {place: Search() for place in range(len(prompts))}
    feed, stage = [np.asarray(one, np.int64) for one in prompts], FIRST
    cache: Any = None
    while open_ones:
        start = time.perf_counter()
        logits, cache = step(feed, cache)
        logarithms = log_softmax(logits)
        logarithms[:, [one for one in how.forbidden if one < logarithms.shape[1]]] = -np.inf
        first = 0
        kept: list[int] = []
        left: dict[int, Search] = {}
        for place, one in open_ones.items():
            own = logarithms[first : first + len(one.running)]
            if not np.isnan(own).any():
                rows = one.advance(own, how)
                kept += [first + row for row in rows]
                if rows:
                    left[place] = one
                else:
                    made[place] = one.best(how)
            first += len(own)
        if timeline is not None:
            timeline.add(stage, start, time.perf_counter(), len(open_ones), "host")
        open_ones, stage = left, NEXT
        if open_ones:
            cache.keep(kept)  # each new text has the cache of the one that it continues
        feed = [np.array(text.ids[-1:], np.int64) for one in open_ones.values() for text in one.running]
    return made


def log_softmax(logits: Array) -> Array:
    """Return the natural logarithms of the probabilities, N x V float64, of N x V logits; NaN for a row with NaN."""
    wide = np.asarray(logits, np.float64)
    with np.errstate(invalid="ignore"):  # an infinite logit becomes NaN, which is reported
        shifted = wide - wide.max(axis=1, keepdims=True)
        found: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return found
