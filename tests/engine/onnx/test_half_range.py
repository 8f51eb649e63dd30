from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from engine.backends.ort import HostSession
from engine.onnx.float16 import to_float16
from engine.onnx.half_range import loss, surely_kept

H = np.float16


def parse(text: str, opset: int = 17) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}')


def converted(model: onnx.ModelProto, **options: object) -> onnx.ModelProto:
    found = to_float16(model, **options)  # type: ignore[arg-type]
    onnx.checker.check_model(found, full_check=True)
    return found


def norm(variance: list[float], opset: int = 17, gamma: float = 1.5, mean: float = 300.0) -> onnx.ModelProto:
    model = parse(
        "g (float[N,2,4] x) => (float[N,2,4] y) { y = BatchNormalization <epsilon = 0.001> (x, gamma, beta, mean, v) }",
        opset,
    )
    for name, values in {"gamma": [gamma] * 2, "beta": [0.25] * 2, "mean": [mean] * 2, "v": variance}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.array(values, np.float32), name))
    return model


def spread(deviation: float) -> np.ndarray:
    return (np.random.default_rng(0).standard_normal((3, 2, 4)) * deviation).astype(H)


@pytest.mark.parametrize("deviation", [1e-30, 1e-6, 1e-4, 3e-4, 5e-4, 8e-4, 2e-3, 0.01, 1.0, 1e20, 1e30])
def test_kept_weights_do_not_vanish(deviation: float) -> None:
    weights = (np.random.default_rng(1).standard_normal((64, 64)) * deviation).astype(np.float32)
    sparse = np.where(np.arange(64) < 1, weights, weights / 1e4)
    for values in (weights, sparse, np.zeros_like(weights), np.full_like(weights, np.inf), weights * np.nan):
        assert not (surely_kept(values) and loss(values).vanishes)
    assert surely_kept(weights) == (2e-3 <= deviation < 1e18)


@pytest.mark.parametrize("opset", [9, 12, 14, 15, 17])
def test_a_batch_norm_with_a_variance_beyond_float16(opset: int) -> None:
    model, x = norm([4e7, 9e6], opset), spread(6000)
    want = HostSession(model).run([x.astype(np.float32)])[0]
    for clamp in (False, True):
        found = converted(model, clamp=clamp)
        assert all(t.data_type == 10 and np.isfinite(numpy_helper.to_array(t)).all() for t in found.graph.initializer)
        assert [node.op_type for node in found.graph.node] == ["BatchNormalization"]
        np.testing.assert_allclose(HostSession(found).run([x])[0].astype(np.float32), want, rtol=2**-9, atol=1e-3)


def test_variances_and_scales_too_small_for_float16() -> None:
    for variance, gamma in (([1e-9, 4.0], 1.0), ([4e8, 1e8], 0.02)):
        model, x = norm(variance, gamma=gamma, mean=0), spread(6000 if gamma < 1 else 0.01)
        want = HostSession(model).run([x.astype(np.float32)])[0]
        found = converted(model)
        held = [numpy_helper.to_array(tensor) for tensor in found.graph.initializer]
        assert all((loss(array).zero, loss(array).subnormal) == (0, 0) for array in held)
        np.testing.assert_allclose(HostSession(found).run([x])[0].astype(np.float32), want, rtol=2**-9, atol=1e-4)


def test_a_batch_norm_beyond_float16_stays_float32() -> None:
    model = norm([4e12, 4e12], mean=1e6)
    found = converted(model)
    assert [node.op_type for node in found.graph.node] == ["Cast", "BatchNormalization", "Cast"]
    want = HostSession(model).run([spread(9000).astype(np.float32)])[0]
    np.testing.assert_allclose(HostSession(found).run([spread(9000)])[0].astype(np.float32), want, rtol=2**-9)


def test_parameters_of_nodes_and_shared_ones() -> None:
    model = parse(
        """g (float[N,2,4] x) => (float[N,2,4] y) <float[2] gamma = {1.5, 1.5}, float[2] beta = {0.25, 0.25}> {
            mean = Constant <value_floats = [300.0, 300.0]> ()
            var = Constant <value = float[2] {4e7, 4e7}> ()
            a = BatchNormalization(x, gamma, beta, mean, var)
            b = BatchNormalization(a, gamma, beta, beta, gamma)
            c = BatchNormalization(x, gamma, beta, mean, var)
            y = Add(b, c)
        }"""
    )
    x = spread(6000)
    want = HostSession(model).run([x.astype(np.float32)])[0]
    found = converted(model)
    assert "var" not in {name for node in found.graph.node for name in node.output}
    np.testing.assert_allclose(HostSession(found).run([x])[0].astype(np.float32), want, rtol=2**-8, atol=2e-3)


@pytest.mark.filterwarnings("ignore:the float32 number")
def test_constants_beyond_float16() -> None:
    """A divisor of 1e6 would be infinite, a factor of 1e-8 zero; a mask's -1e9 saturates."""
    model = parse(
        """g (float[N] x, float[N] keep) => (float[N] y) <float million = {1e6}, float low = {-1e9}> {
            tiny = Constant <value_float = 1e-8> ()
            a = Div(x, million)
            b = Mul(a, million)
            c = Mul(x, tiny)
            d = Div(c, tiny)
            e = Mul(keep, low)
            f = Add(b, d)
            y = Add(f, e)
        }"""
    )
    x, keep = np.array([12000, -4000, 3], H), np.array([0, 0, 1], H)
    for clamp in (False, True):
        found = converted(model, clamp=clamp)
        got = HostSession(found).run([x, keep])[0]
        np.testing.assert_allclose(got[:2].astype(np.float32), [24000, -8000], rtol=0.02)
        assert got[2] < -65000
        assert ("low" in {tensor.name for tensor in found.graph.initializer}) == clamp
        assert "million" not in {tensor.name for tensor in found.graph.initializer}


def test_loss() -> None:
    found = loss(np.array([1e6, 1.0, 1e-5, 1e-12, 0.0, -2.0], np.float32))
    assert (found.elements, found.infinite, found.zero, found.subnormal) == (6, 1, 1, 1)
    assert found.share == pytest.approx(0.5)
    assert not found.vanishes
    tiny = loss(np.full(100, 1e-25, np.float32))
    assert (tiny.zero, tiny.part, tiny.vanishes) == (100, 1.0, True)
    assert not loss(np.random.default_rng(0).normal(0, 1e-2, 10000)).vanishes
    assert loss(np.zeros(0, np.float32)).share == 0.0
    assert not loss(np.zeros(3, np.float32)).vanishes
    assert loss(np.array([np.inf], H)).infinite == 1
