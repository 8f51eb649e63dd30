from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest
from onnx import NodeProto

from engine.onnx.shapes import infer_shapes
from engine.onnx.widen import widen
from engine.sdaa.cost import ShardWork, shard_work
from engine.sdaa.float16 import float16_storage, inlined
from engine.sdaa.kernels import folded, inner_tensors


def parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "own" : 1]>\n{text}')


def groups(text: str, keep: Callable[[NodeProto], bool] | None = None) -> list[str]:
    """Return the operators of every kernel, such as ``Conv+Relu``."""
    model = parsed(text)
    operators = {node.output[0]: node.op_type for node in model.graph.node}
    for i, node in enumerate(model.graph.node):
        node.name = f"n{i}"
        operators[node.name] = node.op_type
    return ["+".join(operators[name] for name in kernel.nodes) for kernel in shard_work(model, True, keep).kernels]


CONV = "g (float[1,2,4,4] x) => (float[1,2,4,4] y) <float[2,2,1,1] w={1,2,3,4}, float[2] b={1,2}, float[1] s={3}> "
LINES = "g (float[2,3] x) => (float[2,3] y) <float[3,3] w={1,2,3,4,5,6,7,8,9}, float[3] b={1,2,3}, float s={3}> "


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (CONV + "{ c = Conv(x, w, b)  y = Relu(c) }", ["Conv+Relu"]),
        (CONV + "{ c = Conv(x, w)  d = Add(c, s)  e = Mul(s, d)  y = Sigmoid(e) }", ["Conv+Add+Mul+Sigmoid"]),
        (
            CONV + "{ c = Conv(x, w)  d = BatchNormalization(c, b, b, b, b)  y = Relu(d) }",
            ["Conv+BatchNormalization+Relu"],
        ),
        (CONV + "{ c = Conv(x, w)  d = Relu(c)  y = Add(d, s) }", ["Conv+Relu", "Add"]),
        (CONV + "{ c = Conv(x, w)  d = Relu(c)  y = Sigmoid(d) }", ["Conv+Relu", "Sigmoid"]),
        (CONV + "{ c = Conv(x, w)  d = Add(c, x)  y = Relu(d) }", ["Conv", "Add+Relu"]),
        (CONV + "{ c = Conv(x, w)  d = Sigmoid(c)  y = Mul(c, d) }", ["Conv", "Sigmoid", "Mul"]),
        (CONV + "{ c = Conv(x, w)  d = Add(c, c)  y = Relu(d) }", ["Conv", "Add+Relu"]),
        (CONV.replace("y)", "y, float[1,2,4,4] c)") + "{ c = Conv(x, w)  y = Relu(c) }", ["Conv", "Relu"]),
        (CONV + "{ c = Conv(x, w)  i = Identity(c)  y = Relu(i) }", ["Conv", "Relu"]),
        (LINES + "{ c = MatMul(x, w)  d = Add(b, c)  y = Clip(d, , s) }", ["MatMul+Add+Clip"]),
        (LINES + "{ k = Constant<value_floats=[1., 2., 3.]>()  c = MatMul(x, w)  y = Add(c, k) }", ["MatMul+Add"]),
        (LINES + "{ k = Mul(b, s)  c = MatMul(x, w)  y = Add(c, k) }", ["MatMul+Add"]),
        (LINES + "{ c = Exp(x)  d = Add(c, b)  y = Relu(d) }", ["Exp", "Add+Relu"]),
        (LINES + "{ c = MatMul(x, w)  d = MatMul(c, w)  y = Add(d, b) }", ["MatMul", "MatMul+Add"]),
    ],
)
def test_nodes_fused_into_one_kernel(text: str, wanted: list[str]) -> None:
    assert groups(text) == wanted


def test_a_node_that_stays_float32_shares_no_kernel() -> None:
    text = LINES + "{ c = MatMul(x, w)  d = Add(c, b)  y = Relu(d) }"
    assert groups(text, lambda node: node.op_type == "Add") == ["MatMul", "Add", "Relu"]
    work = shard_work(parsed(text), True, lambda node: node.op_type == "Add")
    assert [kernel.float32 for kernel in work.kernels] == [False, True, False]
    assert [kernel.written for kernel in work.kernels] == [12, 24, 12]


def work_of(text: str) -> ShardWork:
    return shard_work(parsed(text), True)


def test_shape_arithmetic_and_constants_need_no_launch() -> None:
    work = work_of(
        """g (float[2,3,4] x) => (float[2,12] y)
        <int64[1] zero={0}, int64[1] rest={-1}, float[12] a={1,1,1,1,1,1,1,1,1,1,1,1}> {
            s = Shape(x)
            n = Gather(s, zero)
            shape = Concat<axis=0>(n, rest)
            flat = Reshape(x, shape)
            b = Exp(a)
            y = Div(flat, b)
        }"""
    )
    (kernel,) = work.kernels
    assert (kernel.op_type, kernel.reads, kernel.writes) == ("Div", ("x", "b"), ("y",))
    assert (kernel.read, kernel.written, work.weights) == (48 + 24, 48, 24)  # b is what the card holds, not a


