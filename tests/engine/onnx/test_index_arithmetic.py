"""Counts and indices stay exact in float16, on the card and in a float16 file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from engine.backends.ort import HostSession
from engine.onnx.float16 import to_float16
from engine.onnx.shapes import infer_shapes
from engine.onnx.whole_numbers import exact_parts
from engine.sdaa import shard_work
from engine.sdaa.float16 import float16_storage

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
Array = np.ndarray[Any, np.dtype[Any]]
H = np.float16
FORMS: dict[str, Callable[[onnx.ModelProto], onnx.ModelProto]] = {"card": float16_storage, "file": to_float16}


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEADER + text)


def run(model: onnx.ModelProto, inputs: Sequence[Array]) -> list[Array]:
    onnx.checker.check_model(model, full_check=True)
    session = HostSession(model)
    return session.run([array.astype(one.dtype) for array, one in zip(inputs, session.inputs, strict=True)])


def peak(side: int, y: int, x: int) -> Array:
    """Return a heat map (1, 1, side, side) whose largest number is at a place."""
    heat = np.zeros((1, 1, side, side), np.float32)
    heat[0, 0, y, x] = 1
    return heat


MAP = "int64[3] flat = {1, 1, 16384}"
KEYPOINT = f"""g (float[1,1,128,128] heat, float[1,1,1] reg) => (float[1,1] x, float[1,1] y, float[1,1] place,
    float[1,1,1] cx)
