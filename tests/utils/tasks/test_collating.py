"""Collate: plain arrays pass, parts are joined, lists are padded to a size there is a plan for."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError, DataError, InputError, TensorSpec
from utils.tasks.collating import collate
from utils.tasks.model import Model
from utils.tasks.prepared import Prepared

IDS = TensorSpec("ids", np.dtype(np.int64), (None, None), batch_axis=0, symbols=("batch", "seq"))
MASK = replace(IDS, name="mask")
IMAGE = TensorSpec("image", np.dtype(np.float32), (None, 3, None, None), symbols=("batch", None, "h", "w"))
TIME_FIRST = TensorSpec("frames", np.dtype(np.float32), (None, None, 2), batch_axis=1, symbols=("t", "batch", None))
SHARED = TensorSpec("scale", np.dtype(np.float32), (2,), batch_axis=None, symbols=(None,))


def model(*inputs: TensorSpec, **dims: tuple[int, ...]) -> Model:
    return Model(Path("m.onnx"), inputs, dims=dims)


def rows(*lengths: int) -> list[np.ndarray]:
    return [np.arange(1, length + 1) for length in lengths]


def test_one_part_of_arrays_is_returned_unchanged() -> None:
    array = np.zeros((2, 5), np.int64)
    (found,) = collate([Prepared([array])], model(IDS, seq=(8,)))
    assert found is array


def test_parts_are_joined_along_each_batch_axis() -> None:
    parts = [
        Prepared([np.full((1, 4), i), np.full((3, 2, 2), i, np.float32), np.array([1, 2], np.float32)]) for i in (1, 2)
    ]
    ids, frames, scale = collate(parts, model(IDS, TIME_FIRST, SHARED))
    assert ids[:, 0].tolist() == [1, 2]
    assert frames[0, :, 0].tolist() == [1, 1, 2, 2]
    assert scale.shape == (2,)


@settings(deadline=None)
@given(st.lists(st.integers(0, 16), min_size=1, max_size=6), st.booleans())
def test_lists_are_padded_to_the_smallest_plan(lengths: list[int], one_by_one: bool) -> None:
    samples = rows(*lengths)
    ones = [np.ones_like(sample) for sample in samples]
    whole = [Prepared([samples, ones])]
    parts = [Prepared([[a], [b]]) for a, b in zip(samples, ones, strict=True)] if one_by_one else whole
    ids, mask = collate(parts, model(IDS, MASK, seq=(4, 8, 16)))
    size = next(size for size in (4, 8, 16) if size >= max(lengths))
    assert ids.shape == mask.shape == (len(lengths), size)
    assert ids.dtype == np.int64
    for row, flags, sample in zip(ids, mask, samples, strict=True):
        assert row[: len(sample)].tolist() == sample.tolist()
        assert not row[len(sample) :].any()
        assert flags.sum() == len(sample)


def test_inputs_of_a_symbol_get_one_size() -> None:
    ids, mask = collate([Prepared([rows(3, 2), rows(5, 1)])], model(IDS, MASK))
    assert ids.shape == mask.shape == (2, 5)


def test_any_size_is_the_longest_of_the_batch() -> None:
    assert collate([Prepared([rows(3, 7)])], model(IDS))[0].shape == (2, 7)
    assert collate([Prepared([rows(3, 7)])], model(replace(IDS, symbols=())))[0].shape == (2, 7)


def test_a_declared_size_is_padded_to() -> None:
    fixed = replace(IDS, shape=(None, 9))
    assert collate([Prepared([rows(3, 7)])], model(fixed))[0].shape == (2, 9)
    with pytest.raises(DataError, match=r"length 10 along 'seq', where the model is fixed to 9; truncate"):
        collate([Prepared([rows(3, 10)])], model(fixed))


def test_several_axes_and_a_batch_axis_within() -> None:
    images = [np.ones((3, 4, 6), np.float32), np.ones((3, 5, 2), np.float32)]
    (found,) = collate([Prepared([images])], model(IMAGE, h=(8, 16)))
    assert found.shape == (2, 3, 8, 6)
    assert found.sum() == 3 * (4 * 6 + 5 * 2)
    frames = [np.ones((length, 2), np.float32) for length in (1, 3)]
    (found,) = collate([Prepared([frames])], model(TIME_FIRST))
    assert found.shape == (3, 2, 2)
    assert found.flags.c_contiguous
    assert found[:, 0, 0].tolist() == [1, 0, 0]


def test_padding_by_name() -> None:
    filled = partial(collate, padding={"ids": 7})
    ids, mask = filled([Prepared([rows(1, 2), rows(1, 2)])], model(IDS, MASK))
    assert ids.tolist() == [[1, 7], [1, 2]]
    assert mask.tolist() == [[1, 0], [1, 2]]
    with pytest.raises(ConfigError, match="padding for idz; the model's inputs are: ids"):
        collate([Prepared([rows(1)])], model(IDS), padding={"idz": 1})


def test_arrays_and_lists_of_one_input() -> None:
    parts = [Prepared([np.ones((2, 3), np.int64)]), Prepared([rows(1)])]
    assert collate(parts, model(IDS, seq=(4,)))[0].tolist() == [[1, 1, 1, 0], [1, 1, 1, 0], [1, 0, 0, 0]]


def test_too_long_for_every_plan() -> None:
    with pytest.raises(DataError) as caught:
        collate([Prepared([rows(2, 17)])], model(IDS, seq=(8, 16)))
    said = str(caught.value)
    assert "length 17 along 'seq'" in said
    assert "is 16 (of 8,16)" in said
    assert "--dim seq=8,16,17" in said


def test_shapes_that_cannot_share_a_batch() -> None:
    parts = [Prepared([np.zeros((1, 3), np.int64)]), Prepared([np.zeros((1, 4), np.int64)])]
    with pytest.raises(DataError, match=r"'ids' the shape \(3,\) in part 0 and \(4,\) in part 1, which cannot share"):
        collate(parts, model(IDS))


def test_an_input_without_a_batch_axis_must_be_the_same() -> None:
    parts = [Prepared([np.array([1, value], np.float32)]) for value in (2, 3)]
    with pytest.raises(DataError, match="'scale' has no batch axis"):
        collate(parts, model(SHARED))
    one = Prepared([[np.array([1, 2], np.float32)]])
    assert collate([one], model(SHARED))[0].tolist() == [1, 2]
    with pytest.raises(DataError, match="2 samples"):
        collate([one, one], model(SHARED))


def test_wrong_counts_and_ranks() -> None:
    with pytest.raises(InputError, match="nothing to collate"):
        collate([], model(IDS))
    with pytest.raises(InputError, match="model takes 2: ids, mask"):
        collate([Prepared([rows(1)])], model(IDS, MASK))
    with pytest.raises(InputError, match=r"shape \(1, 1\)"):
        collate([Prepared([[np.ones(1), np.ones((1, 1))]])], model(IDS))
    with pytest.raises(InputError, match="an empty list"):
        collate([Prepared([[]])], model(IDS))


def test_dtypes_follow_the_input() -> None:
    small = replace(IDS, dtype=np.dtype(np.int32))
    assert collate([Prepared([rows(2)])], model(small))[0].dtype == np.int32
    with pytest.raises(InputError, match="beyond int32"):
        collate([Prepared([[np.array([2**40])]])], model(small))
    with pytest.raises(InputError, match=r"gives input 'ids' float64, the model takes int64; use array.astype"):
        collate([Prepared([[np.array([0.5])]])], model(IDS))
    half = replace(IMAGE, dtype=np.dtype(np.float16))
    assert collate([Prepared([[np.ones((3, 1, 1), np.float32)]])], model(half))[0].dtype == np.float16
