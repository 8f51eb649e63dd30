"""Tensors as JSON and as bytes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from serve.errors import ServeError
from serve.protocol.datatypes import (
    DATATYPES,
    check_bytes,
    datatype_of,
    dtype_of,
    from_bytes,
    from_json,
    shape_of,
    to_bytes,
    to_json,
)

NUMBERS = [name for name in DATATYPES if name != "BYTES"]
SHAPES = array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
TEXTS = arrays(
    np.object_, SHAPES, elements=st.text(st.characters(exclude_categories=["Cs"]), max_size=5), fill=st.nothing()
)


@given(st.data())
def test_bytes_give_the_same_tensor(data: st.DataObject) -> None:
    dtype = DATATYPES[data.draw(st.sampled_from(NUMBERS))]
    array = data.draw(arrays(dtype, SHAPES))
    found = from_bytes(to_bytes(array), array.shape, dtype, "x")
    assert (found.shape, found.dtype, found.tobytes()) == (array.shape, array.dtype, array.tobytes())


@given(st.data())
def test_json_gives_the_same_tensor(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(NUMBERS))
    dtype = DATATYPES[name]
    finite = {"elements": {"allow_nan": False, "allow_infinity": False}} if dtype.kind == "f" else {}
    array = data.draw(arrays(dtype, SHAPES, **finite))
    sent = json.loads(json.dumps(to_json(array, "x")))
    found = from_json(sent, array.shape, dtype, "x")
    assert (found.shape, found.dtype, found.tobytes()) == (array.shape, dtype, array.tobytes())


def test_large_integers_in_json() -> None:
    """NumPy reads them as real numbers where smaller ones are among them."""
    found = from_json([0, 1 << 63, (1 << 64) - 1], (3,), np.dtype(np.uint64), "x")
    assert found.tolist() == [0, 1 << 63, (1 << 64) - 1]
    for data, dtype in (([0, 1 << 64], np.uint64), ([-1, 1 << 63], np.uint64), ([0, 1 << 63], np.int64)):
        with pytest.raises(ServeError):
            from_json(data, (2,), np.dtype(dtype), "x")
    with pytest.raises(ServeError):
        from_json([0.0, 1 << 63], (2,), np.dtype(np.uint64), "x")


@given(TEXTS)
def test_texts_are_the_same(array: Any) -> None:
    for found in (
        from_bytes(to_bytes(array), array.shape, array.dtype, "x"),
        from_json(to_json(array, "x"), array.shape, array.dtype, "x"),
    ):
        assert found.shape == array.shape
        assert found.tolist() == array.tolist()


@given(st.binary(max_size=64), st.lists(st.integers(0, 5), max_size=3))
def test_any_bytes_are_texts_or_refused(data: bytes, shape: list[int]) -> None:
    try:
        found = from_bytes(data, tuple(shape), np.dtype(object), "x")
    except ServeError as error:
        status = error.status
    else:
        status = 400
        assert to_bytes(found) == data
    assert status == 400


def test_nested_lists_are_accepted() -> None:
    assert from_json([[1, 2], [3, 4]], (2, 2), np.dtype(np.int8), "x").tolist() == [[1, 2], [3, 4]]
    assert from_json([["a"], ["b"]], (2, 1), np.dtype(object), "x").tolist() == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("data", "shape", "datatype"),
    [
        ([1, 2], (3,), "FP32"),
        ([[1], [2, 3]], (3,), "FP32"),
        (["1"], (1,), "FP32"),
        ([True], (1,), "FP32"),
        ([None], (1,), "FP32"),
        ([1e39], (1,), "FP32"),
        ([70000.0], (1,), "FP16"),
        ([1.5], (1,), "INT32"),
        ([300], (1,), "UINT8"),
        ([-1], (1,), "UINT64"),
        ([2**64], (1,), "UINT64"),
        ([1], (1,), "BOOL"),
        ([1], (1,), "BYTES"),
        (["\ud800"], (1,), "BYTES"),
        ("12", (2,), "FP32"),
        (None, (), "FP32"),
        ({}, (0,), "FP32"),
    ],
)
def test_values_that_do_not_fit_are_refused(data: Any, shape: tuple[int, ...], datatype: str) -> None:
    with pytest.raises(ServeError) as caught:
        from_json(data, shape, DATATYPES[datatype], "x")
    assert caught.value.status == 400
    assert "'x'" in str(caught.value)


@pytest.mark.parametrize("shape", [None, 3, "3", [1.0], [True], [-1], [1 << 63], [[1]], [1] * 33])
def test_wrong_shapes_are_refused(shape: Any) -> None:
    with pytest.raises(ServeError):
        shape_of(shape, "x")


@pytest.mark.parametrize("datatype", [None, 3, "FLOAT", "fp32", "BF16", []])
def test_wrong_datatypes_are_refused(datatype: Any) -> None:
    with pytest.raises(ServeError) as caught:
        dtype_of(datatype, "x")
    assert "FP32" in str(caught.value)


@pytest.mark.parametrize(("data", "datatype"), [(b"\x02", "BOOL"), (b"123", "FP32"), (b"\x09\x00\x00\x00ab", "BYTES")])
def test_wrong_bytes_are_refused(data: bytes, datatype: str) -> None:
    with pytest.raises(ServeError):
        from_bytes(data, (1,), DATATYPES[datatype], "x")


def test_large_tensors_are_refused_before_they_exist() -> None:
    check_bytes((1 << 10,), np.dtype(np.float32), 1 << 12, "x")
    for shape, dtype in (((1 << 62, 1 << 62), np.float32), ((1 << 40,), np.object_), ((1025,), np.float32)):
        with pytest.raises(ServeError) as caught:
            check_bytes(shape, np.dtype(dtype), 1 << 12, "x")
        assert caught.value.status == 413


def test_nan_is_not_json() -> None:
    with pytest.raises(ServeError) as caught:
        to_json(np.array([1, np.nan], np.float32), "y")
    assert (caught.value.status, "binary" in str(caught.value)) == (400, True)


def test_every_dtype_has_a_name() -> None:
    assert [datatype_of(dtype) for dtype in DATATYPES.values()] == list(DATATYPES)
    with pytest.raises(ServeError):
        datatype_of(np.dtype(np.complex64))
