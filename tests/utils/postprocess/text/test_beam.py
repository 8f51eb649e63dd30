"""Prefix beam search, compared with the sum over every path."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from engine import ConfigError
from utils.postprocess.text.beam import beam
from utils.postprocess.text.ctc import greedy, probabilities
from utils.postprocess.text.lexicon import Lexicon

RNG = np.random.default_rng(0)


def every_text(steps: np.ndarray, charset: str, blank: int) -> dict[str, float]:
    """Return the probability of every text: all paths of T x C probabilities, one by one."""
    names = list(charset)
    names.insert(blank % steps.shape[1], "")
    found: dict[str, float] = {}
    for path in product(range(steps.shape[1]), repeat=len(steps)):
        kept = [c for i, c in enumerate(path) if i == 0 or path[i - 1] != c]
        text = "".join(names[c] for c in kept)
        found[text] = found.get(text, 0.0) + float(np.prod(steps[range(len(steps)), path]))
    return found


def names(charset: str) -> list[str]:
    return ["", *charset]


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([0, -1, 1]), st.integers(1, 5))
def test_a_wide_beam_is_exact(seed, blank, steps):
    logits = np.random.default_rng(seed).normal(size=(1, steps, 3)) * 2
    wanted = every_text(probabilities(logits)[0], "ab", blank)
    (found,) = beam(logits, "ab", blank, width=200)
    assert found.score == pytest.approx(max(wanted.values()), rel=1e-5)
    assert wanted[found.text] == pytest.approx(found.score, rel=1e-5)


def made_of(text: str, words: list[str]) -> bool:
    """Words separated by one space; words may contain spaces."""
    return text in words or any(text.startswith(f"{word} ") and made_of(text[len(word) + 1 :], words) for word in words)


def test_a_word_with_a_space_does_not_exclude_other_words():
    charset, wanted = "newyorkca ", "new car"
    outputs = np.full((1, len(wanted), len(charset) + 1), 0.01)
    for step, character in enumerate(wanted):
        outputs[0, step, 1 + charset.index(character)] = 0.9
    (found,) = beam(outputs, charset, lexicon=Lexicon(["new", "new york", "car"], names(charset)), logits=False)
    assert found.text == wanted


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.text("ab ", min_size=1, max_size=3), min_size=1, max_size=4))
@example(0, ["a", "a b", "b"])
def test_the_most_likely_words_of_a_lexicon(seed, words):
    steps = probabilities(np.random.default_rng(seed).normal(size=(1, 5, 4)) * 2)
    every = every_text(steps[0], "ab ", 0)
    wanted = {text: share for text, share in every.items() if made_of(text, words)}
    (found,) = beam(steps, "ab ", lexicon=Lexicon(words, names("ab ")), width=400)
    assert found.score == pytest.approx(max(wanted.values()), rel=1e-5)
    assert wanted[found.text] == pytest.approx(found.score, rel=1e-5)


def test_a_narrow_beam_does_not_overestimate():
    steps = probabilities(RNG.normal(size=(20, 6, 4)))
    for one, found in zip(steps, beam(steps, "abc", width=2), strict=True):
        assert found.score <= every_text(one, "abc", 0)[found.text] * (1 + 1e-5)


def test_many_paths_beat_the_most_likely_one():
    """Graves' example: the most likely path is all blank, the most likely text is not."""
    steps = np.array([[[0.6, 0.4], [0.6, 0.4]]])
    assert greedy(steps, "a")[0].text == ""
    assert beam(steps, "a")[0][:2] == ("a", pytest.approx(0.64))


def test_unambiguous_steps_give_the_greedy_text():
    charset = [chr(0x4E00 + i) for i in range(3000)]
    path = RNG.integers(0, 3001, 40)
    logits = np.zeros((1, 40, 3001), np.float32)
    logits[0, np.arange(40), path] = 20
    assert beam(logits, charset)[0].text == greedy(logits, charset)[0].text


def test_invalid_arguments():
    with pytest.raises(ConfigError, match=r"lexicon .*'xyz'"):
        Lexicon(["xyz", ""], names("ab"))
    assert Lexicon(["ab", "éa"], names("ab")).unwritable == ["éa"]
    with pytest.raises(ConfigError, match="width 0 "):
        beam(np.zeros((1, 2, 3)), "ab", width=0)
    (nothing,) = beam(np.array([[[0.0, 1.0, 0.0]]]), "ab", lexicon=Lexicon(["ab"], names("ab")))
    assert nothing[:2] == ("", 0.0)
    assert np.isnan(nothing.margin)
    (unknown,) = beam(np.full((1, 2, 3), np.nan), "ab")
    assert np.isnan(unknown.score)
