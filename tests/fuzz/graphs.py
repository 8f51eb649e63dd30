"""Small models of many kinds as seeds: control flow, functions, sequences, all dtypes, exported models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper, parser

_HEAD = '<ir_version: 9, opset_import: ["" : 17]>\n'

TEXTS = {
    "gemm": """g (float[N, 4] x) => (float[N, 2] y)
      <float[4, 2] w = {1,2,3,4,5,6,7,8}, float[2] b = {1, -1}>
      { t = MatMul(x, w)  u = Add(t, b)  y = Relu(u) }""",
    "if": """g (float[N, 4] x) => (float[N, 4] y) {
      s = ReduceSum <keepdims = 0> (x)  zero = Constant <value = float {0.0}> ()  c = Greater(s, zero)
      y = If (c) <then_branch = a () => (float[N, 4] p) { p = Neg(x) },
                  else_branch = b () => (float[N, 4] q) { q = Abs(x) }> }""",
    "loop": """g (float[N, 4] x) => (float[N, 4] y) {
      n = Constant <value = int64 {3}> ()  t = Constant <value = bool {1}> ()
      y = Loop (n, t, x) <body = b (int64 i, bool c, float[N, 4] v) => (bool d, float[N, 4] w)
        { d = Identity(c)  w = Add(v, v) }> }""",
    "scan": """g (float[3, 4] x, float[4] s) => (float[4] f, float[3, 4] y) {
      f, y = Scan <num_scan_inputs = 1, body = b (float[4] a, float[4] e) => (float[4] o, float[4] z)
        { o = Add(a, e)  z = Identity(o) }> (s, x) }""",
    "sequence": """g (float[N, 4] x) => (float[M, 4] y) {
      s = SequenceConstruct (x, x)  y = ConcatFromSequence <axis = 0> (s) }""",
    "strings": """g (string[N] x) => (bool[N] y) { y = Equal(x, x) }""",
    "bools": """g (bool[N, 3] x, bool[N, 3] z) => (bool[N, 3] y) { t = And(x, z)  y = Not(t) }""",
    "int64": """g (int64[N, 3] x) => (int64[N, 3] y)
      <int64[3] d = {3, 7, -2}> { t = Add(x, d)  u = Mul(t, d)  v = Abs(u)  y = Sub(v, x) }""",
    "division": """g (int64[N, 3] x) => (int64[N, 3] y) <int64[3] d = {3, 7, -2}> { y = Div(x, d) }""",
    "float16": """g (float16[N, 4] x) => (float16[N, 4] y) { t = Exp(x)  y = Mul(t, x) }""",
    "double": """g (double[N, 4] x) => (double[N, 4] y) { y = Exp(x) }""",
    "scalar": """g (float x) => (float y) { y = Sqrt(x) }""",
    "empty": """g (float[0, 4] x) => (float[0, 4] y) { y = Neg(x) }""",
    "reshape": """g (float[N, 4] x) => (float[N, 2, 2] y) <int64[3] s = {-1, 2, 2}> { y = Reshape(x, s) }""",
    "gather": """g (int64[N, 3] x) => (float[N, 3, 2] y)
      <float[5, 2] w = {1,2,3,4,5,6,7,8,9,10}> { y = Gather(w, x) }""",
    "qdq": """g (float[N, 4] x) => (float[N, 4] y) <float s = {0.1}, int8 z = {0}>
      { q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  y = Relu(d) }""",
    "topk": """g (float[N, 5] x) => (float[N, 2] y, int64[N, 2] i) <int64[1] k = {2}> { y, i = TopK(x, k) }""",
    "split": """g (float[N, 4] x) => (float[N, 2] y, float[N, 2] z) { y, z = Split <axis = 1> (x) }""",
    "slice": """g (float[N, 6] x) => (float[N, 2] y)
      <int64[1] a = {1}, int64[1] b = {5}, int64[1] c = {1}, int64[1] d = {2}> { y = Slice(x, a, b, c, d) }""",
    "shape": """g (float[N, 4] x) => (float[N, 4] y) { s = Shape(x)  y = Reshape(x, s) }""",
    "expand": """g (float[N, 1] x) => (float[N, 4] y) <int64[2] s = {1, 4}> { t = Expand(x, s)  y = Neg(t) }""",
    "softmax": """g (float[N, 4] x) => (float[N, 4] y) { y = Softmax <axis = -1> (x) }""",
    "two inputs": """g (float[N, 4] x, float[N, 4] z) => (float[N, 4] y) { y = Sub(x, z) }""",
    "cast": """g (float[N, 4] x) => (int32[N, 4] y) { y = Cast <to = 6> (x) }""",
    "where": """g (float[N, 4] x, bool[N, 4] c) => (float[N, 4] y) { t = Neg(x)  y = Where(c, x, t) }""",
    "nonzero": """g (float[N, 4] x) => (int64[2, M] y) { y = NonZero(x) }""",
    "range": """g (float[N, 4] x) => (int64[M] y)
      <int64 a = {0}, int64 b = {6}, int64 c = {2}> { y = Range(a, b, c) }""",
    "lstm": """g (float[3, N, 4] x) => (float[3, 1, N, 2] y) { y = LSTM <hidden_size = 2> (x, w, r) }""",
    "einsum": """g (float[N, 4] x) => (float[N, 4] y) { y = Einsum <equation = "ij->ij"> (x) }""",
    "resize": """g (float[N, 1, 4, 4] x) => (float[N, 1, 8, 8] y) <float[4] s = {1, 1, 2, 2}>
      { y = Resize <mode = "nearest"> (x, , s) }""",
    "pad": """g (float[N, 4] x) => (float[N, 6] y) <int64[4] p = {0, 1, 0, 1}> { y = Pad(x, p) }""",
    "norm": """g (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}, float[4] b = {0, 0, 1, 1}>
      { y = LayerNormalization <axis = -1> (x, w, b) }""",
    "tile": """g (float[N, 4] x) => (float[N, 8] y) <int64[2] r = {1, 2}> { y = Tile(x, r) }""",
    "onehot": """g (int64[N] x) => (float[N, 4] y) <int64 d = {4}, float[2] v = {0, 1}> { y = OneHot(x, d, v) }""",
    "scatter": """g (float[N, 4] x) => (float[N, 4] y) <int64[1, 1] i = {0}, float[1, 4] u = {9, 8, 7, 6}>
      { y = ScatterND(x, i, u) }""",
    "random": """g (float[N, 4] x) => (float[N, 4] y) { t = RandomNormalLike(x)  u = Sub(t, t)  y = Add(x, u) }""",
}


def _text(name: str) -> ModelProto:
    model = parser.parse_model(_HEAD + TEXTS[name])
    if name == "lstm":
        for weight, shape in (("w", (1, 8, 4)), ("r", (1, 8, 2))):
            model.graph.initializer.append(numpy_helper.from_array(np.full(shape, 0.1, np.float32), weight))
    return model


def _function() -> ModelProto:
    return parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17, "own" : 1]>\n'
        "g (float[N, 4] x) => (float[N, 4] y) { t = own.twice(x)  y = own.scaled <alpha = 2.0> (t) }\n"
        '<domain: "own", opset_import: ["" : 17]>\n'
        "twice (a) => (b) { b = Add(a, a) }\n"
        '<domain: "own", opset_import: ["" : 17]>\n'
        "scaled <alpha> (a) => (b) { b = LeakyRelu <alpha : float = @alpha> (a) }\n"
    )


def _clash() -> ModelProto:
    return parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17, "own" : 1]>\n'
        "g (float[N, 4] x) => (float[N, 4] y) { y = own.Add(x) }\n"
        '<domain: "own", opset_import: ["" : 17]>\n'
        "Add (a) => (b) { b = Neg(a) }\n"
    )


def _convolution() -> ModelProto:
    random = np.random.default_rng(0)
    weights = {"w": (3, 1, 3, 3), "b": (3,), "scale": (3,), "bias": (3,), "mean": (3,), "var": (3,), "f": (12, 2)}
    tensors = [numpy_helper.from_array(random.random(s, np.float32), name) for name, s in weights.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["l"]),
        helper.make_node("Gemm", ["l", "f"], ["y"]),
    ]
    return _model(nodes, tensors, ["N", 1, 4, 4], ["N", 2])


def _sparse() -> ModelProto:
    values = numpy_helper.from_array(np.array([1, 2, 3], np.float32), "w")
    indices = numpy_helper.from_array(np.array([0, 3, 5], np.int64), "w_i")
    model = _model([helper.make_node("MatMul", ["x", "w"], ["y"])], [], ["N", 4], ["N", 2])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [4, 2]))
    return model


def _model(nodes: list[NodeProto], tensors: list[TensorProto], takes: list[object], gives: list[object]) -> ModelProto:
    x, y = helper.make_tensor_value_info("x", 1, takes), helper.make_tensor_value_info("y", 1, gives)
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def digits(root: Path) -> list[Path]:
    """Return the small models that are committed."""
    names = (
        "classification/digits/digits_dyn.onnx",
        "classification/digits/digits.onnx",
        "classification/digits/digits_float16_dyn.onnx",
        "reinforcement/ppo_cartpole/ppo_cartpole_dyn.onnx",
        "recommendation/deepfm_synthetic/deepfm_synthetic_dyn.onnx",
        "gnn/digits_gcn/digits_gcn_dyn.onnx",
        "gnn/digits_gcn/digits_gcn_scatter_dyn.onnx",
    )
    return [root / "example" / name for name in names]


SEEDS: dict[str, Callable[[], ModelProto]] = {
    **{name: (lambda name=name: _text(name)) for name in TEXTS},  # type: ignore[misc]
    "function": _function,
    "clash": _clash,
    "convolution": _convolution,
    "sparse": _sparse,
}


def with_external(model: ModelProto, folder: Path) -> list[TensorProto]:
    """Move the weights of a model to an external file, and return them."""
    moved, place = [], 0
    with (folder / "w.bin").open("wb") as file:
        for tensor in model.graph.initializer:
            content = numpy_helper.to_array(tensor).tobytes()
            if not content or tensor.data_type == TensorProto.STRING:
                continue
            for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
                tensor.ClearField(field)
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", "w.bin"), ("offset", place), ("length", len(content))):
                tensor.external_data.add(key=key, value=str(value))
            place += file.write(content)
            moved.append(tensor)
    return moved


def nested(depth: int) -> ModelProto:
    """Return a model with an ``If`` in the branch of an ``If``, and so on."""
    info = helper.make_tensor_value_info("out", 1, None)
    graph: GraphProto = helper.make_graph([helper.make_node("Neg", ["x"], ["out"])], "b0", [], [info])
    for level in range(depth):
        other = helper.make_graph([helper.make_node("Abs", ["x"], ["out"])], f"e{level}", [], [info])
        node = helper.make_node("If", ["c"], ["out"], then_branch=graph, else_branch=other)
        graph = helper.make_graph([node], f"b{level + 1}", [], [info])
    condition = helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    x, y = helper.make_tensor_value_info("x", 1, ["N", 4]), helper.make_tensor_value_info("out", 1, ["N", 4])
    outer = helper.make_graph(list(graph.node), "g", [x, condition], [y])
    return helper.make_model(outer, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def functions(count: int, calls: int, recursive: bool = False) -> ModelProto:
    """Return a model whose functions each call the previous one ``calls`` times; the last or first closes a cycle."""
    domain = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    made = []
    for i in range(count):
        inner = f"f{i - 1}" if i else (f"f{count - 1}" if recursive else "")
        nodes, name = [], "a"
        for k in range(calls):
            out = "b" if k == calls - 1 else f"t{k}"
            nodes.append(
                helper.make_node(inner, [name], [out], domain="own")
                if inner
                else helper.make_node("Neg", [name], [out])
            )
            name = out
        made.append(helper.make_function("own", f"f{i}", ["a"], ["b"], nodes, domain))
    model = _model([helper.make_node(f"f{count - 1}", ["x"], ["y"], domain="own")], [], ["N", 4], ["N", 4])
    model.functions.extend(made)
    model.opset_import.append(helper.make_opsetid("own", 1))
    return model


def load(path: Path) -> ModelProto:
    """Return the bytes of a model."""
    return onnx.load(path, load_external_data=False)
