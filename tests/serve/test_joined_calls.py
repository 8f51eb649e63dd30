"""Requests computed in one call have the bits of their own calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from support import DIGITS

from engine import Array, EngineSpec, TensorSpec, open_engine
from serve.engines.joined import TRIALS, VALUES, Joined, can_join, same_bits

WIDTH = 256
X, Y = (TensorSpec(name, np.dtype(np.float32), (None, WIDTH)) for name in "xy")


def joined(call: Callable[[Array], Array], most: int = 16) -> tuple[Joined, list[int]]:
    """Return a joiner of a function of rows, and the list of the rows of its calls."""
    sizes: list[int] = []

    def counted(arrays: list[Array]) -> list[Array]:
        sizes.append(len(arrays[0]))
        return [call(arrays[0])]

    return Joined(counted, [X], [Y], most), sizes


def parts(counts: list[int], seed: int = 0) -> list[list[Array]]:
    rng = np.random.default_rng(seed)
    return [[rng.standard_normal((count, WIDTH)).astype(np.float32)] for count in counts]


def rounding_by_rows(x: Array) -> Array:
    """Compute other bits for other numbers of rows, as runtimes do with other kernels."""
    return (x / np.float32(3) if len(x) < 4 else x * np.float32(1 / 3)).astype(np.float32)


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=8), min_size=1, max_size=12), st.booleans())
def test_every_request_has_the_bits_of_its_own_call(batches: list[list[int]], is_exact: bool) -> None:
    call = (lambda x: (x * np.float32(3)).astype(np.float32)) if is_exact else rounding_by_rows
    join, _ = joined(call)
    for number, counts in enumerate(batches):
        given_parts = parts(counts, number)
        for found, (x,) in zip(join("key", given_parts), given_parts, strict=True):
            assert same_bits(found, [call(x)])


def test_a_size_is_used_after_equal_trials() -> None:
    join, sizes = joined(lambda x: x + 1)
    for number in range(TRIALS + 1):
        join("key", parts([1] * 5, number))
    assert sizes == [6, 1, 1, 1, 1, 1] * TRIALS + [6]
    assert (join.shared, join.trials, join.refused) == (5, TRIALS, 0)
    join("other", parts([1] * 5))  # of another shape, which has trials of its own
    assert sizes[-6:] == [6, 1, 1, 1, 1, 1]


def test_a_size_is_not_used_after_few_values() -> None:
    """Other kernels give the same bits for many values, so few of them show nothing."""
    join, sizes = joined(lambda x: x + 1)
    rows = [[np.ones((1, 2), np.float32)] for _ in range(4)]
    for _ in range(VALUES // 8):
        join("key", rows)
    assert join.shared == 0
    join("key", rows)
    assert (join.shared, join.trials, sizes[-1]) == (4, VALUES // 8, 4)


def test_a_size_with_other_bits_is_not_used_again() -> None:
    join, sizes = joined(rounding_by_rows)
    for number in range(3):
        join("key", parts([1] * 4, number))
    assert sizes == [4, 1, 1, 1, 1] + [1, 1, 1, 1] * 2
    assert join.refused == 1
    assert join.most_useful("key") == 16
    for _ in range(TRIALS):
        join("key", parts([1, 1]))
    assert join.most_useful("key") == 16
    for count in (5, 7, 9, 15):
        join("key", parts([1] * count))
    assert join.most_useful("key") == 3


def test_a_request_of_several_rows_is_compared_with_its_own_call() -> None:
    join, _ = joined(rounding_by_rows)
    (found,) = join("key", parts([4]))
    assert same_bits(found, [rounding_by_rows(parts([4])[0][0])])
    for number in range(5):
        given_parts = parts([4, 1], number)
        found, one = join("key", given_parts)
        assert same_bits(found, [rounding_by_rows(given_parts[0][0])])
        assert same_bits(one, [rounding_by_rows(given_parts[1][0])])


def test_more_rows_than_a_call_takes_are_computed_apart() -> None:
    join, sizes = joined(lambda x: x)
    join("key", parts([9, 9]))
    assert sizes == [9, 9]


def test_the_batch_may_be_any_axis() -> None:
    x, y = TensorSpec("x", np.dtype(np.float32), (3, None), 1), TensorSpec("y", np.dtype(np.float32), (2, 3, None), 2)
    join = Joined(lambda arrays: [np.stack([arrays[0], -arrays[0]])], [x], [y], 8)
    rows = [[np.full((3, count), count, np.float32)] for count in (1, 2, 2)]
    while not join.shared:
        found = join("key", rows)
    assert join.shared == 3
    assert [one[0].shape for one in found] == [(2, 3, 1), (2, 3, 2), (2, 3, 2)]
    assert [float(one[0][1, 0, 0]) for one in found] == [-1, -2, -2]


def test_nan_and_signed_zeros_are_compared_by_bits() -> None:
    nan = np.array([np.nan], np.float32)
    assert same_bits([nan], [nan.copy()])
    assert not same_bits([np.zeros(1, np.float32)], [-np.zeros(1, np.float32)])
    assert not same_bits([nan], [nan.astype(np.float64)])
    assert same_bits([np.array(["a"], object)], [np.array(["a"], object)])


def test_tensors_without_a_batch_are_not_joined() -> None:
    fixed = TensorSpec("k", np.dtype(np.float32), (3,), None)
    assert can_join([X], [Y]) == ""
    assert "'k'" in can_join([X, fixed], [Y])
    assert "'k'" in can_join([X], [Y, fixed])
    assert can_join([fixed], [Y])


@pytest.mark.parametrize("target", ["onnx", "cpu", "sdaa"])
def test_digits_on_real_engines(target: str) -> None:
    """Whatever an engine does for other numbers of rows, the bits are those of single calls."""
    spec = EngineSpec(ckpt=Path(DIGITS / "digits_dyn.onnx"), batch_size=8)
    with open_engine(target, spec) as engine:
        engine.batching.learn()

        def call(arrays: list[Array]) -> list[Array]:
            found = engine(arrays)
            return found if isinstance(found, list) else [found]

        join = Joined(call, engine.inputs, engine.outputs, 8)
        assert can_join(engine.inputs, engine.outputs) == ""
        rng = np.random.default_rng(5)
        for count in (2, 3, 8, 8, 8, 5, 6, 8):
            some = [[rng.random((1, 3, 32, 32)).astype(engine.input_dtype)] for _ in range(count)]
            found = join("key", some)
            assert all(same_bits(one, call(part)) for one, part in zip(found, some, strict=True))
