from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from onnx_node_cases import node_cases

from engine.backends.ort import HostSession
from engine.onnx.float16 import to_float16
from engine.onnx.shapes import infer_shapes
from engine.onnx.whole_numbers import exact_parts
from engine.sdaa import shard_work
from engine.sdaa.float16 import float16_storage
from tecoinfer_modelzoo.errors import ModelError

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
H = np.float16


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEADER + text)


def kept(text: str) -> set[str]:
    return set(exact_parts(infer_shapes(parse(text)).graph).written)


def test_timestep_embedding() -> None:
    text = """g (int64[N,1] t, float[N,4] x) => (float[N,4] y) <float[1,4] f = {1.0, 0.1, 0.01, 0.001}> {
        n = Cast <to = 1> (t)
        a = Mul(n, f)
        s = Sin(a)
        p = Mul(s, f)
        y = Add(x, p)
    }"""
    assert kept(text) == {"n", "a", "s"}
    assert kept(text.replace("int64[N,1]", "float[N,1]").replace("Cast <to = 1>", "Identity")) == {"n", "a", "s"}
    wide = text.replace("int64[N,1] t", "float[N,4] t").replace("Cast <to = 1>", "Identity")
    assert kept(wide) == set()  # values of a layer, not one number per sample


def test_frequencies_that_are_computed() -> None:
    text = """g (float[N,4] x, float[N] t) => (float[N,4] y) <int64 zero = {0}, int64 one = {1}, int64 four = {4}> {
        i = Range(zero, four, one)
        n = Cast <to = 1> (i)
        c = Constant <value_float = -2.3> ()
        e = Mul(n, c)
        f = Exp(e)
        k = Constant <value_ints = [1]> ()
        u = Unsqueeze(t, k)
        a = Mul(u, f)
        s = Cos(a)
        y = Mul(x, s)
    }"""
    assert kept(text) >= {"n", "e", "f", "u", "a", "s"}
    assert "y" not in kept(text)


@pytest.mark.parametrize(
    ("body", "want"),
    [
        ("f = Cast <to = 1> (n)\n m = Sub(one, f)\n v = Mul(m, low)\n y = Add(x, v)", set()),  # a mask: 0 and 1 only
        (
            "f = Cast <to = 1> (n)\n m = Sub(f, mean)\n v = Mul(m, one)\n y = Add(x, v)",
            {"f", "m", "v", "y"},
        ),  # a coordinate
        ("f = Cast <to = 1> (n)\n m = Sub(f, mean)\n v = Mul(m, third)\n y = Add(x, v)", {"f", "m"}),  # 4000.5 - 4000
        ("f = Cast <to = 1> (n)\n m = Mul(f, third)\n v = Floor(m)\n y = Add(x, v)", {"f", "m", "v", "y"}),
        ("f = Cast <to = 1> (n)\n m = Div(f, mean)\n v = Mul(m, one)\n y = Add(x, v)", set()),
        ("e = Gather(table, n)\n f = Squeeze(e, axis)\n v = Sin(f)\n y = Add(x, v)", set()),  # weights
    ],
)
def test_sensitive_operators(body: str, want: set[str]) -> None:
    table = "float[9,1] table = {0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9}"
    weights = "float one = {1}, float low = {-1e9}, float mean = {4000}, float third = {0.333}"
    text = f"g (int64[N,1] n, float[N,1] x) => (float[N,1] y) <{weights}, {table}> {{"
    assert kept(f"{text}\n axis = Constant <value_ints = [1]> ()\n {body}\n}}") == want


def test_positions_times_frequencies() -> None:
    text = """g (int64[N,S] p, float[N,4,S] x) => (float[N,4,S] y) <float[1,4,1] f = {1.0, 0.1, 0.01, 0.001}> {
        n = Cast <to = 1> (p)
        one = Constant <value_ints = [1]> ()
        u = Unsqueeze(n, one)
        a = MatMul(f, u)
        s = Sin(a)
        y = Add(x, s)
    }"""
    assert kept(text) == {"n", "u", "a", "s", "one"}


def test_a_sum_of_many_values_is_real() -> None:
    text = """g (int64[N,3] p, float[N,2] x) => (float[N,2] y) <float[3,2] w = {1,2,3,4,5,6}> {
        n = Cast <to = 1> (p)
        a = MatMul(n, w)
        s = Sin(a)
        y = Add(x, s)
    }"""
    assert kept(text) == set()


TIMESTEPS = """g (int64[N,1] t) => (float[N,4] y) <float[1,4] f = {1.0, 0.7, 0.3, 0.1}> {
    n = Cast <to = 1> (t)
    a = Mul(n, f)
    s = Sin(a)
    y = Neg(s)
}"""


def test_sine_is_exact_in_float16_storage_and_file() -> None:
    """9999 in torch's float16 is 10000, and its product with a frequency is wrong by several radians."""
    t = np.array([[9999], [501], [3001]])
    want = -np.sin(t * np.array([[1.0, 0.7, 0.3, 0.1]]))
    for model in (float16_storage(parse(TIMESTEPS)), to_float16(parse(TIMESTEPS))):
        onnx.checker.check_model(model, full_check=True)
        got = HostSession(model).run([t])[0]
        assert got.dtype == H
        np.testing.assert_allclose(got.astype(np.float64), want, atol=2e-3)


def test_the_card_costs_them_as_float32() -> None:
    model = parse(TIMESTEPS.replace("[N,", "[8,"))
    kernels = {kernel.name: kernel.float32 for kernel in shard_work(model, float16=True).kernels}
    assert list(kernels.values()) == [True, True, True, False]
    assert not any(kernel.float32 for kernel in shard_work(model, float16=False).kernels)


@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div", "Mod", "Min", "Max"])
@pytest.mark.parametrize("order", ["i, c", "c, i"])
def test_integer_arithmetic_with_a_constant(operator: str, order: str) -> None:
    graph = f"g (int64[4] i) => (float[4] y) <int64 c = {{-1}}> {{ n = {operator}({order}) y = Cast<to = 1>(n) }}"
    model = infer_shapes(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {graph}'))
    assert set(exact_parts(model.graph).written) <= {"y", "n"}


@pytest.mark.slow
def test_all_onnx_node_tests_are_analysed() -> None:
    walked = 0
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # from numpy and onnx while they compute expected values
        for case in node_cases():
            assert case.model is not None
            try:
                graph = infer_shapes(case.model).graph
            except ModelError:
                continue  # types not inferred by onnx
            exact_parts(graph)
            walked += 1
    assert walked > 1000