<{MAP}, float width = {{128}}, float four = {{4}}> {{
    low = Sigmoid(heat)
    row = Reshape(low, flat)
    index = ArgMax<axis = 2, keepdims = 0>(row)
    place = Cast<to = 1>(index)
    over = Div(place, width)
    y = Floor(over)
    step = Mul(y, width)
    x = Sub(place, step)
    moved = Add(x, reg)
    cx = Mul(moved, four)
}}"""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("y", "x"), [(127, 127), (127, 0), (64, 33), (1, 1), (90, 5)])
def test_a_keypoint_is_at_its_pixel(form: str, y: int, x: int) -> None:
    found = run(FORMS[form](parse(KEYPOINT)), [peak(128, y, x), np.float32([[[0.25]]])])
    assert [float(value.reshape(())) for value in found] == [x, y, 128 * y + x, 4 * (x + 0.25)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("fmod", [0, 1])
def test_a_remainder_of_a_float_index(form: str, fmod: int) -> None:
    text = KEYPOINT.replace("step = Mul(y, width)", "").replace("Sub(place, step)", f"Mod<fmod = {fmod}>(place, width)")
    if not fmod:  # floats support only fmod
        text = text.replace("Mod<fmod = 0>(place, width)", "Cast<to = 1>(left)").replace(
            "place = Cast", "side = Constant<value_int = 128>()\n left = Mod(index, side)\n place = Cast"
        )
    x, y, place, cx = run(FORMS[form](parse(text)), [peak(128, 127, 126), np.float32([[[0.5]]])])
    assert (x[0, 0], y[0, 0], place[0, 0], cx[0, 0, 0]) == (126, 127, 128 * 127 + 126, 506)


CENTER = """g (float[1,16384] heat, float[1,16384] reg, float[1,16384] size) => (float[1,3] xs, float[1,3,3] boxes)
<int64[1] k = {3}, int64[1] last = {2}, float width = {128}, float half = {0.5}> {
    hot = Sigmoid(heat)
    scores, places = TopK(hot, k)
    f = Cast<to = 1>(places)
    xs0 = Mod<fmod = 1>(f, width)
    r = GatherElements<axis = 1>(reg, places)
    s = GatherElements<axis = 1>(size, places)
    xs = Add(xs0, r)
    h = Mul(s, half)
    low = Sub(xs, h)
    high = Add(xs, h)
    a = Unsqueeze(low, last)
    b = Unsqueeze(high, last)
    c = Unsqueeze(scores, last)
    boxes = Concat<axis = 2>(a, b, c)
}"""


@pytest.mark.parametrize("form", FORMS)
def test_boxes_around_the_maximum_of_a_heat_map(form: str) -> None:
    heat = np.full((1, 16384), -9, np.float32)
    heat[0, [16383, 8190, 4097]] = 3, 2, 1
    reg = np.full((1, 16384), 0.28125, np.float32)  # exact in float16, unlike 127.28125
    size = np.full((1, 16384), 2.5, np.float32)
    want = run(parse(CENTER), [heat, reg, size])
    got = run(FORMS[form](parse(CENTER)), [heat, reg, size])
    assert [array.dtype for array in got] == [np.float32, np.float32]
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_array_equal(got[0][0], [127.28125, 126.28125, 1.28125])
    np.testing.assert_allclose(got[1], want[1], atol=1e-3)


ANCHORS = """g (float[1,100,2] offset) => (float[1,100,2] at)
<int64 zero = {0}, int64 one = {1}, int64 count = {100}, int64[1] column = {1},
    float half = {0.5}, float stride = {32}> {
    i = Range(zero, count, one)
    f = Cast<to = 1>(i)
    centre = Add(f, half)
    scaled = Mul(centre, stride)
    places = Unsqueeze(scaled, column)
    real = Tanh(offset)
    at = Add(places, real)
}"""


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("limits", ["int64", "float"])
def test_anchors_and_their_offsets(form: str, limits: str) -> None:
    text = (
        ANCHORS if limits == "int64" else ANCHORS.replace("int64 zero", "float zero").replace("int64 one", "float one")
    )
    if limits == "float":
        text = text.replace("int64 count", "float count").replace("f = Cast<to = 1>(i)", "f = Identity(i)")
    offset = np.linspace(-2, 2, 200, dtype=np.float32).astype(H).astype(np.float32).reshape(1, 100, 2)
    (got,) = run(FORMS[form](parse(text)), [offset])
    want = ((np.arange(100) + 0.5) * 32)[None, :, None] + np.tanh(offset)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, atol=1e-3)  # float16 has a resolution of 2 at 3000


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("births", "want"),
    [
        ("n = Shape(x)\n k = Cast<to = 1>(n)\n y = Identity(k)", [1, 70001]),
        ("n = Size(x)\n k = Cast<to = 1>(n)\n y = Identity(k)", 70001),
        ("m = Equal(x, one)\n n = NonZero(m)\n k = Cast<to = 1>(n)\n y = Identity(k)", [[0, 0], [4099, 70000]]),
        ("m = Equal(x, one)\n k = Cast<to = 1>(m)\n n = CumSum(k, axis)\n y = ReduceSum(n)", [[70001 - 4099 + 1]]),
        ("m = Less(x, two)\n k = Cast<to = 1>(m)\n y = ReduceSum(k)", [[70001]]),
        ("n = ArgMin<axis = 1>(less)\n less = Neg(x)\n k = Cast<to = 1>(n)\n y = Identity(k)", [[4099]]),
        ("v, n = TopK(x, two64)\n k = Cast<to = 1>(n)\n y = Identity(k)", [[4099, 70000]]),
    ],
    ids=["Shape", "Size", "NonZero", "CumSum", "ReduceSum", "ArgMin", "TopK"],
)
def test_counts_are_exact_as_outputs(form: str, births: str, want: Any) -> None:
    held = "float[1] one = {1}, float two = {2}, int64 axis = {1}, int64[1] two64 = {2}"
    lines = births.split("\n")
    lines.sort(key=lambda line: not line.strip().startswith("less"))
    # the input is scaled first: compared with 1 directly, it would count as an integer input
    body = "\n".join(["x = Relu(given)", *lines])
    model = parse(f"g (float[1,70001] given) => (float y) <{held}> {{ {body} }}")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    given = np.zeros((1, 70001), np.float32)
    given[0, [4099, 70000]] = 1
    (got,) = run(FORMS[form](model), [given])
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, np.float32(want))


@pytest.mark.parametrize("form", FORMS)
def test_token_positions_counted_by_their_mask(form: str) -> None:
    text = """g (int64[1,3000] mask) => (float[1,3000] rows)
    <float one = {1}, int64 axis = {1}, float[4000] table = {0}> {
        f = Cast<to = 1>(mask)
        sums = CumSum(f, axis)
        held = Mul(sums, f)
        before = Sub(held, one)
        place = Relu(before)
        index = Cast<to = 7>(place)
        rows = Gather(table, index)
    }"""
    model = parse(text.replace("float[4000] table = {0}", "float[4000] table = {" + "0," * 3999 + "0}"))
    table = (np.arange(4000) % 7 / 8).astype(np.float32)
    model.graph.initializer[-1].CopyFrom(onnx.numpy_helper.from_array(table, "table"))
    mask = np.ones((1, 3000), np.int64)
    mask[0, :5] = 0
    (got,) = run(FORMS[form](model), [mask])
    np.testing.assert_array_equal(got[0], table[np.maximum(np.cumsum(mask[0]) * mask[0] - 1, 0)])


WAVES = """g (float[1,5000] x) => (float[1,5000] y) <int64 zero = {0}, int64 one = {1}, float rate = {0.7}> {
    n = Constant<value_int = 5000>()
    i = Range(zero, n, one)
    f = Cast<to = 1>(i)
    a = Mul(f, rate)
    s = Sin(a)
    y = Add(x, s)
}"""


@pytest.mark.parametrize("form", FORMS)
def test_positions_computed_before_a_sine(form: str) -> None:
    (got,) = run(FORMS[form](parse(WAVES)), [np.zeros((1, 5000), np.float32)])
    assert got.dtype == H  # a real quantity
    np.testing.assert_allclose(got[0].astype(np.float64), np.sin(np.arange(5000) * np.float32(0.7)), atol=2e-3)


@pytest.mark.parametrize("form", FORMS)
def test_a_mean_over_more_elements_than_float16_can_count(form: str) -> None:
    text = """g (float[1,70000] x) => (float[1,1] y) <float limit = {0.25}> {
        low = Sigmoid(x)
        m = Greater(low, limit)
        f = Cast<to = 1>(m)
        picked = Mul(low, f)
        axis = Constant<value_ints = [1]>()
        count = ReduceSum(f, axis)
        scaled = Mul(picked, f)
        most = ReduceMean<axes = [1], keepdims = 1>(scaled)
        whole = Mul(most, most)
        y = Div(whole, count)
    }"""
    (got,) = run(FORMS[form](parse(text)), [np.zeros((1, 70000), np.float32)])
    np.testing.assert_allclose(got, 0.25 / 70000, rtol=0.02)  # 0 where 70000 is infinite


IDS = """g (float[N,3] x, float[N,4] z) => (float[N,2] y)
<float[5000,2] table = {0}, int64[1] s = {0}, int64[1] e = {1}> {
    a = Constant<value_ints = [1]>()
    id = Slice(x, s, e, a)
    one = Squeeze(id, a)
    i = Cast<to = 7>(one)
    rows = Gather(table, i)
    rest = ReduceMax<axes = [1]>(z)
    y = Add(rows, rest)
}"""


@pytest.mark.parametrize("form", FORMS)
def test_ids_that_arrive_as_floats(form: str) -> None:
    model = parse(IDS.replace("table = {0}", "table = {" + "0," * 9999 + "0}"))
    table = (np.arange(10000).reshape(5000, 2) % 11).astype(np.float32) / 8
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(table, "table"))
    made = FORMS[form](model)
    kinds = {info.name: info.type.tensor_type.elem_type for info in made.graph.input}
    assert kinds == {"x": onnx.TensorProto.FLOAT, "z": onnx.TensorProto.FLOAT16}
    x = np.float32([[4999, 0, 0], [2049, 7, 7], [4097, 1, 1]])
    (got,) = run(made, [x, np.zeros((3, 4), np.float32)])
    np.testing.assert_array_equal(got, table[[4999, 2049, 4097]])


def test_a_float16_input_stays_float16() -> None:
    text = "g (float16[N] x) => (int64[N] y) { y = Cast<to = 7>(x) }"
    made = float16_storage(parse(text))
    assert made.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16


def test_float32_copies_are_counted_as_float32() -> None:
    work = shard_work(parse(KEYPOINT), float16=True)
    assert (work.bytes_in, work.bytes_out) == (2 * 16384 + 2, 4 * 4)
    ids = shard_work(parse("g (float[8,3] x) => (int64[8,3] y) { y = Cast<to = 7>(x) }"), float16=True)
    assert ids.bytes_in == 4 * 24


def test_a_float16_file_of_counts_is_not_converted_again() -> None:
    model = parse(KEYPOINT.replace("low = Sigmoid(heat)", "more = Mul(heat, w)\n low = Sigmoid(more)"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((1, 1, 128, 128), np.float32), "w"))
    once = to_float16(model)
    assert to_float16(once).SerializeToString() == once.SerializeToString()


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("c = Cast<to = 1>(i)\n n = Div(c, w)\n y = MatMul(n, m)", {"c", "n"}),  # real after mixing
        ("c = Cast<to = 1>(i)\n n = Mul(c, r)\n y = Add(n, r)", {"c"}),  # real after scaling by real numbers
        ("c = Cast<to = 1>(i)\n n = Add(c, r)\n y = Softmax(n)", {"c", "n"}),
        ("b = Greater(r, w)\n c = Cast<to = 1>(b)\n n = Mul(c, low)\n y = Add(n, r)", set()),  # a mask
        ("c = Cast<to = 1>(q)\n n = Sub(one, c)\n k = Mul(n, low)\n y = Add(k, r)", set()),  # a mask that is an input
        ("c = Cast<to = 1>(q)\n n = Add(c, r)\n y = MatMul(n, m)", {"c", "n"}),  # a coordinate that is an input
        ("c = Gather(grid, i)\n n = Add(c, r)\n y = MatMul(n, m)", {"c", "n"}),  # positions that are constants
        ("c = Gather(rows, i)\n n = Add(c, r)\n y = MatMul(n, m)", set()),  # weights
        ("c = Cast<to = 1>(i)\n k = Gather(steps, j)\n n = Mul(c, k)\n y = Add(n, r)", {"c", "n", "y"}),
    ],
)
def test_integers_that_become_real_quantities(body: str, kept: set[str]) -> None:
    held = "float w = {100}, float low = {-10000}, float one = {1}, float[3] steps = {8, 16, 32}, int64[4,4] j = {0}"
    text = f"""g (float[4,4] r0, int64[4,4] q, float[4,4] m) => (float[4,4] y)
    <{held}, float[16] grid = {{{",".join(str(5 * n + 2049) for n in range(16))}}},
    float[4] rows = {{0.1,0.2,0.3,0.4}}> {{
        r = Sigmoid(r0)
        k0 = Constant<value_ints = [4]>()
        values, i = TopK(r, k0)
        {body}
    }}"""
    text = text.replace("int64[4,4] j = {0}", "int64[4,4] j = {" + ",".join("0" * 16) + "}")
    graph = infer_shapes(parse(text)).graph
    floats = {
        info.name
        for info in (*graph.value_info, *graph.output)
        if info.type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    }
    assert exact_parts(graph).written & floats == kept
