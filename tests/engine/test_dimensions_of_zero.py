"""A dimension of size 0 that is not the batch runs on every target, as on ONNX Runtime; an empty batch is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper
from support import TVM

from engine import ConfigError, Engine, EngineSpec, InputError, open_engine
from utils.shapes import parse_dims

TARGETS = ("onnx", "cpu", "sdaa", *TVM)
WIDTH = 4


def attention(path: Path, axis: int, batch: str = "batch", past: str = "past") -> Path:
    """Write one step with a cache: the new keys behind the old ones, their sum, and the softmax over both.

    ``axis``: of the tokens; the batch is the other one of the first two.
    """
    tokens = ["seq", batch] if axis == 0 else [batch, "seq"]
    cached = [past, batch] if axis == 0 else [batch, past]
    total = ["total", batch] if axis == 0 else [batch, "total"]
    new = helper.make_tensor_value_info("x", TensorProto.FLOAT, [*tokens, WIDTH])
    old = helper.make_tensor_value_info("past", TensorProto.FLOAT, [*cached, WIDTH])
    present = helper.make_tensor_value_info("present", TensorProto.FLOAT, [*total, WIDTH])
    shares = helper.make_tensor_value_info("shares", TensorProto.FLOAT, [*total, WIDTH])
    nodes = [
        helper.make_node("Concat", ["past", "x"], ["present"], axis=axis),
        helper.make_node("Softmax", ["present"], ["shares"], axis=axis),
    ]
    graph = helper.make_graph(nodes, "g", [new, old], [present, shares])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def shaped(axis: int, batch: int, size: int, seed: int = 0) -> np.ndarray:
    shape = (size, batch, WIDTH) if axis == 0 else (batch, size, WIDTH)
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def opened(target: str, path: Path, past: str = "past", **given: Any) -> Engine:
    sizes = {past: (0, 1, 2, 3), "seq": (1,)} if target in ("sdaa", "tvm") else {}
    return open_engine(target, EngineSpec(path, dtype="float32", dims=sizes, **given))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("target", TARGETS)
def test_an_empty_cache_grows(target: str, axis: int, tmp_path: Path) -> None:
    path = attention(tmp_path / "m.onnx", axis)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    cache = shaped(axis, 2, 0)
    with opened(target, path) as engine:
        for step in range(3):
            x = shaped(axis, 2, 1, step)
            present, shares = engine([x, cache])
            expected = session.run(None, {"x": x, "past": cache})
            np.testing.assert_array_equal(present, expected[0])
            np.testing.assert_allclose(shares, expected[1], rtol=1e-5)
            cache = present


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", [0, 2])
def test_a_batch_of_0_samples_is_refused(target: str, axis: int, size: int, tmp_path: Path) -> None:
    path = attention(tmp_path / "m.onnx", axis)
    with opened(target, path) as engine, pytest.raises(InputError, match="empty batch"):
        engine([shaped(axis, 0, 1), shaped(axis, 0, size)])


def test_the_batch_dimension_is_derived_from_the_graph(tmp_path: Path) -> None:
    path = attention(tmp_path / "m.onnx", 0, batch="b1", past="p")
    with opened("onnx", path) as engine:
        assert [one.shape for one in engine([shaped(0, 3, 1), shaped(0, 3, 0)])] == [(1, 3, WIDTH)] * 2
        with pytest.raises(InputError, match="empty batch"):
            engine([shaped(0, 0, 1), shaped(0, 0, 2)])


@pytest.mark.parametrize("target", TARGETS)
def test_a_fixed_dimension_is_not_0(target: str, tmp_path: Path) -> None:
    path = attention(tmp_path / "m.onnx", 1)
    with opened(target, path) as engine, pytest.raises(InputError, match="the model takes") as caught:
        engine([shaped(1, 2, 1), np.zeros((2, 1, 0), np.float32)])
    assert "batch" not in str(caught.value)


@pytest.mark.parametrize("target", TARGETS)
def test_a_size_of_0_can_be_bound(target: str, tmp_path: Path) -> None:
    path = attention(tmp_path / "m.onnx", 1)
    spec = EngineSpec(path, dtype="float32", input_size=((1, 1, WIDTH), (1, 0, WIDTH)))
    with open_engine(target, spec) as engine:
        assert engine([shaped(1, 3, 1), shaped(1, 3, 0)])[0].shape == (3, 1, WIDTH)


def test_a_flag_plans_a_size_of_0() -> None:
    assert parse_dims(["past=64,0"]) == {"past": (0, 64)}
    with pytest.raises(ConfigError):
        EngineSpec(Path("m.onnx"), dims={"past": (-1, 64)})


@settings(max_examples=25)
@given(axis=st.integers(0, 1), batch=st.integers(0, 3), past=st.integers(0, 3), seq=st.integers(0, 2))
def test_sizes_of_every_kind_are_those_of_onnx_runtime(
    tmp_path_factory: pytest.TempPathFactory, axis: int, batch: int, past: int, seq: int
) -> None:
    path = attention(tmp_path_factory.mktemp("m") / "m.onnx", axis)
    x, cache = shaped(axis, batch, seq), shaped(axis, batch, past)
    with opened("onnx", path) as engine:
        if not batch:
            with pytest.raises(InputError, match="empty batch"):
                engine([x, cache])
            return
        found = engine([x, cache])
    expected = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x, "past": cache})
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
