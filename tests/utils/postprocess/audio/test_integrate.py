"""Integrate-and-fire for all tokens at once, compared with a loop over the frames."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import example, given, strategies as st
from hypothesis.extra import numpy as arrays

from utils.postprocess.audio.integrate import integrated

Array = np.ndarray[Any, Any]


def walked(states: Array, weights: Array, tail: float) -> list[Array]:
    """Sum frames one by one; when a token is complete, the rest of the frame starts the next one."""
    tokens, held, token = [], 0.0, np.zeros(states.shape[1])
    for state, weight in zip([*states, np.zeros(states.shape[1])], [*weights.tolist(), tail], strict=True):
        if held + weight < 1:
            held, token = held + weight, token + weight * state
            continue
        tokens.append(token + (1 - held) * state)
        held = held + weight - 1
        token = held * state
    return tokens


@given(
    arrays.arrays(np.float64, st.integers(0, 40), elements=st.integers(0, 64).map(lambda n: n / 64)),
    st.integers(0, 63).map(lambda n: n / 64),
    st.integers(0, 2**32 - 1),
)
@example(np.ones(5), 0.0, 0)
@example(np.full(8, 0.5), 0.5, 1)
def test_tokens_equal_those_of_a_loop(weights: Array, tail: float, seed: int) -> None:
    states = np.random.default_rng(seed).normal(size=(len(weights), 3))
    found, wanted = integrated(states, weights, tail), walked(states, weights, tail)
    assert len(found) == len(wanted) == int(weights.sum() + tail)
    np.testing.assert_allclose(found, np.reshape(wanted, (len(wanted), 3)), atol=1e-12)


@given(st.integers(0, 2**32 - 1), st.integers(1, 300))
def test_the_sum_of_states_is_kept(seed: int, count: int) -> None:
    """With an integer number of tokens, the sum of their states is that of the frames."""
    made = np.random.default_rng(seed)
    weights = made.uniform(0.05, 0.3, count)
    tail = float(np.ceil(weights.sum()) - weights.sum())
    states = made.normal(size=(count, 4)).astype(np.float32)
    found = integrated(states, weights, tail + 1e-9)
    np.testing.assert_allclose(found.sum(axis=0), weights @ states, atol=1e-4)
