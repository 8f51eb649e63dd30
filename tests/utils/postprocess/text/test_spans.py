"""The best span over windows, compared with an exhaustive search."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from utils.postprocess.text.spans import Window, best_answer

TEXT = "ab cd ef gh ij kl"
SPANS = [(place, place + 2) for place in range(0, len(TEXT), 3)]


def window(first: int, last: int, seed: int, free: float) -> Window:
    """Return a window over some words, after a question of two tokens and a special one."""
    chance = np.random.default_rng(seed)
    words = SPANS[first:last]
    spans = np.array([(0, 0), (0, 2), (3, 5), (0, 0), *words, (0, 0)], np.int64)
    inside = np.array([False] * 4 + [True] * len(words) + [False])
    starts, ends = chance.normal(size=(2, len(spans))).round(3)
    return Window(starts, ends, spans, inside, (free, free / 2))


@settings(max_examples=40)
@given(st.integers(0, 1000), st.integers(1, 4), st.floats(-6, 6), st.booleans(), st.sampled_from([-1.0, 0.0, 2.0]))
def test_all_spans_of_all_windows_are_compared(
    seed: int, longest: int, free: float, silent: bool, threshold: float
) -> None:
    windows = [window(0, 4, seed, free), window(2, 6, seed + 1, free + 1)]
    found = best_answer(windows, TEXT, longest=longest, count=3, silent=silent, threshold=threshold)
    every: dict[tuple[int, int], float] = {}
    for one in windows:
        places = np.flatnonzero(one.inside)
        for a in places:
            for b in places[(places >= a) & (places < a + longest)]:
                where = int(one.spans[a, 0]), int(one.spans[b, 1])
                every[where] = max(every.get(where, -math.inf), float(one.starts[a] + one.ends[b]))
    order = sorted(every, key=lambda where: -every[where])
    nothing = min(sum(one.free) for one in windows)
    gap = nothing - every[order[0]]
    wanted = (0, 0) if silent and gap > threshold else order[0]
    assert (found.answer.begin, found.answer.end) == wanted
    assert found.answer.text == TEXT[slice(*wanted)]
    weights = np.exp([*every.values(), *([nothing] if silent else [])])
    own = nothing if wanted == (0, 0) else every[order[0]]
    assert found.answer.score == pytest.approx(math.exp(own) / weights.sum())
    assert found.gap == (pytest.approx(gap) if silent else -math.inf)
    texts = [TEXT[slice(*where)].strip() for where in order]
    second = next(every[where] for where, text in zip(order, texts, strict=True) if text != texts[0])
    margin = abs(threshold - gap) if silent else math.inf
    margin = margin if wanted == (0, 0) else min(margin, every[order[0]] - second)
    assert found.margin == pytest.approx(margin)
    logits = [span.logit for span in found.best]
    assert logits == sorted(logits, reverse=True)
    assert len({span.text for span in found.best}) == len(found.best) == 3


def test_the_margin_without_another_text() -> None:
    one = window(0, 1, 0, 0.0)
    found = best_answer([one], TEXT, longest=1, count=1, silent=False)
    assert found.margin == math.inf
    same = Window(np.arange(30.0), np.zeros(30), np.full((30, 2), (0, 2)), np.ones(30, bool), (0, 0))
    assert best_answer([same], TEXT, longest=1, count=1, silent=False).margin == 19  # the last span that is compared


def test_nan_gives_nan_scores() -> None:
    broken = window(0, 4, 0, 0.0)
    broken.starts[5] = np.nan
    found = best_answer([broken, window(2, 6, 1, 0.0)], TEXT, longest=3, count=1, silent=True)
    assert math.isnan(found.answer.score)
    lost = broken._replace(starts=np.full_like(broken.starts, np.nan))
    assert best_answer([lost], TEXT, longest=3, count=1, silent=False).answer.text == ""


def test_spaces_around_an_answer_are_removed() -> None:
    spans = np.array([(0, 0), (0, 2), (2, 5), (5, 8)], np.int64)  # as a byte-level tokenizer may have them
    one = Window(np.array([0.0, 0, 9, 0]), np.array([0.0, 0, 9, 0]), spans, np.array([False, True, True, True]), (0, 0))
    answer = best_answer([one], TEXT, longest=3, count=1, silent=False).answer
    assert (answer.text, answer.begin, answer.end) == ("cd", 3, 5)