def test_all_outputs_of_a_node_are_written() -> None:
    text = "g (float[2,4] x) => (float[2,4] y) { a, b = Split<axis=1>(x)  c = Relu(a)  y = Concat<axis=1>(c, b) }"
    first, _ = work_of(text).kernels
    assert first.nodes == ("Split_0", "Relu_1")
    assert set(first.writes) == {"b", "c"}
    assert (first.read, first.written) == (16, 16)
    assert work_of(text).activations == 16


def test_omitted_outputs_are_not_tensors() -> None:
    w, r = ",".join("1" * 96), ",".join("1" * 144)
    work = work_of(
        f"""g (float[5,1,4] x) => (float[1,1,6] h, float[5,1,4] y)
        <float[1,24,4] w={{{w}}}, float[1,24,6] r={{{r}}}, float m={{1}}> {{
            , h = LSTM<hidden_size=6>(x, w, r)
            e = Exp(x)
            y = Clip(e, , m)
        }}"""
    )
    assert [kernel.nodes for kernel in work.kernels] == [("LSTM_0",), ("Exp_1", "Clip_2")]
    assert [kernel.launches for kernel in work.kernels] == [5, 1]


def test_a_selection_reads_the_selected_rows_only() -> None:
    rows = ",".join("1" * 400)
    work = work_of(f"g (int64[2] i) => (float[2,4] y) <float[100,4] table={{{rows}}}> {{ y = Gather(table, i) }}")
    assert (work.kernels[0].read, work.kernels[0].written, work.weights) == (16 + 16, 16, 800)


def test_whole_numbers_keep_their_size() -> None:
    work = work_of("g (int64[2] i, int32[2] j, float[2] x) => (float[2] y, int64[2] k) { y = Exp(x)  k = Neg(i) }")
    assert (work.bytes_in, work.bytes_out) == (16 + 8 + 4, 4 + 16)


def test_the_operators_of_a_function_are_seen() -> None:
    text = """g (float[2,3] x) => (float[2,3] y) { y = own.twice(x) }
        <domain: "own", opset_import: ["" : 17]> twice (a) => (c) { b = Exp(a)  c = Exp(b) }"""
    assert [kernel.op_type for kernel in work_of(text).kernels] == ["Exp", "Exp"]


def test_sizes_that_follow_from_data_count_a_launch() -> None:
    work = work_of("g (float[4] x) => (int64[1,K] y) { n = NonZero(x)  y = Neg(n) }")
    assert [(kernel.known, kernel.flops) for kernel in work.kernels] == [(False, 0), (False, 0)]


# ------------------------------------------------------------------------------------------------------- arithmetic

ATTENTION = {
    # B 2, H 3 (keys 3, or 1 where grouped), Sq 5, Skv 7, D 4, and D 6 of the values
    "four dimensions": (
        "g (float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,6] v) => (float[2,3,5,6] y) { y = Attention(q, k, v) }",
        2 * 2 * 3 * 5 * 7 * (4 + 6),
    ),
    "three dimensions": (
        """g (float[2,5,12] q, float[2,7,12] k, float[2,7,18] v) => (float[2,5,18] y)
        { y = Attention<q_num_heads=3, kv_num_heads=3>(q, k, v) }""",
        2 * 2 * 3 * 5 * 7 * (4 + 6),
    ),
    "fewer heads of keys": (
        "g (float[2,3,5,4] q, float[2,1,7,4] k, float[2,1,7,4] v) => (float[2,3,5,4] y) { y = Attention(q, k, v) }",
        4 * 2 * 3 * 5 * 7 * 4,
    ),
    "a past of two": (
        """g (float[2,3,5,4] q, float[2,3,7,4] k, float[2,3,7,4] v, float[2,3,2,4] pk, float[2,3,2,4] pv)
        => (float[2,3,5,4] y, float[2,3,9,4] a, float[2,3,9,4] b) { y, a, b = Attention(q, k, v, , pk, pv) }""",
        4 * 2 * 3 * 5 * 9 * 4,
    ),
    "com.microsoft, three inputs": (
        """g (float[2,5,12] q, float[2,7,12] k, float[2,7,12] v) => (float[2,5,12] y)
        { y = com.microsoft.MultiHeadAttention<num_heads=3>(q, k, v) }""",
        4 * 2 * 3 * 5 * 7 * 4,
    ),
    "com.microsoft, heads apart": (
        """g (float[2,5,12] q, float[2,3,7,4] k, float[2,3,7,4] v) => (float[2,5,12] y)
        { y = com.microsoft.MultiHeadAttention<num_heads=3>(q, k, v) }""",
        4 * 2 * 3 * 5 * 7 * 4,
    ),
    "com.microsoft, one input": (
        """g (float[2,5,3,3,4] q) => (float[2,5,12] y)
        { y = com.microsoft.MultiHeadAttention<num_heads=3>(q) }""",
        4 * 2 * 3 * 5 * 5 * 4,
    ),
    "com.microsoft, with the projection": (
        f"""g (float[2,5,8] x) => (float[2,5,12] y) <float[8,36] w={{{",".join("1" * 288)}}}>
        {{ y = com.microsoft.Attention<num_heads=3>(x, w) }}""",
        2 * 2 * 5 * 8 * 36 + 4 * 2 * 3 * 5 * 5 * 4,
    ),
}


