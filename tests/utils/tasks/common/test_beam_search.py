"""Beam search: the best of all texts if the beam holds them all, whatever the batch; the end of a search."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import Array, Timeline
from utils.tasks.common.beam_search import Beams, log_softmax, search
from utils.tasks.common.generation import FIRST, NEXT

END, VOCABULARY, LONGEST = 2, 3, 3


class Rows:
    """Cache of a table: the tokens of each row."""

    def __init__(self, texts: list[tuple[int, ...]]) -> None:
        self.texts = texts

    def keep(self, places: Sequence[int]) -> None:
        self.texts = [self.texts[place] for place in places]


def table(seed: int) -> dict[tuple[int, ...], Array]:
    """Return logits for every text of up to three tokens, whose first one is the prompt, 0 or 1."""
    rng = np.random.default_rng(seed)
    return {
        text: rng.normal(0, 2, VOCABULARY)
        for length in range(1, LONGEST + 1)
        for text in itertools.product(range(VOCABULARY), repeat=length)
    }


def step_of(known: dict[tuple[int, ...], Array]) -> Any:
    def step(feed: Sequence[Array], cache: Rows | None) -> tuple[Array, Rows]:
        before = [()] * len(feed) if cache is None else cache.texts
        texts = [(*old, *map(int, new)) for old, new in zip(before, feed, strict=True)]
        return np.array([known[text] for text in texts], np.float32), Rows(texts)

    return step


def best_of_all(known: dict[tuple[int, ...], Array], prompt: int, penalty: float) -> tuple[int, ...]:
    """Return the text of the highest rank, of all that end, or that have the maximum length."""
    ranks = {}
    for length in range(1, LONGEST + 1):
        for ids in itertools.product(range(VOCABULARY), repeat=length):
            if END in ids[:-1] or (ids[-1] != END and length < LONGEST):
                continue
            logarithms = [log_softmax(known[(prompt, *ids[:at])][None])[0, ids[at]] for at in range(length)]
            ranks[ids] = sum(logarithms) / length**penalty
    return max(ranks, key=lambda ids: ranks[ids])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_a_beam_of_everything_finds_the_best_text(seed: int) -> None:
    """Without a penalty a text's rank only falls, so no search ends too early."""
    known, how = table(seed), Beams(30, LONGEST, END, 0.0)
    prompts = [np.array([0]), np.array([1])]
    found = search(step_of(known), prompts, how)
    for prompt, one in enumerate(found):
        wanted = best_of_all(known, prompt, 0.0)
        assert tuple(one.ids) == tuple(token for token in wanted if token != END)
        assert (one.why, one.counted) == ("stop" if wanted[-1] == END else "limit", len(wanted))
        assert one.score < 0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.sampled_from([0.0, 0.6, 1.0, 2.0]))
def test_prompts_do_not_depend_on_each_other(seed: int, width: int, penalty: float) -> None:
    known, how = table(seed), Beams(width, LONGEST, END, penalty)
    together = search(step_of(known), [np.array([0]), np.array([1]), np.array([0])], how)
    alone = [search(step_of(known), [np.array([prompt])], how)[0] for prompt in (0, 1, 0)]
    assert together == alone


def test_a_wide_beam_finds_what_a_narrow_one_misses() -> None:
    """The likeliest first token leads to a text that is less likely as a whole."""
    known = {text: np.array([0.0, 0.0, 0.0]) for text in table(0)}
    known |= {(0,): np.log([0.55, 0.45, 1e-9]), (0, 1): np.log([0.02, 0.02, 0.96])}
    narrow, wide = (search(step_of(known), [np.array([0])], Beams(width, LONGEST, END, 0.0))[0] for width in (1, 4))
    assert (narrow.ids[0], wide.ids) == (0, [1])
    assert wide.score == pytest.approx(np.log(0.45 * 0.96), abs=1e-6)


def test_the_penalty_prefers_longer_texts() -> None:
    known = {text: np.log([0.9, 0.05, 0.05]) for text in table(0)}
    known[(0,)] = np.log([0.5, 0.001, 0.499])
    lengths = [
        search(step_of(known), [np.array([0])], Beams(3, LONGEST, END, penalty))[0].counted for penalty in (0.0, 1.0)
    ]
    assert lengths == [1, 3]


def test_forbidden_tokens_are_never_chosen_and_nan_is_reported() -> None:
    known = table(3)
    (found,) = search(step_of(known), [np.array([0])], Beams(2, LONGEST, END, 1.0, forbidden=(0, 99)))
    assert 0 not in found.ids
    known[(1,)] = np.array([np.nan, 0.0, 0.0])
    timeline = Timeline()
    good, bad = search(step_of(known), [np.array([0]), np.array([1])], Beams(2, LONGEST, END), timeline)
    assert (bad.why, bad.ids, np.isnan(bad.score)) == ("nan", [], True)
    assert good == search(step_of(known), [np.array([0])], Beams(2, LONGEST, END))[0]
    assert timeline.samples(FIRST) == 2
    assert timeline.samples(NEXT) >= 1
