from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from hypothesis import given, reject, settings, strategies as st
from onnx import TensorProto, helper, numpy_helper

from engine.backends.ort import HostSession
from engine.onnx.float16 import to_float16
from engine.onnx.load import load_model
from engine.onnx.widen import widen
from engine.sdaa import float16
from engine.sdaa.float16 import float16_storage, round_half

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
H = np.float16


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text if text.startswith("<") else HEADER + text)


def run(model: onnx.ModelProto | str, *arrays: np.ndarray, **options: object) -> list[np.ndarray]:
    """Run the card's form of a model; every float output is float16."""
    card = float16_storage(parse(model) if isinstance(model, str) else model, **options)  # type: ignore[arg-type]
    onnx.checker.check_model(card)
    return HostSession(card).run(list(arrays))


def half(*values: float) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.array(values, H)


# -------------------------------------------------------------------- float16 node by node, against numpy's float16

NUMPY: dict[str, Callable[..., np.ndarray]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Sqrt": np.sqrt,
    "Neg": np.negative,
    "Abs": np.abs,
    "Relu": lambda x: np.where(x < 0, H(0), x),
    "Max": np.maximum,
    "Min": np.minimum,
    "Clip": lambda x: np.minimum(np.maximum(x, H(-1)), H(6)),
}
# Every one correctly rounded from float32 (24 bits are enough to round twice: 24 >= 2 * 11 + 2), in numpy as here.
CHOOSE = ("Relu", "Max", "Min", "Clip")
"""Operators that may return 0 or -0, which a division would show."""
ARITY = {"Sqrt": 1, "Neg": 1, "Abs": 1, "Relu": 1, "Clip": 1}

finite = (
    st.floats(-70000, 70000, width=32) | st.floats(-(2**-20), 2**-20, width=32) | st.sampled_from([0.1, 1 / 3, 300.0])
)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[onnx.ModelProto, Callable[[np.ndarray], list[np.ndarray]]]:
    """A random graph of elementwise operators over x and a weight, and the same in numpy float16."""
    weight = np.array(draw(st.lists(finite, min_size=4, max_size=4)), np.float32)
    names, nodes = ["x", "w"], []
    plan: list[tuple[str, list[str], str]] = []
    for i in range(draw(st.integers(1, 8))):
        op = draw(st.sampled_from(sorted(NUMPY)))
        read = [draw(st.sampled_from(names)) for _ in range(ARITY.get(op, 2))]
        extra = ["low", "high"] if op == "Clip" else []
        nodes.append(helper.make_node(op, [*read, *extra], [f"t{i}"]))
        plan.append((op, read, f"t{i}"))
        names.append(f"t{i}")
    outputs = sorted({f"t{len(plan) - 1}", *draw(st.lists(st.sampled_from(names[2:]), max_size=2))})
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in outputs],
        [
            numpy_helper.from_array(weight, "w"),
            numpy_helper.from_array(np.float32(-1), "low"),
            numpy_helper.from_array(np.float32(6), "high"),
        ],
    )

    def reference(x: np.ndarray) -> list[np.ndarray]:
        with np.errstate(all="ignore"):
            values = {"x": x, "w": weight.astype(H)}
            for op, read, name in plan:
                taken = [values[r] for r in read]
                if op in CHOOSE and any(np.any((one == 0) & np.signbit(one)) for one in taken):
                    reject()
                values[name] = NUMPY[op](*taken).astype(H)
        return [values[name] for name in outputs]

    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), reference


@settings(max_examples=120, deadline=None)
@given(graphs(), st.lists(finite, min_size=4, max_size=4))
def test_equals_numpy_float16_node_by_node(
    case: tuple[onnx.ModelProto, Callable[[np.ndarray], list[np.ndarray]]], values: list[float]
) -> None:
    model, reference = case
    x = half(*values)
    for got, want in zip(run(model, x), reference(x), strict=True):
        assert got.dtype == H
        nan = np.isnan(want)  # min and max with NaN are the operators' own business
        np.testing.assert_array_equal(got[~nan], want[~nan])


