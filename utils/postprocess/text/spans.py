"""From scores of first and last tokens to answers: the best spans over all windows of a text (Devlin et al., 2019)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine import Array

BEST = 20
"""Spans that are compared in the end, at most."""


class Window(NamedTuple):
    """What a model says of a window of a text, L tokens.

    Attributes:
        starts, ends: how sure it is that a token is the first, and the last, of the answer; logits, L.
        spans: where each token begins and ends in the text, in characters, L x 2.
        inside: which tokens are of the text that answers come from, L booleans.
        free: scores of the token that says that there is no answer, start and end: those of ``[CLS]``.
    """

    starts: Array
    ends: Array
    spans: Array
    inside: Array
    free: tuple[float, float]


class Span(NamedTuple):
    """A span of the text.

    Attributes:
        text: ``""``: no answer. begin, end: characters of the text; 0, 0 for no answer.
        logit: both scores added. score: share of it among all spans, 0 to 1; NaN where the model gave NaN.
    """

    text: str
    begin: int
    end: int
    logit: float
    score: float


class Found(NamedTuple):
    """What a text answers.

    Attributes:
        answer: the best one; empty where "no answer" is surer.
        best: spans that are different texts, the surest first, ``[no answer]`` among them where that is allowed.
        gap: how much surer "no answer" is than the best span, in logits; ``-inf`` where it is not looked at.
    """

    answer: Span
    best: tuple[Span, ...]
    gap: float


def best_answer(
    windows: Sequence[Window], text: str, *, longest: int, count: int, silent: bool, threshold: float = 0.0
) -> Found:
    """Return the best answer over the windows of a text.

    A span is scored by its first token's start and its last token's end, added; all spans of at most ``longest`` tokens
    are compared, and one that several windows have counts where it scores best. The score of "no answer" is the least
    over the windows, as an answer in any of them is one (Rajpurkar et al., 2018; Devlin et al., 2019).

    Args:
        windows: one at least. text: that they are of.
        longest: tokens of an answer at most. count: spans to return.
        silent: whether "no answer" may be the answer. threshold: how much surer it must be, in logits.

    Returns:
        Scores are of the softmax over all spans of all windows, "no answer" among them where it is allowed.
    """
    logits, begins, ends, total = _candidates(windows, longest, max(count, 1) * BEST)
    free = min(sum(window.free) for window in windows) if silent else -math.inf
    known = all(np.isfinite(window.free).all() or not silent for window in windows) and not math.isnan(total)
    total = float(np.logaddexp(total, free)) if known else math.nan
    spans: list[Span] = []
    seen: set[str] = set()
    for logit, begin, end in zip(logits, begins, ends, strict=True):
        whole = text[begin:end]
        said = whole.strip()  # a byte-level token may have the space before a word
        if said in seen or not said:
            continue
        seen.add(said)
        begin += len(whole) - len(whole.lstrip())
        spans.append(Span(said, begin, begin + len(said), logit, _share(logit, total)))
        if len(spans) == count:
            break
    nothing = Span("", 0, 0, free, _share(free, total))
    gap = free - spans[0].logit if spans else math.inf
    answer = nothing if not spans or (silent and gap > threshold) else spans[0]
    best = sorted([*spans, nothing] if silent else spans, key=lambda span: -span.logit)[:count]
    return Found(answer, tuple(best), gap if silent else -math.inf)


def _share(logit: float, total: float) -> float:
    return math.nan if math.isnan(total) else math.exp(min(0.0, logit - total)) if logit > -math.inf else 0.0


def _candidates(windows: Sequence[Window], longest: int, most: int) -> tuple[list[float], list[int], list[int], float]:
    """Return logit, first and last character of the best spans, and the logarithm of all spans' sum of exponentials.

    One that several windows have is taken once. NaN anywhere makes the sum NaN.
    """
    parts = [_of_window(window, longest) for window in windows]
    logits, places = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    broken = any(np.isnan(np.concatenate([w.starts, w.ends])[np.tile(w.inside, 2)]).any() for w in windows)
    order = np.lexsort((places, -logits))
    logits, places = logits[order], places[order]
    if len(windows) > 1:
        _, first = np.unique(places, return_index=True)
        first.sort()
        logits, places = logits[first], places[first]
    total = math.nan if broken else _log_sum(logits)
    begins, ends = np.divmod(places[:most], _WIDE)
    return logits[:most].tolist(), begins.tolist(), ends.tolist(), total


def _of_window(window: Window, longest: int) -> tuple[Array, Array]:
    """Return the logits of all spans of a window, P, and the characters that they are: first * _WIDE + last."""
    inside = np.flatnonzero(window.inside)
    starts, ends = (scores[inside].astype(np.float64) for scores in (window.starts, window.ends))
    count = len(inside)
    first = np.repeat(np.arange(count), min(longest, count))
    last = first + np.tile(np.arange(min(longest, count)), count)
    near = last < count
    first, last = first[near], last[near]
    logits = starts[first] + ends[last]
    known = np.isfinite(logits)
    spans = window.spans[inside]
    places = spans[first, 0] * _WIDE + spans[last, 1]
    return logits[known], places[known]


_WIDE = 1 << 31
"""More characters than a text has: two places are one number."""


def _log_sum(logits: Array) -> float:
    if not len(logits):
        return -math.inf
    highest = float(logits.max())
    return highest + math.log(float(np.exp(logits - highest).sum()))
