"""Inputs that stay float32 in float16 models: statistics of a batch norm, and scalars."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from engine.backends.ort import HostSession
from engine.sdaa import shard_work
from engine.sdaa.float16 import float16_storage

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
H = np.float16
STATISTICS = {"gamma": 1.5, "beta": 0.25, "mean": 300.0, "var": 4e7}
NORM = "g (float[N,2,4] x) => (float[N,2,4] y) { y = BatchNormalization(x, gamma, beta, mean, var) }"
CONSTANTS = """g (float[N,2,4] x) => (float[N,2,4] y) {
    gamma = Constant <value_floats = [1.5, 1.5]> ()
    beta = Constant <value = float[2] {0.25, 0.25}> ()
    mean = Constant <value_floats = [300.0, 300.0]> ()
    other = Constant <value = float[1,2] {4e7, 4e7}> ()
    axes = Constant <value_ints = [0]> ()
    var = Squeeze(other, axes)
    y = BatchNormalization(x, gamma, beta, mean, var)
}"""


def run(text: str, *arrays: np.ndarray, **weights: float) -> np.ndarray:
    """Run the card's form of a model; the weights hold their value twice."""
    model = onnx.parser.parse_model(HEADER + text)
    for name, value in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(np.full(2, value, np.float32), name))
    card = float16_storage(model)
    onnx.checker.check_model(card)
    return HostSession(card).run(list(arrays))[0]


@pytest.mark.parametrize(("text", "weights"), [(NORM, STATISTICS), (CONSTANTS, {})])
def test_a_variance_beyond_float16_stays_finite(text: str, weights: dict[str, float]) -> None:
    """A variance of 4e7 stored in float16 made every scale 0: PP-OCRv4's detector found nothing."""
    x = (np.random.default_rng(0).standard_normal((3, 2, 4)) * 6000).astype(H)
    want = (x.astype(np.float64) - 300) / np.sqrt(4e7 + 1e-5) * 1.5 + 0.25
    np.testing.assert_allclose(run(text, x, **weights).astype(np.float64), want, rtol=2**-10, atol=1e-4)


def test_a_number_that_scales_is_float32() -> None:
    """As in PyTorch's half: a divisor of 1e6 stays finite, a factor of 1e-8 is not 0, a masked factor is not NaN."""
    torch = pytest.importorskip("torch")
    text = """g (float[N] x, float[N] keep) => (float[N] y) <float million={1e6}, float tiny={1e-8}, float low={-1e9}> {
        a = Div(x, million)
        b = Mul(a, million)
        c = Mul(x, tiny)
        d = Div(c, tiny)
        e = Mul(keep, low)
        f = Add(b, d)
        y = Add(f, e)
    }"""
    x, keep = np.array([12000, -4000, 3, 50000], H), np.array([0, 0, 1, 0], H)
    t = torch.from_numpy(x)
    want = (t / 1e6 * 1e6 + t * 1e-8 / 1e-8) + torch.from_numpy(keep) * -1e9
    got = run(text, x, keep)
    np.testing.assert_array_equal(got, want.numpy())
    assert got[2] == -np.inf


def test_float32_tensors_take_four_bytes() -> None:
    model = onnx.parser.parse_model(HEADER + NORM.replace("N,", "1,"))
    for name, value in STATISTICS.items():
        model.graph.initializer.append(numpy_helper.from_array(np.full(2, value, np.float32), name))
    assert shard_work(model, float16=True).weights == 4 * 2 * 4