@settings(max_examples=40, deadline=None)
@given(graphs(), st.lists(finite, min_size=4, max_size=4))
def test_a_float16_file_matches_its_float32_original(case: tuple[onnx.ModelProto, object], values: list[float]) -> None:
    model, _ = case
    # onnxconverter-common keeps Max and Min in float32, which changes nothing: they only select
    for got, want in zip(run(to_float16(model), half(*values)), run(model, half(*values)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_squares_overflow_as_on_the_card() -> None:
    text = "g (float[N,2] x) => (float[N,2] y) { s = Mul(x, x)\n y = Sqrt(s) }"
    (y,) = run(text, half(300, 200).reshape(1, 2))
    np.testing.assert_array_equal(y, half(np.inf, 200).reshape(1, 2))
    # what a plain float16 model on ONNX Runtime's CPU hides
    (plain,) = HostSession(to_float16(parse(text))).run([half(300, 200).reshape(1, 2)])
    assert y[0, 0] != plain[0, 0] or np.isinf(plain[0, 0])


def test_largest_and_smallest_values() -> None:
    text = "g (float[6] x) => (float[6] y) <float[6] w={2, 1.0001, 0.5, 0.5, 1, -1}> { y = Mul(x, w) }"
    x = half(65504, 65504, 6e-8, 1.2e-7, 6e-8, 6e-8)
    (y,) = run(text, x)
    np.testing.assert_array_equal(y, half(np.inf, 65504, 0, 6e-8, 6e-8, -6e-8))


def test_weights_of_a_float16_file_are_not_rounded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the larger part of the time that it takes to open such a file."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> g (float16[2] x) => (float16[2] y) { h = Add(x, w) y = Add(h, v) }'
    )
    held, wide = np.array([1e-7, 65504], np.float16), np.array([0.1, 1e9], np.float32)
    model.graph.initializer.extend([numpy_helper.from_array(held, "w"), numpy_helper.from_array(held, "v")])
    rounded = []
    monkeypatch.setattr(float16, "round_half", lambda values: rounded.append(values) or round_half(values))
    stored = float16_storage(model)
    assert not rounded
    for tensor in stored.graph.initializer:
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), held.astype(np.float32))
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(wide, "v"))
    float16_storage(model)
    assert [list(values) for values in rounded] == [list(wide)]


def test_weights_are_rounded_and_may_overflow() -> None:
    (y,) = run(
        "g (float[4] x) => (float[4] y) <float[4] w={1e6,-65520,65519,1e-9}> { y = Mul(x, w) }", half(1, 1, 1, 1)
    )
    np.testing.assert_array_equal(y, half(np.inf, -np.inf, 65504, 0))


def test_round_half() -> None:
    values = np.array([65519.9, 65520.0, -1e9, 0.1, 1e-8, np.nan], np.float32)
    want = np.array([65504, np.inf, -np.inf, H(0.1), 0, np.nan], np.float32)
    np.testing.assert_array_equal(round_half(values), want)


@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_sums_accumulate_in_float32(op: str) -> None:
    """4096 ones: a float16 accumulator would stop at 2048."""
    model = parse(f"g (float[N,4096] x) => (float[N,1] y) {{ y = {op}(x, w) }}")
    model.graph.initializer.append(numpy_helper.from_array(np.ones((4096, 1), np.float32), "w"))
    (y,) = run(model, np.ones((2, 4096), H))
    np.testing.assert_array_equal(y, [[4096], [4096]])


