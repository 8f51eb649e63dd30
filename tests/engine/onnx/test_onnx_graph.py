from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine import ModelError
from engine.backends.ort import HostSession
from engine.onnx.float16 import to_float16
from engine.onnx.load import file_hash, load_model, save_model
from engine.onnx.shapes import bind_shapes, infer_shapes, view
from engine.onnx.view import dims, graph_inputs, metadata, rename_inputs, signature, sort_nodes, tensors, used_names

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
MLP = """g (float[N,4] x) => (float[N,2] y) <float[4,2] w={1,2,3,4,5,6,7,8}, float[2] b={0.5,-0.5}> {
    h = MatMul(x, w)
    s = Add(h, b)
    y = Relu(s)
}"""
IF = """g (float[N,2] x, bool c) => (float[N,2] y) {
    a = Neg(x)
    y = If <then_branch = t () => (float[N,2] u) { u = Add(a, x) },
            else_branch = e () => (float[N,2] v) { v = Mul(a, a) }> (c)
}"""


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(HEADER + text)


# --------------------------------------------------------------------------------------------------------------- view


def test_view_gives_shapes_and_bytes() -> None:
    matmul, add, relu = view(bind_shapes(parse(MLP), {"x": (3, 4)}))
    assert [node.op_type for node in (matmul, add, relu)] == ["MatMul", "Add", "Relu"]
    assert matmul.name == "MatMul_0"
    assert (matmul.inputs, matmul.outputs) == (("x", "w"), ("h",))
    assert matmul.shapes == {"h": (3, 2), "w": (4, 2), "x": (3, 4)}
    assert matmul.bytes == {"h": 24, "w": 32, "x": 48}
    assert add.bytes == {"b": 8, "h": 24, "s": 24}
    assert relu.shapes["y"] == (3, 2)


def test_view_of_group_normalization() -> None:
    text = """<ir_version: 10, opset_import: ["" : 21]> g (float[1,4,3] x) => (float[1,4,3] y)
    <float[4] s={1,2,3,4}, float[4] b={0,0,0,1}> { a = GroupNormalization<num_groups=2>(x, s, b)  y = Relu(a) }"""
    norm, relu = view(onnx.parser.parse_model(text))
    assert (norm.op_type, norm.inputs, norm.bytes["a"]) == ("GroupNormalization", ("x", "s", "b"), 48)
    assert relu.shapes["a"] == (1, 4, 3)


def test_view_of_unknown_sizes() -> None:
    (matmul, *_) = view(parse(MLP))
    assert matmul.shapes["x"] == (None, 4)
    assert matmul.bytes["x"] is None
    assert matmul.bytes["w"] == 32


@pytest.mark.parametrize(
    ("kind", "size"), [("float16", 2), ("bfloat16", 2), ("double", 8), ("int64", 8), ("int8", 1), ("bool", 1)]
)
def test_view_bytes_by_type(kind: str, size: int) -> None:
    (node,) = view(parse(f"g ({kind}[3,5] x) => ({kind}[3,5] y) {{ y = Identity(x) }}"))
    assert node.bytes == {"x": 15 * size, "y": 15 * size}


def test_view_includes_captured_tensors() -> None:
    node = view(bind_shapes(parse(IF), {"x": (3, 2), "c": ()}))[1]
    assert node.inputs == ("c",)
    assert {"a", "x"} <= node.shapes.keys()


# ---------------------------------------------------------------------------------------------------------- signature


def test_signature() -> None:
    inputs, outputs, shapes = signature(
        parse("g (float[N,4,T] x, int64[T] i, bool c) => (float16[N,?] y) { y = F(x) }")
    )
    assert shapes == [["N", 4, "T"], ["T"], []]
    assert [(s.name, s.dtype, s.shape, s.batched) for s in inputs] == [
        ("x", np.float32, (None, 4, None), True),
        ("i", np.int64, (None,), False),
        ("c", np.bool_, (), False),
    ]
    assert [(s.name, s.dtype, s.shape) for s in outputs] == [("y", np.float16, (None, None))]


def test_dynamic_dimensions() -> None:
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [-1, 0, 3, None, "H"])
    assert dims(info) == [None, 0, 3, None, "H"]


