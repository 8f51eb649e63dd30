"""Random graphs on the types that OpenVINO narrows or wraps otherwise: target cpu gives what target onnx gives."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from favoured_openvino import favour_openvino
from hypothesis import given, settings, strategies as st
from number_graphs import BINARY, FLOAT_BINARY, FLOAT_UNARY, UNARY, Plan, graph_of
from onnx import TensorProto

from engine import EngineSpec, ModelError, open_engine

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("openvino") is None, reason='OpenVINO is not installed; install ".[openvino]"'
)

NODES = st.integers(0, 20)
PLANS = st.lists(st.tuples(st.sampled_from((*BINARY, *UNARY)), NODES, NODES), min_size=1, max_size=5)
FLOAT_PLANS = st.lists(st.tuples(st.sampled_from((*FLOAT_BINARY, *FLOAT_UNARY)), NODES, NODES), min_size=1, max_size=5)
CONSTANTS = st.lists(st.sampled_from((2, 3, 5, 7, 100)), min_size=2, max_size=2)
SEEDS = st.integers(0, 2**32 - 1)


@pytest.fixture(autouse=True, scope="module")
def openvino_wins() -> Any:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        favour_openvino(patch, Path(folder))
        yield


def agree(model: onnx.ModelProto, calls: list[np.ndarray[Any, Any]], rtol: float) -> None:
    """Compare the targets on some calls; models that ONNX Runtime has no kernels for are left out."""
    with tempfile.TemporaryDirectory() as folder, np.errstate(all="ignore"):
        path = Path(folder) / "model.onnx"
        onnx.save(model, path)
        try:
            exact = open_engine("onnx", EngineSpec(path))
        except ModelError:
            return
        with exact, open_engine("cpu", EngineSpec(path)) as engine:
            for x in calls:
                want, got = exact(x), engine(x)
                both = zip(got, want, strict=True) if isinstance(want, list) else [(got, want)]
                for one, other in both:
                    assert one.dtype == other.dtype
                    if other.dtype.kind != "f":
                        np.testing.assert_array_equal(one, other)
                        continue
                    np.testing.assert_array_equal(np.isnan(one), np.isnan(other))
                    near = np.abs(other[np.isfinite(other)]).max(initial=0)
                    np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * near)


@pytest.mark.parametrize("kind", ["INT64", "INT32", "INT8", "UINT8"])
@settings(max_examples=5)
@given(plan=PLANS, constants=CONSTANTS, seed=SEEDS)
def test_whole_numbers(kind: str, plan: Plan, constants: list[int], seed: int) -> None:
    plan = [(op, a, 1 + b % 2) if op in ("Div", "Mod") else (op, a, b) for op, a, b in plan]
    number = int(TensorProto.DataType.Value(kind))
    model = graph_of(plan, number, constants, (3, 4))
    dtype = onnx.helper.tensor_dtype_to_np_dtype(number)
    limits, rng = np.iinfo(dtype), np.random.default_rng(seed)
    bounds = [(max(limits.min, -bound), min(limits.max, bound - 1)) for bound in (10, 2**15, 2**31, 2**63)]
    calls = [rng.integers(low, high, (3, 4), endpoint=True, dtype=dtype) for low, high in bounds]
    agree(model, calls, 0.0)


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
@settings(max_examples=5)
@given(plan=FLOAT_PLANS, constants=CONSTANTS, seed=SEEDS)
def test_floats(kind: str, plan: Plan, constants: list[int], seed: int) -> None:
    """NaN in the same places too, wherever it comes from."""
    number = int(TensorProto.DataType.Value(kind))
    model = graph_of(plan, number, constants, (3, 4))
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((3, 4)).astype(onnx.helper.tensor_dtype_to_np_dtype(number))
    spoiled = x.copy()
    spoiled[1, 2] = np.nan
    calls = [x, spoiled] if kind == "FLOAT" else [x, x + 1.7e9, spoiled]
    agree(model, calls, 1e-9 if kind == "DOUBLE" else 1e-4)
