"""Which samples hold NaN: found exactly, wherever outputs have their samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from utils.pipeline.run.nan import Flaws, input_line, named, output_line

NAN, INF = float("nan"), float("inf")


def flaws(outputs: Any, count: int, axes: list[int | None] | None = None) -> tuple[list[int], list[int]]:
    """Return the samples with NaN, and those with infinities."""
    found = Flaws.none(count)
    found.add(outputs, axes)
    return np.flatnonzero(found.nan).tolist(), np.flatnonzero(found.infinite).tolist()


@st.composite
def batches(draw: st.DrawFn) -> tuple[int, list[np.ndarray], list[int | None], set[int], set[int]]:
    """Outputs with their samples anywhere, and what was planted in which samples."""
    count = draw(st.integers(1, 6))
    arrays, axes, planted, unending = [], [], set(), set()
    for _ in range(draw(st.integers(1, 3))):
        sizes = draw(st.lists(st.integers(1, 4), min_size=0, max_size=3))
        axis = draw(st.none() | st.integers(0, len(sizes)))
        shape = [size + 7 for size in sizes]  # no other dimension is as long as the batch
        if axis is not None:
            shape.insert(axis, count)
        dtype = draw(st.sampled_from([np.float16, np.float32, np.float64, np.int64, np.bool_, np.complex64]))
        array = np.ones(shape, dtype)
        if array.dtype.kind in "fc":
            for value in (NAN, draw(st.sampled_from([INF, -INF]))):
                for _ in range(draw(st.integers(0, 2))):
                    place = tuple(draw(st.integers(0, size - 1)) for size in shape)
                    array[place] = value
            for place in np.argwhere(~np.isfinite(array)):
                owners = range(count) if axis is None else [int(place[axis])]
                (planted if np.isnan(array[tuple(place)]) else unending).update(owners)
        arrays.append(array)
        axes.append(axis)
    return count, arrays, axes, planted, unending


@settings(deadline=None)
@given(batches())
def test_samples_are_named_exactly(
    batch: tuple[int, list[np.ndarray], list[int | None], set[int], set[int]],
) -> None:
    count, arrays, axes, planted, unending = batch
    outputs = arrays[0] if len(arrays) == 1 else arrays  # as an engine gives them
    assert flaws(outputs, count, axes) == (sorted(planted), sorted(unending))


def test_every_float16_value() -> None:
    values = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(-1, 1)
    assert flaws(values, len(values)) == (
        np.flatnonzero(np.isnan(values)).tolist(),
        np.flatnonzero(np.isinf(values)).tolist(),
    )
    for value in values[[0x7BFF, 0x7C00, 0x7C01, 0x7FFF, 0x8000, 0xFBFF, 0xFC00, 0xFC01, 0xFFFF]]:
        pair = np.stack([np.ones(1, np.float16), value])  # no other value hides what the test finds
        assert flaws(pair, 2) == ([1] if np.isnan(value) else [], [1] if np.isinf(value) else [])


def test_arrays_without_rows_flag_all_samples() -> None:
    other = np.array([[NAN, 0.0]] * 4)
    assert flaws(other, 2, [0]) == ([0, 1], [])  # two rows each, or beams, or anything
    assert flaws(np.float32(INF), 2) == ([], [0, 1])
    shards = [[np.zeros((3, 2))], [np.array([NAN])]]
    assert flaws(shards, 3, [0]) == ([0, 1, 2], [])
    assert flaws(shards, 3, [0, 0]) == ([0, 1, 2], [])  # as many shards as outputs


def test_outputs_of_tasks() -> None:
    rows = np.array([[0, 1.0], [NAN, 1], [2, -INF]])
    assert flaws({"scores": rows, "places": np.arange(3), "texts": ["a", "b", "c"]}, 3) == ([1], [2])
    assert flaws([[np.zeros(4)], [np.zeros(3), np.array([NAN])]], 2) == ([1], [])  # a list per sample
    assert flaws(([0.5, NAN], None), 3) == ([0, 1, 2], [])
    assert flaws(object(), 3) == ([], [])
    assert flaws([], 0) == ([], [])


def test_infinities_that_give_nan_predictions() -> None:
    found = Flaws.none(4)
    found.add(np.array([[INF, INF], [-INF, 0], [1, 2], [NAN, 0]], np.float32))
    scores = np.array([[NAN, NAN], [0, 1], [NAN, NAN], [0, 1]])  # the third one's NaN is the task's own
    assert found.lost(scores).tolist() == [True, False, False, True]
    answers = [[{"label": "x", "score": NAN}], [{"score": 1.0}], [], [[]]]
    assert found.lost(answers).tolist() == [True, False, False, True]


def test_lines() -> None:
    names = [f"{i}.png" for i in range(5)]
    assert named(np.array([False, True, True]), names[:3]) == ["1.png", "2.png"]
    assert input_line(names[:1], 9).startswith("1 of 9 samples have NaN in their input (0.png): look at")
    line = output_line(names, 9, [], "simulated T1 card: float16 storage")
    assert line.startswith("5 of 9 samples have NaN in the model's output (0.png, 1.png, 2.png and 2 more): ")
    assert line.endswith("`teco overflow` names the node, and --dtype float32 may avoid it")
    assert "float32" not in output_line(names, 9, names[:1], "ONNX Runtime float32")
    assert output_line(names[:2], 9, names, "bfloat16").endswith("it comes from NaN in their input")


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_narrow_floats_of_other_libraries(dtype: str) -> None:
    narrow = pytest.importorskip("ml_dtypes")
    assert flaws(np.array([[0], [NAN]]).astype(getattr(narrow, dtype)), 2) == ([1], [])