@pytest.mark.parametrize("form", ATTENTION)
def test_attention_counts_its_two_products(form: str) -> None:
    text, flops = ATTENTION[form]
    opsets = '<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>'
    (kernel,) = shard_work(onnx.parser.parse_model(f"{opsets}\n{text}"), True).kernels
    assert (kernel.known, kernel.flops) == (True, flops)


def test_normalisations_count_more_than_one_operation_per_element() -> None:
    text = "g (float[2,3] x) => (float[2,3] y) <float[3] s={1,2,3}> { y = LayerNormalization(x, s) }"
    assert work_of(text).kernels[0].flops == 7 * 6


def test_tensors_without_elements_are_not_computed() -> None:
    text = "g (float[0,3] x) => (float[0,3] y) <float[3,3] w={1,2,3,4,5,6,7,8,9}> { a = Gemm(x, w)  y = Relu(a) }"
    (kernel,) = work_of(text).kernels
    assert (kernel.known, kernel.flops, kernel.written) == (True, 0, 0)


# ------------------------------------------------------------------------------------------------ rounding and cost

IF = """g (float[2,3] x, bool p) => (float[2,3] y, float[2,3] z) {
    a = Exp(x)
    y = If (p) <
        then_branch = t () => (float[2,3] u) { u = Exp(a) },
        else_branch = e () => (float[2,3] v) { v = Identity(x) }
    >
    z = Sigmoid(a)
}"""

GRAPHS = [
    CONV + "{ c = Conv(x, w)  d = Add(c, s)  e = Mul(s, d)  y = Sigmoid(e) }",
    CONV + "{ c = Conv(x, w)  d = Sigmoid(c)  y = Mul(c, d) }",
    CONV + "{ c = Conv(x, w)  d = Add(c, x)  e = Tanh(d)  f = Exp(e)  y = Tanh(f) }",
    LINES + "{ k = Constant<value_floats=[1., 2., 3.]>()  c = MatMul(x, w)  d = Add(c, k)  y = Exp(d) }",
    LINES.replace("y)", "y, float[2,3] c)") + "{ c = MatMul(x, w)  d = Add(c, b)  y = Exp(d) }",
    LINES + "{ c = Exp(x)  d = Add(c, b)  e = Sigmoid(d)  f = MatMul(e, w)  h = Add(f, f)  y = Tanh(h) }",
    IF,
]


def rounded(model: onnx.ModelProto, keep: Callable[[NodeProto], bool]) -> set[str]:
    """Return the tensors that the card's form of a model casts to float16, inputs and constants left out."""
    made = {name for node in model.graph.node for name in node.output}
    casts = [node for node in float16_storage(model, keep).graph.node if node.op_type == "Cast"]
    to_half = {
        c.output[0].removesuffix(":half") for c in casts if any(a.i == onnx.TensorProto.FLOAT16 for a in c.attribute)
    }
    return to_half & made


@pytest.mark.parametrize("kept", ["", "Add", "Sigmoid"])
@pytest.mark.parametrize("text", GRAPHS)
def test_rounding_and_cost_use_equal_groups(text: str, kept: str) -> None:
    def keep(node: NodeProto) -> bool:
        return node.op_type == kept

    model = parsed(text)
    written = {name for kernel in shard_work(model, True, keep).kernels for name in kernel.writes}
    outputs = {info.name for info in model.graph.output}
    float32 = {name for node in model.graph.node if keep(node) or node.op_type == "If" for name in node.output}
    got = rounded(model, keep) - folded(model.graph)
    assert got - float32 - outputs == written - float32 - outputs
    inner = inner_tensors(infer_shapes(widen(inlined(model))).graph, keep)
    assert not inner & (got | written)


def test_captures_of_a_body_are_read() -> None:
    assert [kernel.op_type for kernel in work_of(IF).kernels] == ["Exp", "If", "Sigmoid"]
    branch = next(kernel for kernel in work_of(IF).kernels if kernel.op_type == "If")
    assert {"a", "x", "p"} <= set(branch.reads)


def test_a_transposed_convolution_costs_its_kernel_once_per_input_element() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,2,3,3] x, float[2,4,2,2] w) => (float[1,4,6,6] y)
    { y = ConvTranspose<strides=[2,2]>(x, w) }"""
    (kernel,) = shard_work(onnx.parser.parse_model(text), float16=False).kernels
    assert kernel.flops == 2 * (2 * 3 * 3) * (4 * 2 * 2)


def test_kernels_of_unknown_size_cost_only_their_launch() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]> g (float[2] x) => (float y)
    { a = own.Op(x)
      b = MatMul(a, x)
      y = Neg(b) }"""
    found = shard_work(onnx.parser.parse_model(text), float16=False).kernels
    assert [(kernel.known, kernel.flops) for kernel in found] == [(False, 0)] * len(found)
