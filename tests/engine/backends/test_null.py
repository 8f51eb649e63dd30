from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from support import SaveOnnx

from engine import Engine, EngineSpec, InputError, ModelError, open_engine

CONV = """g (float[N,3,H,W] x, int64[N] i) => (float[N,5,oh,ow] y, float[N,15] flat, int64[N] j, bool b)
<float[5,3,1,1] w={0,0,0,0,0,0,0,0,0,0,0,0,0,0,0}, bool b={1}> {
    y = Conv<strides=[2,2]>(x, w)
    small = GlobalAveragePool(y)
    wide = Concat<axis=1>(small, small, small)
    flat = Flatten(wide)
    j = Neg(i)
}"""


def opened(save_onnx: SaveOnnx, text: str) -> Engine:
    return open_engine("null", EngineSpec(ckpt=save_onnx(text)))


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batch=st.integers(1, 9), height=st.integers(1, 9), width=st.integers(1, 9), static=st.booleans())
def test_shapes_and_dtypes_are_those_of_onnx_runtime(
    save_onnx: SaveOnnx, batch: int, height: int, width: int, static: bool
) -> None:
    text = CONV.replace("[N,", "[4,").replace("[N]", "[4]").replace("H,W", f"{height},{width}") if static else CONV
    spec = EngineSpec(ckpt=save_onnx(text))
    inputs = [np.ones((batch, 3, height, width), np.float32), np.ones(batch, np.int64)]
    with open_engine("null", spec) as null, open_engine("onnx", spec) as onnx:
        for zeros, real in zip(null(inputs), onnx(inputs), strict=True):
            assert (zeros.shape, zeros.dtype) == (real.shape, real.dtype)
            assert not zeros.any()


def test_declared_sizes_that_are_stale_do_not_count(save_onnx: SaveOnnx) -> None:
    engine = opened(save_onnx, "g (float[N,4] x) => (float[1,4] y) { h = Sqrt(x)\n y = Relu(h) }")
    assert engine(np.ones((7, 4), np.float32)).shape == (7, 4)


def test_an_input_or_a_weight_that_is_an_output(save_onnx: SaveOnnx) -> None:
    engine = opened(
        save_onnx, "g (float[N,4] x) => (float[N,4] x, float[2] w, float[N,4] y) <float[2] w={1,2}> { y = Relu(x) }"
    )
    assert [y.shape for y in engine(np.ones((3, 4), np.float32))] == [(3, 4), (2,), (3, 4)]


def test_a_shape_that_depends_on_the_data(save_onnx: SaveOnnx) -> None:
    engine = opened(save_onnx, "g (float[N,4] x) => (int64[2,M] y) { y = NonZero(x) }")
    with pytest.raises(ModelError, match=r"model\.onnx: the shape of output 'y' depends on the data.*--target onnx"):
        engine(np.ones((2, 4), np.float32))


def test_inputs_are_checked_like_everywhere(save_onnx: SaveOnnx) -> None:
    engine = opened(save_onnx, CONV)
    with pytest.raises(InputError, match="got 1 input arrays"):
        engine(np.ones((1, 3, 2, 2), np.float32))
    assert "nothing is computed" in engine.describe()
    assert not engine.simulated


def test_results_are_copies(save_onnx: SaveOnnx) -> None:
    engine, x = opened(save_onnx, "g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }"), np.ones((2, 4), np.float32)
    engine(x)[:] = 5
    assert not engine(x).any()
