"""Effects of settings on logits equal transformers'; random choices depend on the sample only."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from utils.postprocess.text.sampling import Chooser, Sampling, best_k, nucleus, penalized, processed, seed_of

SEEDS = st.integers(0, 1000)


def logits_of(seed: int, rows: int = 3, tokens: int = 40) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(0, 3, (rows, tokens)).astype(np.float32)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("transformers") is None or find_spec("torch") is None, reason="needs transformers")
@settings(max_examples=25, deadline=None)
@given(
    seed=SEEDS,
    temperature=st.sampled_from([0.3, 1.0, 1.7]),
    top_k=st.sampled_from([0, 1, 5, 40, 90]),
    top_p=st.sampled_from([0.05, 0.5, 0.9, 1.0]),
    penalty=st.sampled_from([0.8, 1.0, 1.3]),
)
def test_logits_equal_transformers(seed: int, temperature: float, top_k: int, top_p: float, penalty: float) -> None:
    import torch

    from utils.export.networks.transformers_detectors import transformers

    theirs = transformers().generation.logits_process
    logits = logits_of(seed)
    texts = np.random.default_rng(seed).integers(0, 40, (3, 6))
    found = torch.from_numpy(logits.copy())
    ids = torch.from_numpy(texts)
    steps = [theirs.RepetitionPenaltyLogitsProcessor(penalty)] if penalty != 1 else []
    steps += [theirs.TemperatureLogitsWarper(temperature)]
    steps += [theirs.TopKLogitsWarper(top_k)] if top_k else []
    steps += [theirs.TopPLogitsWarper(top_p)] if top_p < 1 else []
    for step in steps:
        found = step(ids, found)
    how = Sampling(True, temperature, top_k, top_p, penalty)
    np.testing.assert_allclose(processed(logits, texts.tolist(), how), found.numpy(), rtol=1e-6)


def test_greedy_selects_the_first_of_equal_values() -> None:
    logits = np.array([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]], np.float32)
    assert Chooser(Sampling())(logits, [0, 1], [[0], [0]]).tolist() == [1, 0]


def test_greedy_uses_the_penalty_only() -> None:
    logits = np.array([[1.0, 3.0, 2.5]], np.float32)
    assert Chooser(Sampling(penalty=2.0, temperature=9.0, top_k=1))(logits, [0], [[1]]).tolist() == [2]
    assert penalized(logits, [[1]], 1.0) is logits


def test_equal_logits_at_the_limit_are_kept() -> None:
    logits = np.array([[1.0, 2.0, 2.0, 0.0]], np.float32)
    assert np.isfinite(best_k(logits, 1)).tolist() == [[False, True, True, False]]
    assert best_k(logits, 0) is logits


def test_the_best_token_is_always_kept() -> None:
    assert np.isfinite(nucleus(logits_of(1), 1e-9)).sum(axis=1).tolist() == [1, 1, 1]


def seeds_of(prompts: list[str], seed: int = 0) -> list[int]:
    return [seed_of(seed, one) for one in prompts]


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, order=st.permutations(range(4)), split=st.integers(1, 3))
def test_draws_are_independent_of_the_batch(seed: int, order: list[int], split: int) -> None:
    prompts, logits = ["a", "b", "c", "d"], logits_of(seed, 4)
    how = Sampling(True, 1.3, 10, 0.9)
    whole = Chooser(how, seeds_of(prompts))
    wanted = [whole(logits, range(4), [[]] * 4).tolist() for _ in range(3)]
    for part in (order[:split], order[split:]):
        chooser = Chooser(how, seeds_of([prompts[i] for i in part]))
        for step in wanted:
            found = chooser(logits[part], range(len(part)), [[]] * len(part)).tolist()
            assert found == [step[i] for i in part]


def test_a_finished_sample_does_not_change_the_others() -> None:
    logits, how = logits_of(3, 2), Sampling(True)
    both, one = Chooser(how, seeds_of(["a", "b"])), Chooser(how, seeds_of(["a", "b"]))
    first = both(logits, [0, 1], [[], []])
    assert one(logits, [0, 1], [[], []]).tolist() == first.tolist()
    assert both(logits, [0, 1], [[], []])[1] == one(logits[1:], [1], [[]])[0]


def test_equal_prompts_have_different_seeds() -> None:
    assert len({seed_of(0, "a"), seed_of(0, "a", 1), seed_of(1, "a"), seed_of(0, "b")}) == 4


def test_frequencies_of_draws() -> None:
    logits = np.log(np.array([[0.1, 0.6, 0.3]], np.float32)).repeat(4000, axis=0)
    drawn = Chooser(Sampling(True, top_k=0), range(4000))(logits, range(4000), [[]] * 4000)
    np.testing.assert_allclose(np.bincount(drawn) / 4000, [0.1, 0.6, 0.3], atol=0.03)