def test_a_declared_size_of_0_is_kept() -> None:
    model = parse("g (float[N,0] x) => (float[N,0] y, float[0] z) <float[0] z={}> { y = Relu(x) }")
    inputs, outputs, _ = signature(model)
    assert ([s.shape for s in inputs], [s.shape for s in outputs]) == ([(None, 0)], [(None, 0), (0,)])
    bound = bind_shapes(model, {"x": (2, 0)})
    assert [dims(info) for info in bound.graph.output] == [[2, 0], [0]]
    assert view(bound)[0].bytes == {"x": 0, "y": 0}


def test_initializers_listed_as_inputs_are_excluded() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 3, opset_import: ["" : 9]> g (float[N,2] x, float[2] w) => (float[N,2] y) <float[2] w={1,2}> '
        "{ y = Add(x, w) }"
    )
    assert [info.name for info in graph_inputs(model)] == ["x"]


def test_sequence_inputs_are_rejected() -> None:
    model = parse("g (seq(float[N]) x) => (float[N] y) { y = ConcatFromSequence<axis=0>(x) }")
    with pytest.raises(ModelError, match=r"'x' .* sequence"):
        signature(model)


def test_metadata() -> None:
    model = parse(MLP)
    model.metadata_props.add(key="a", value="1")
    assert metadata(model) == {"a": "1"}


# ------------------------------------------------------------------------------------------------------ bind and sort


def test_bind_shapes_copies_the_model_and_infers_the_rest() -> None:
    model = parse("g (float[N,3,H,W] x) => (float[N,3,H,W] y) { y = Relu(x) }")
    bound = bind_shapes(model, {"x": (2, 3, 8, 9)})
    assert dims(bound.graph.output[0]) == [2, 3, 8, 9]
    assert dims(model.graph.input[0]) == ["N", 3, "H", "W"]


@pytest.mark.parametrize("shapes", [{"x": (2,)}, {"x": (2, 4, 1)}, {}])
def test_bind_shapes_rejects_another_rank(shapes: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(ModelError, match=r"'x' has 2 dimensions"):
        bind_shapes(parse(MLP), shapes)


def test_bind_shapes_replaces_a_stale_declaration() -> None:
    model = parse("g (float[N,4] x) => (float[1,4] y, float[1,4] y) { h = Sqrt(x)\n y = Relu(h) }")
    assert [dims(info) for info in bind_shapes(model, {"x": (5, 4)}).graph.output] == [[5, 4], [5, 4]]


def test_bind_shapes_keeps_declared_shapes_of_a_static_model() -> None:
    text = "g (float[2,4] x) => (float[2,7] y) { y = my.Op(x) }"
    model = onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17, "my" : 1]>\n' + text)
    assert dims(bind_shapes(model, {"x": (2, 4)}).graph.output[0]) == [2, 7]


def test_large_weights_bypass_the_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    """All other content is preserved: doc strings, functions, attributes, small parameters."""
    small, large = (numpy_helper.from_array(np.ones((size, 64), np.float32), f"w{size}") for size in (4, 64))
    model = parse("g (float[n,64] x) => (float[n,64] y) { h = MatMul(x, w64) y = Elu<alpha = 0.5>(h) }")
    model.graph.initializer.extend([small, large])
    model.graph.doc_string, model.producer_name, model.model_version = "a graph", "me", 3
    onnx.helper.set_model_props(model, {"labels": "a b"})
    model.functions.add(name="f", domain="own")
    whole, seen = model.SerializeToString(deterministic=True), []

    def inferred(given: onnx.ModelProto, **options: bool) -> onnx.ModelProto:
        seen.extend(len(weight.raw_data) for weight in given.graph.initializer)
        return given

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", inferred)
    assert infer_shapes(model).SerializeToString(deterministic=True) == whole
    assert model.SerializeToString(deterministic=True) == whole
    assert seen == [len(small.raw_data), 0]


