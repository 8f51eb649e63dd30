from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from engine.batching.batch import batch_of, fits, gather, run_sharded, split
from engine.signature import Array, TensorSpec
from tecoinfer_modelzoo.errors import EngineError

DTYPES = [np.float16, np.float32, np.float64, np.int8, np.int64, np.uint8, np.bool_]


def spec(name: str, array: Array, batched: bool) -> TensorSpec:
    return TensorSpec(name, array.dtype, array.shape, 0 if batched else None)


def out(name: str, batched: bool = True) -> TensorSpec:
    return TensorSpec(name, np.dtype(np.float32), (None,), 0 if batched else None)


def axes_of(flags: list[bool]) -> list[int | None]:
    return [0 if flag else None for flag in flags]


def rows(total: int, *tail: int, dtype: type = np.float32) -> Array:
    return np.arange(total * int(np.prod(tail)), dtype=np.int64).reshape(total, *tail).astype(dtype)


@st.composite
def calls(draw: st.DrawFn) -> tuple[list[Array], list[bool], int, int]:
    """One to four inputs of any shape and dtype, some without a batch dimension."""
    total, size = draw(st.integers(1, 40)), draw(st.integers(1, 17))
    flags = draw(st.lists(st.booleans(), min_size=0, max_size=3))
    flags.insert(draw(st.integers(0, len(flags))), True)
    arrays = []
    for flag in flags:
        tail = draw(st.lists(st.integers(1, 3), max_size=2))
        dtype = draw(st.sampled_from(DTYPES))
        arrays.append(rows(total if flag else draw(st.integers(1, 5)), *tail, dtype=dtype))
    return arrays, flags, total, size


