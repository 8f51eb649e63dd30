"""Answers from scores of first and last tokens: the best spans over all windows of a text (Devlin et al., 2019)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from engine import Array

BEST = 20
"""Maximum number of spans in the final comparison, per answer."""


class Window(NamedTuple):
    """A model's scores for a window of a text of L tokens.

    Attributes:
        starts, ends: logits of each token as the first, and as the last, of the answer; L.
        spans: start and end of each token in the text, in characters, L x 2.
        inside: whether a token belongs to the text with the answers, L booleans.
        free: logits of "no answer", start and end: those of ``[CLS]``.
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
        logit: sum of both logits. score: its softmax over all spans, 0 to 1; NaN if the model returned NaN.
    """

    text: str
    begin: int
    end: int
    logit: float
    score: float


class Found(NamedTuple):
    """Answers found in a text.

    Attributes:
        answer: the best one; empty if "no answer" is more likely.
        best: different texts, highest score first, with ``[no answer]`` if that is allowed.
        gap: logit of "no answer" minus that of the best span; ``-inf`` if it is not allowed.
    """

    answer: Span
    best: tuple[Span, ...]
    gap: float


def best_answer(
    windows: Sequence[Window], text: str, *, longest: int, count: int, silent: bool, threshold: float = 0.0
) -> Found:
    """Return the best answer over the windows of a text, and ``count`` spans, of at most ``longest`` tokens.

    A span's logit is the sum of its first token's start and its last token's end; all spans are compared, with the
    maximum over windows. The logit of "no answer", if it is allowed (``silent``), is the minimum over the windows,
    because an answer may be in any of them (Rajpurkar et al., 2018; Devlin et al., 2019); it must exceed the best
    span's by ``threshold``. Scores are a softmax over all spans of all windows, with "no answer" if it is allowed.
    """
    logits, begins, ends, total = _candidates(windows, longest, max(count, 1) * BEST)
    free = min(sum(window.free) for window in windows) if silent else -math.inf
    known = all(np.isfinite(window.free).all() or not silent for window in windows) and not math.isnan(total)
    total = float(np.logaddexp(total, free)) if known else math.nan
    spans: list[Span] = []
    seen: set[str] = set()
    for logit, begin, end in zip(logits, begins, ends, strict=True):
        whole = text[begin:end]
        stripped = whole.strip()  # a byte-level token may have the space before a word
        if stripped in seen or not stripped:
            continue
        seen.add(stripped)
        begin += len(whole) - len(whole.lstrip())
        spans.append(Span(stripped, begin, begin + len(stripped), logit, _share(logit, total)))
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
    """Return logit, first and last character of the best spans, and the logarithm of the sum of all exponentials.

    A span in several windows is taken once. A NaN makes the sum NaN.
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
    """Return the logits of all spans of a window, P, and their characters: first * _WIDE + last."""
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
"""Upper limit of a text's characters, to encode two positions as one number."""


def _log_sum(logits: Array) -> float:
    if not len(logits):
        return -math.inf
    highest = float(logits.max())
    return highest + math.log(float(np.exp(logits - highest).sum()))