@pytest.mark.parametrize(
    "body",
    [
        "(float[3000000] x) => (float[3000000] y) { y = Add(x, x) }",
        "(float[2,3000000] x) => (float[?] y) <int64[1] s = {-1}> { t = Reshape(x, s) y = Add(t, t) }",
    ],
)
def test_values_of_long_tensors_are_not_propagated(body: str) -> None:
    """onnx (1.23) allocates 160 bytes per element of a 1-D tensor."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    infer_shapes(parse(f"g {body}"))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024


def test_sort_keeps_a_sorted_graph() -> None:
    model = parse("g (float[N] x) => (float[N] y) { b = Neg(x)\n a = Neg(x)\n y = Add(a, b) }")
    before = model.SerializeToString()
    assert sort_nodes(model).SerializeToString() == before


def test_sort_follows_captured_tensors() -> None:
    model = parse(IF)
    nodes = [model.graph.node[1], model.graph.node[0]]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    assert [node.op_type for node in sort_nodes(model).graph.node] == ["Neg", "If"]


def test_a_cycle_is_reported() -> None:
    model = parse("g (float[N] x) => (float[N] y) { a = Add(x, b)\n b = Neg(a)\n y = Exp(b) }")
    with pytest.raises(ModelError, match=r"^some\.onnx: .*(Add|Neg) -> (Neg|Add) -> "):
        sort_nodes(model, "some.onnx")


def test_a_node_that_reads_itself() -> None:
    with pytest.raises(ModelError, match="cycle: Add -> Add"):
        sort_nodes(parse("g (float[N] x) => (float[N] y) { y = Add(x, y) }"))


def test_names_in_bodies_are_found_and_renamed() -> None:
    node = parse(IF).graph.node[1]
    assert sorted(set(used_names(node))) == ["a", "c", "x"]
    rename_inputs(node, {"a": "A", "u": "U", "c": "C"})
    assert sorted(set(used_names(node))) == ["A", "C", "x"]


def test_names_defined_in_a_body_are_not_captured() -> None:
    text = """g (int64 n, bool c, float[2] x, float[2] z) => (float[2] y) {
    y = Loop <body = b (int64 i, bool go, float[2] a) => (bool on, float[2] o) <float k={2}> {
        on = Identity(go)
        h = Mul(a, k)
        o = If (go) <then_branch = t () => (float[2] u) { u = Add(h, z) },
                     else_branch = e () => (float[2] v) { w = Neg(a)  v = Abs(w) }> }> (n, c, x) }"""
    assert set(used_names(parse(text).graph.node[0])) == {"n", "c", "x", "z"}


def test_tensors_of_bodies_are_found() -> None:
    text = """g (float[2] x, bool c) => (float[2] y) <float[2] w={1,2}> {
        y = If <then_branch = t () => (float[2] u) { k = Constant <value = float[2] {3,4}> ()
                                                     u = Add(k, w) },
                else_branch = e () => (float[2] v) <float[2] z={5,6}> { v = Add(z, w) }> (c)
    }"""
    assert sorted(numpy_helper.to_array(t)[0] for t in tensors(parse(text).graph)) == [1, 3, 5]


# --------------------------------------------------------------------------------------------------------------- files


def test_save_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    save_model(parse(MLP), path)
    old = path.read_bytes()

    def full(*_: object, **__: object) -> None:
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(onnx, "save", full)
        with pytest.raises(OSError, match="No space left"):
            save_model(parse("g (float[N] x) => (float[N] y) { y = Neg(x) }"), path)
    assert path.read_bytes() == old
    assert [file.name for file in tmp_path.iterdir()] == ["m.onnx"]
    save_model(parse("g (float[N] x) => (float[N] y) { y = Neg(x) }"), path)
    assert load_model(path).graph.node[0].op_type == "Neg"
    assert path.stat().st_mode & 0o777 == 0o644


def test_hash_includes_external_weights(tmp_path: Path) -> None:
    model = parse("g (float[N,64] x) => (float[N,64] y) { y = MatMul(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(np.ones((64, 64), np.float32), "w"))
    path = tmp_path / "m.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="m.data", size_threshold=0)
    first = file_hash(path)
    assert file_hash(path) == first
    data = bytearray((tmp_path / "m.data").read_bytes())
    data[100] ^= 1
    (tmp_path / "m.data").write_bytes(data)
    second = file_hash(path)
    assert second != first
    with path.open("ab") as file:
        file.write(b"\x1a\x01x")  # field 3, producer_version
    assert file_hash(path) not in (first, second)


def test_weights_beyond_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = parse("g (float[N,64] x) => (float[N,64] y) { y = MatMul(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(np.ones((64, 4096), np.float32), "w"))
    path = tmp_path / "m.onnx"
    onnx.save(model, str(path), save_as_external_data=True, location="m.data", size_threshold=0)

    def full(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("engine.onnx.external._read", full)
    with pytest.raises(ModelError, match=r"m\.onnx: .* 1 MB"):
        load_model(path)


# ------------------------------------------------------------------------------------------------------------- float16


def half_run(model: onnx.ModelProto, *arrays: np.ndarray) -> list[np.ndarray]:
    onnx.checker.check_model(model)
    return HostSession(model).run(list(arrays))


def test_to_float16() -> None:
    model = parse(MLP)
    before = model.SerializeToString()
    half = to_float16(model)
    assert model.SerializeToString() == before
    (y,) = half_run(half, np.ones((2, 4), np.float16))
    np.testing.assert_array_equal(y, np.array([[16.5, 19.5]] * 2, np.float16))


def test_to_float16_keeps_nodes_and_inputs() -> None:
    model = parse(
        """g (float[N,2] a, float[N,2] b) => (float[N,2] y, float[N,2] z) {
            s = Mul(a, a)
            r = Sqrt(s)
            y = Add(r, b)
            z = Neg(a)
        }"""
    )
    half = to_float16(model, keep=lambda node: node.op_type in ("Mul", "Sqrt"), keep_inputs=["b", "unknown"])
    assert [info.type.tensor_type.elem_type for info in half.graph.input] == [TensorProto.FLOAT16, TensorProto.FLOAT]
    assert [info.type.tensor_type.elem_type for info in half.graph.output] == [TensorProto.FLOAT16] * 2
    a, b = np.full((1, 2), 300, np.float16), np.ones((1, 2), np.float32)
    y, z = half_run(half, a, b)
    np.testing.assert_array_equal(y, [[301, 301]])  # 300 * 300 exceeds float16, its root does not
    np.testing.assert_array_equal(z, -a)


@pytest.mark.parametrize(
    "body",
    [
        "h = Cast<to=1>(i)\n y = Mul(h, w)",
        "k = Constant<value_float=0.1>()\n h = Cast<to=1>(i)\n y = Mul(h, k)",
        "k = Constant<value_floats=[0.1, 0.2]>()\n h = Cast<to=1>(i)\n y = Mul(h, k)",
        "s = Shape(i)\n k = ConstantOfShape(s)\n h = Cast<to=1>(i)\n z = Add(h, k)\n y = Mul(z, w)",
        "h = Cast<to=1>(i)\n y = Softmax(h)",
    ],
)
def test_to_float16_of_nodes_with_a_type_attribute(body: str) -> None:
    model = parse("g (int64[N,2] i) => (float[N,2] y) <float[2] w={0.1,0.2}> { " + body + " }")
    i = np.array([[1, 2], [3, 4]])
    (want,), (got,) = HostSession(model).run([i]), half_run(to_float16(model), i)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, want, rtol=2e-3)


def test_to_float16_rounds_and_overflows_weights() -> None:
    model = parse("g (float[4] x) => (float[4] y) <float[4] w={1e6,-1e6,1e-9,-6e-8}> { y = Mul(x, w) }")
    (y,) = half_run(to_float16(model), np.ones(4, np.float16))
    np.testing.assert_array_equal(y, np.array([np.inf, -np.inf, 0, -6e-8], np.float16))


def test_to_float16_of_a_weight_shared_with_a_float32_node() -> None:
    model = parse("g (float[2] x) => (float[2] y) <float[2] w={1,2}> { a = Max(x, w)\n b = Mul(a, w)\n y = Sqrt(b) }")
    for keep in (None, lambda node: node.op_type == "Sqrt"):
        np.testing.assert_array_equal(half_run(to_float16(model, keep), np.ones(2, np.float16))[0], [1, 2])


def test_to_float16_of_a_weight_read_twice_by_a_float32_node() -> None:
    model = parse("g (float[2] x) => (float[2] y) <float[2] w={1,2}> { a = Max(w, w)\n y = Mul(a, x) }")
    half = to_float16(model, keep=lambda node: node.op_type == "Max")
    onnx.checker.check_model(half)
    np.testing.assert_array_equal(half_run(half, np.ones(2, np.float16))[0], [1, 2])


def test_an_output_with_a_wrong_declared_type_is_rejected() -> None:
    model = parse(MLP)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    with pytest.raises(ModelError, match="'y' is declared as float16, but"):
        bind_shapes(model, {"x": (3, 4)})
    assert bind_shapes(parse(MLP), {"x": (3, 4)}).graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT


def test_a_file_without_an_ir_version_is_rejected(tmp_path: Path) -> None:
    model = parse(MLP)
    model.ClearField("ir_version")
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=r"m\.onnx: .* IR version"):
        load_model(tmp_path / "m.onnx")