@given(calls())
def test_split_and_gather_preserve_all_rows_in_order(call: tuple[list[Array], list[bool], int, int]) -> None:
    arrays, flags, total, size = call
    shards = split(arrays, axes_of(flags), total, size)
    assert len(shards) == -(-total // size)
    for shard in shards:
        assert all(len(part) == size for part, flag in zip(shard, flags, strict=True) if flag)
        assert all(part is array for part, array, flag in zip(shard, arrays, flags, strict=True) if not flag)
    batched = [i for i, flag in enumerate(flags) if flag]
    results = [[shard[i] for i in batched] for shard in shards]
    for got, i in zip(gather(results, [out(f"y{i}") for i in batched], total, size), batched, strict=True):
        assert got.dtype == arrays[i].dtype
        np.testing.assert_array_equal(got, arrays[i])


@given(calls())
def test_padding_repeats_a_real_row(call: tuple[list[Array], list[bool], int, int]) -> None:
    arrays, flags, total, size = call
    last = split(arrays, axes_of(flags), total, size)[-1]
    for part, array, flag in zip(last, arrays, flags, strict=True):
        if flag:
            for row in part[total - (-(-total // size) - 1) * size :]:
                np.testing.assert_array_equal(row, array[-1])


@given(calls())
def test_run_sharded_equals_one_call(call: tuple[list[Array], list[bool], int, int]) -> None:
    arrays, flags, total, size = call
    specs = [spec(f"x{i}", array, flag) for i, (array, flag) in enumerate(zip(arrays, flags, strict=True))]
    fixed = [array for array, flag in zip(arrays, flags, strict=True) if not flag]
    lengths = []

    def model(inputs: list[Array]) -> list[Array]:
        batched = [array for array, flag in zip(inputs, flags, strict=True) if flag]
        lengths.append({len(array) for array in batched})
        return [*batched, np.float32(sum(array.sum() for array in fixed))]

    names = [f"y{i}" for i in range(sum(flags) + 1)]
    results = run_sharded(model, arrays, specs, [out(name) for name in names], size)
    assert all(length == {size} for length in lengths)
    expected = [array for array, flag in zip(arrays, flags, strict=True) if flag]
    for got, want in zip(results[:-1], expected, strict=True):
        np.testing.assert_array_equal(got, want)
    assert results[-1] == np.float32(sum(array.sum() for array in fixed))
    assert batch_of(arrays, specs) == total


@given(calls(), st.data())
def test_any_axis_may_be_the_batch(call: tuple[list[Array], list[bool], int, int], data: st.DataObject) -> None:
    """Moving the batch to other axes gives the same samples, moved."""
    arrays, flags, total, size = call
    axes = [data.draw(st.integers(0, a.ndim - 1)) if flag else None for a, flag in zip(arrays, flags, strict=True)]
    moved = [a if axis is None else np.moveaxis(a, 0, axis) for a, axis in zip(arrays, axes, strict=True)]
    specs = [TensorSpec(f"x{i}", a.dtype, a.shape, axis) for i, (a, axis) in enumerate(zip(moved, axes, strict=True))]

    def model(inputs: list[Array]) -> list[Array]:
        assert {a.shape[axis] for a, axis in zip(inputs, axes, strict=True) if axis is not None} == {size}
        return inputs

    outputs = [replace(tensor, name=f"y{tensor.name}") for tensor in specs]
    assert batch_of(moved, specs) == total
    for got, want in zip(run_sharded(model, moved, specs, outputs, size), moved, strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_full_shard_is_not_copied() -> None:
    x = rows(8, 2)
    first, second = split([x], [0], 8, 4)
    assert first[0].base is x
    assert second[0].base is x


def sharded(model: object, x: Array, size: int) -> list[Array]:
    return run_sharded(model, [x], [spec("x", x, True)], [out("y")], size)  # type: ignore[arg-type]


@pytest.mark.parametrize("total", [1, 3, 4, 7, 8])
def test_an_output_without_batch_is_returned_once_if_shards_agree(total: int) -> None:
    (y,) = sharded(lambda inputs: [np.array([1.0, np.nan, 3.0])], rows(total, 2), 4)
    np.testing.assert_array_equal(y, [1.0, np.nan, 3.0])
    (y,) = sharded(lambda inputs: [np.array("text", object)], rows(total, 2), 4)
    assert y == "text"


@pytest.mark.parametrize("total", [5, 8, 9])
def test_an_output_without_batch_is_an_error_if_shards_disagree(total: int) -> None:
    with pytest.raises(EngineError, match=r"output 'y' .* 4 \(shapes \(\)\)"):
        sharded(lambda inputs: [inputs[0].sum()], rows(total, 2), 4)


def test_different_shapes_between_shards_are_an_error() -> None:
    with pytest.raises(EngineError, match="differs between shards"):
        sharded(lambda inputs: [np.flatnonzero(inputs[0] < 3)], rows(8, 1), 4)


def test_a_full_single_shard_may_reduce_over_the_batch() -> None:
    (y,) = sharded(lambda inputs: [inputs[0].sum()], rows(4, 2), 4)
    assert y == 28


@pytest.mark.parametrize("last", [1.0, 0.0])
def test_padding_of_a_single_shard_does_not_affect_outputs(last: float) -> None:
    """There is no other shard to compare with; a mean over the padding must still be detected."""
    x = np.full((3, 2), 5, np.float32)
    x[-1] = last
    with pytest.raises(EngineError, match="has no batch dimension"):
        sharded(lambda inputs: [inputs[0].mean()], x, 4)


def test_without_a_batched_input_the_model_runs_once() -> None:
    runs = []

    def model(inputs: list[Array]) -> list[Array]:
        runs.append(inputs)
        return [inputs[0] * 2]

    x = rows(3, 2)
    (y,) = run_sharded(model, [x], [spec("x", x, False)], [out("y")], 4)
    np.testing.assert_array_equal(y, x * 2)
    assert len(runs) == 1


def test_errors_of_the_model_pass_through() -> None:
    def model(inputs: list[Array]) -> list[Array]:
        raise EngineError("broken")

    with pytest.raises(EngineError, match="broken"):
        sharded(model, rows(9, 2), 4)


def tensor(*shape: int | None, batched: bool = True) -> TensorSpec:
    return TensorSpec("x", np.dtype(np.float32), shape, 0 if batched else None)


@pytest.mark.parametrize(
    ("shape", "spec", "fit"),
    [
        ((5, 3), tensor(None, 3), True),
        ((5, 3), tensor(16, 3), True),  # any batch
        ((5, 4), tensor(16, 3), False),
        ((5,), tensor(16, 3), False),
        ((0, 3), tensor(16, 3), False),
        ((5, 3), tensor(16, 3, batched=False), False),
        ((5, 3), tensor(None, 3, batched=False), True),
        ((), tensor(batched=False), True),
        ((1,), tensor(batched=False), False),
    ],
)
def test_fits(shape: tuple[int, ...], spec: TensorSpec, fit: bool) -> None:
    assert fits(shape, spec) is fit