def test_matmul_is_the_float32_product_of_rounded_operands_rounded_once() -> None:
    rng = np.random.default_rng(1)
    weight, x = rng.standard_normal((8, 3)).astype(np.float32), rng.standard_normal((5, 8)).astype(H)
    model = parse("g (float[N,8] x) => (float[N,3] y) { y = MatMul(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    exact = x.astype(np.float64) @ weight.astype(H).astype(np.float64)
    np.testing.assert_allclose(run(model, x)[0].astype(np.float64), exact, rtol=2**-11 + 1e-6)


@pytest.mark.torch
def test_equals_torch_half() -> None:
    torch = pytest.importorskip("torch")
    text = """g (float[N,8] x) => (float[N,8] y) <float scale={0.1}, float shift={3.3}> {
        a = Mul(x, scale)
        b = Add(a, shift)
        c = Mul(b, b)
        d = Sqrt(c)
        e = Sub(d, x)
        y = Relu(e)
    }"""
    x = (np.random.default_rng(2).standard_normal((64, 8)) * 200).astype(H)
    t = torch.from_numpy(x)
    b = t * 0.1 + torch.tensor(3.3, dtype=torch.half)  # what scales is a number: float32 in both
    want = torch.relu((b * b).sqrt() - t)
    np.testing.assert_array_equal(run(text, x)[0], want.numpy())


# ------------------------------------------------------------------------------------------------ what stays in float32


def test_kept_nodes_compute_and_pass_on_float32() -> None:
    text = "g (float[N,2] x) => (float[N,2] y) { s = Mul(x, x)\n r = Sqrt(s)\n y = Add(r, x) }"
    x = half(300, 1000).reshape(1, 2)
    np.testing.assert_array_equal(run(text, x, keep=lambda n: n.op_type in ("Mul", "Sqrt"))[0], x + x)
    # kept alone, its result is rounded where the next node reads it
    assert np.isinf(run(text, x, keep=lambda n: n.op_type == "Mul")[0]).all()


def test_a_kept_node_reads_unrounded_weights() -> None:
    text = "g (float[1] x) => (float[1] y) <float[1] w={2049}> { a = Mul(x, w)\n y = Sub(a, w) }"
    assert run(text, half(1), keep=lambda n: True)[0] == 0
    (y,) = run("g (float[1] x) => (float[1] y) <float[1] w={2049}> { y = Sub(x, w) }", half(2048), keep=lambda n: True)
    assert y == -1  # 2049 has no float16: it would round to 2048


def test_a_relu_after_a_float32_node_is_rounded() -> None:
    text = """g (float[1] x) => (float[1] y, float[1] r) <float[1] w={0.1}> {
        s = Mul(x, w)
        r = Relu(s)
        y = Sub(r, w)
    }"""
    y, r = run(text, half(1), keep=lambda n: n.op_type == "Mul")
    assert r == H(0.1)
    assert y == 0


def test_inputs_that_keep_float32() -> None:
    text = "g (float[1] x, float[1] p) => (float[1] y, float[1] z) { y = Sub(x, p)\n z = Relu(p) }"
    card = float16_storage(parse(text), keep_inputs=["p", "y", "nothing"])
    session = HostSession(card)
    assert [spec.dtype for spec in session.inputs] == [H, np.float32]
    y, z = session.run([half(0.1), np.array([0.1], np.float32)])
    assert (y, z) == (0, H(0.1))  # rounded where a float16 node reads it


def test_scales_of_resize_are_not_rounded() -> None:
    model = parse('g (float[1,1,3,3000] x) => (float[1,1,3,W] y) { y = Resize<mode="nearest">(x, , scales) }')
    scales = np.array([1, 1, 1, 1.3331], np.float32)  # float16: 1.333
    model.graph.initializer.append(numpy_helper.from_array(scales, "scales"))
    x = np.arange(9000, dtype=np.float32).reshape(1, 1, 3, 3000).astype(H)
    for keep in (lambda n: False, lambda n: True):
        assert run(model, x, keep=keep)[0].shape == (1, 1, 3, int(3000 * np.float32(1.3331)))


def test_integers_and_bools_are_left_alone() -> None:
    text = """g (int64[N] i, bool[N] b) => (int64[N] j, bool[N] c, float[N] f) <int64 big={100001}> {
        j = Add(i, big)
        c = Not(b)
        f = Cast<to=1>(j)
    }"""
    j, c, f = run(text, np.array([0, 1]), np.array([True, False]))
    np.testing.assert_array_equal(j, [100001, 100002])
    np.testing.assert_array_equal(c, [False, True])
    np.testing.assert_array_equal(f, np.float32([100001, 100002]))  # a whole number as an output stays float32
    assert f.dtype == np.float32


def test_float64_stays_float64() -> None:
    (y,) = run("g (double[N] x) => (double[N] y) { y = Mul(x, x) }", np.array([1e5]))
    assert (y.dtype, y[0]) == (np.float64, 1e10)


# --------------------------------------------------------------------------------------------------- shapes of a graph


def test_an_output_that_is_also_an_intermediate_value() -> None:
    s, y = run(
        "g (float[1] x) => (float[1] s, float[1] y) <float[1] w={0.1}> { s = Mul(x, w)\n y = Sub(s, w) }", half(1)
    )
    assert (s, y) == (H(0.1), 0)


def test_an_input_that_is_an_output() -> None:
    x, y = run("g (float[2] x) => (float[2] x, float[2] y) { y = Neg(x) }", half(0.1, 7))
    np.testing.assert_array_equal(x, half(0.1, 7))
    np.testing.assert_array_equal(y, -x)
    card = float16_storage(parse("g (float[2] x) => (float[2] x, float[2] y) { y = Neg(x) }"), keep_inputs=["x"])
    x, _ = HostSession(card).run([np.array([0.1, 7], np.float32)])
    assert (x.dtype, x[0]) == (np.float32, np.float32(0.1))


def test_a_graph_without_nodes() -> None:
    (x,) = HostSession(float16_storage(parse("g (float[2] x) => (float[2] x) { }"))).run([half(1, 2)])
    np.testing.assert_array_equal(x, half(1, 2))


def test_a_weight_that_is_an_output() -> None:
    text = """g (float[2] x) => (float[2] w, float[2] y, int64[1] k) <float[2] w={0.1,1e6}, int64[1] k={7}> {
        y = Mul(x, w)
    }"""
    w, y, k = run(text, half(1, 1))
    np.testing.assert_array_equal(w, half(0.1, np.inf))
    np.testing.assert_array_equal(y, w)
    assert (k.dtype, k[0]) == (np.int64, 7)


def test_an_output_listed_twice() -> None:
    model = parse("g (float[2] x) => (float[2] y, float[2] y) { y = Neg(x) }")
    first, second = HostSession(float16_storage(model)).run([half(1, 2)])
    np.testing.assert_array_equal(first, half(-1, -2))
    np.testing.assert_array_equal(second, first)


def test_weights_that_ir_3_lists_as_inputs() -> None:
    text = (
        '<ir_version: 3, opset_import: ["" : 9]>\n'
        "g (float[N,2] x, float[2] w) => (float[N,2] y) <float[2] w={0.1,0.2}> { y = Mul(x, w) }"
    )
    card = float16_storage(parse(text))
    session = HostSession(card)
    assert [spec.name for spec in session.inputs] == ["x"]
    np.testing.assert_array_equal(session.run([half(1, 1).reshape(1, 2)])[0], half(0.1, 0.2).reshape(1, 2))


def test_a_weight_of_both_kinds_of_node() -> None:
    text = "g (float[1] x) => (float[1] y, float[1] z) <float[1] w={2049}> { y = Sub(w, x)\n z = Div(w, x) }"
    y, z = run(text, half(1), keep=lambda n: n.op_type == "Div")
    assert (y, z) == (2047, 2048)  # 2048 - 1; 2049 / 1, rounded on the way out


def test_scatter_that_adds_is_rounded() -> None:
    text = """g (float[2] x, int64[2] i) => (float[2] y) <float[2] w={2048,2048}> {
        s = ScatterElements<axis=0, reduction="add">(w, i, x)
        y = Sub(s, w)
    }"""
    (y,) = run(text, half(1, 1), np.array([0, 1]))
    np.testing.assert_array_equal(y, half(0, 0))  # 2049 rounds to 2048 before the next kernel sees it


def test_values_of_unknown_type_are_announced() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[N,2] x) => (float[N,2] y) { a = com.microsoft.FusedMatMul(x, x)
                                         y = Neg(a) }"""
    with pytest.warns(UserWarning, match=r"FusedMatMul .*type unknown to onnx"):
        float16_storage(parse(text))


def test_optional_inputs_left_out() -> None:
    (y,) = run("g (float[2] x) => (float[2] y) <float high={6}> { y = Clip(x, , high) }", half(-3, 9))
    np.testing.assert_array_equal(y, half(-3, 6))


def test_the_model_is_unchanged() -> None:
    model = parse("g (float[2] x) => (float[2] y) <float[2] w={0.1,0.2}> { y = Mul(x, w) }")
    before = model.SerializeToString()
    float16_storage(model)
    widen(model)
    assert model.SerializeToString() == before


# ------------------------------------------------------------------------------------ bodies, functions and casts

IF = """g (float[1] x, bool c) => (float[1] y, float[1] a) <float[1] w={0.1}> {
    a = Mul(x, w)
    y = If <then_branch = t () => (float[1] u) { u = Sub(a, w) },
            else_branch = e () => (float[1] v) { k = Mul(x, x)
                                                v = Sqrt(k) }> (c)
}"""


def test_if_captures_device_tensors() -> None:
    y, a = run(IF, half(1), np.array(True))
    assert a == H(0.1)
    assert y == H(np.float32(H(0.1)) - np.float32(0.1))  # the captured value is rounded, the body's own weight is not
    y, _ = run(IF, half(300), np.array(False))
    assert y == 300  # a body is one kernel: float32 inside


LOOP = """g (float[1] x, int64 n) => (float[1] y) <float[1] w={0.1}, bool go={1}> {
    a = Mul(x, w)
    y = Loop <body = b (int64 i, bool more, float[1] sum) => (bool still, float[1] total) {
        still = Identity(more)
        total = Add(sum, a)
    }> (n, go, x)
}"""


def test_loop_captures_device_tensors() -> None:
    (y,) = run(LOOP, half(1), np.array(3))
    assert y == H(1 + 3 * np.float32(H(0.1)))


def test_nested_bodies() -> None:
    text = """g (float[1] x, bool c) => (float[1] y) <float[1] w={0.1}> {
        a = Mul(x, w)
        y = If <then_branch = t () => (float[1] u) {
                u = If <then_branch = tt () => (float[1] p) { p = Neg(a) },
                        else_branch = te () => (float[1] q) { q = Neg(x) }> (c)
            }, else_branch = e () => (float[1] v) { v = Identity(a) }> (c)
    }"""
    assert run(text, half(1), np.array(True))[0] == -H(0.1)


def test_a_body_may_redefine_an_outer_name() -> None:
    text = """g (float[1] x, bool c) => (float[1] y) {
        y = If <then_branch = t () => (float[1] u) <float[1] k={5}> { u = Add(k, k) },
                else_branch = e () => (float[1] v) { v = Neg(x) }> (c)
    }"""
    assert run(text, half(1), np.array(True))[0] == 10


def test_functions_round_inside() -> None:
    model = parse(
        """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[1] x) => (float[1] y) { y = local.norm(x) }
        <domain: "local", opset_import: ["" : 17]>
        norm (x) => (y) { s = Mul(x, x)
                          y = Sqrt(s) }"""
    )
    assert np.isinf(run(model, half(300))[0])


def test_float16_casts_of_the_model_round() -> None:
    text = """g (float[1] x) => (float[1] y) <float[1] w={1e6}> {
        a = Add(x, w)
        b = Cast<to=10>(a)
        c = Cast<to=1>(b)
        y = Div(c, w)
    }"""
    assert np.isinf(run(text, half(1), keep=lambda n: True)[0])


def test_casts_to_integers_read_rounded_values() -> None:
    text = "g (float[1] x) => (int64[1] y) <float[1] w={2049}> { s = Softmax(x)\n a = Mul(s, w)\n y = Cast<to=7>(a) }"
    assert run(text, half(1))[0] == 2048  # of a real quantity


@pytest.mark.parametrize(
    "body",
    [
        "k = Constant<value = float16[2] {11878, 12902}>()\n y = Mul(x, k)",
        "h = Cast<to=1>(x)\n k = Cast<to=10>(h)\n y = Mul(k, k)",
        "s = Shape(x)\n k = ConstantOfShape<value = float16[1] {11878}>(s)\n y = Mul(x, k)",
        "s = EyeLike<dtype=10>(m)\n t = Gather(s, i)\n r = Squeeze(t, i)\n y = Mul(x, r)",
    ],
)
def test_float16_models_of_every_shape(body: str) -> None:
    text = "g (float16[2] x) => (float16[2] y) <float16[2,2] m={1,1,1,1}, int64[1] i={0}> { " + body + " }"
    model = parse(text)
    x = half(1, 3)
    (want,), (got,) = HostSession(model).run([x]), run(model, x)
    assert got.dtype == H
    np.testing.assert_array_equal(got, want)


def test_digits_files_agree(digits: object) -> None:
    """The exported float16 file and the float32 file hold the same network: the same answer up to one last place."""
    x = np.random.default_rng(0).standard_normal((4, 3, 32, 32)).astype(H)
    (a,), (b,) = (run(load_model(digits / name), x) for name in ("digits_dyn.onnx", "digits_float16_dyn.onnx"))  # type: ignore[operator]
    np.testing.assert_allclose(a.astype(np.float32), b.astype(np.float32), rtol=1e-2, atol=2e-2)
    np.testing.assert_array_equal(a.argmax(1), b.argmax(1))
