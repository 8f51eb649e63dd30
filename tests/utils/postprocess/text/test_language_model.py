"""N-gram models in ARPA files, and their effect in a beam search."""

from __future__ import annotations

import importlib.util
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from engine import DataError
from utils.postprocess.text.beam import beam
from utils.postprocess.text.ctc import probabilities
from utils.postprocess.text.language_model import LanguageModel, read_arpa

ARPA = """
\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-99 <s> -0.3
-0.7 </s>
-0.5 a -0.2
-0.9 b

\\2-grams:
-0.1 <s> a
-0.4 a b

\\end\\
"""


def read(text: str, **options: float) -> LanguageModel:
    return read_arpa(text.splitlines(), "x.arpa", **options)


def test_back_off_of_katz():
    model = read(ARPA)
    assert model.order == 2
    assert model.likely([], "a") == -0.1
    assert model.likely([], "b") == pytest.approx(-0.3 - 0.9)
    assert model.likely(["a"], "a") == pytest.approx(-0.2 - 0.5)
    assert model.likely(["b"], "nobody") == -7.0
    assert model.step(["a"], "b") == pytest.approx(0.5 * math.log(10) * -0.4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", "not an ARPA file"),
        (ARPA.replace("\\end\\", ""), "truncated"),
        (ARPA.replace("-0.4 a b", "-0.4 a b c d"), r"x.arpa:14: '-0.4 a b c d' is not a 2-gram"),
        (ARPA.replace("-0.9 b", "low b"), "'low b' has an invalid logarithm"),
        (ARPA.replace("2-grams:", "x-grams:"), "not a heading"),
    ],
)
def test_damaged_files(text, message):
    with pytest.raises(DataError, match=message):
        read(text)


def test_probabilities_of_our_models_sum_to_one():
    path = Path(__file__).parents[4] / "example/speech/prompts_ctc/language.py"
    spec = importlib.util.spec_from_file_location("prompts_language", path)
    language = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(language)
    model = read(language.arpa(["a b a", "b a", "c"]))
    words = [gram[0] for gram in model.grams if len(gram) == 1 and gram != ("<s>",)]
    for before in ([], ["a"], ["b", "a"], ["c", "c"], ["new"]):
        assert sum(10 ** model.likely(before, word) for word in words) == pytest.approx(1, abs=1e-3)


def test_a_wide_beam_finds_the_best_text_with_a_language_model():
    chance = np.random.default_rng(0)
    model = read(ARPA, weight=0.8, bonus=0.3)
    for _ in range(6):
        steps = probabilities(chance.normal(size=(1, 4, 4)) * 1.5)
        shares: dict[str, float] = {}
        for path in product(range(4), repeat=4):
            kept = [one for place, one in enumerate(path) if one and (not place or path[place - 1] != one)]
            text = "".join(" ab"[one - 1] for one in kept)
            shares[text] = shares.get(text, 0.0) + float(np.prod(steps[0][range(4), path]))

        def liked(text: str, known: dict[str, float] = shares) -> float:
            words = text.split()
            score = sum(model.step(words[:place], word) for place, word in enumerate(words))
            return math.log(known[text]) + score + model.end(words)

        (found,) = beam(steps, " ab", width=500, language=model)
        assert liked(found.text) == pytest.approx(max(map(liked, shares)), rel=1e-6)
        assert found.score == pytest.approx(shares[found.text], rel=1e-5)
