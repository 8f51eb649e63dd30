"""Batch axes and independence of samples: hand-written cases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from engine.batching.find import find_batching
from engine.signature import BatchAxes
from tecoinfer_modelzoo.errors import ConfigError
from tests.fuzz import graphs

HEADER = '<ir_version: 8, opset_import: ["" : %d, "com.microsoft" : 1]>\n'


def find(text: str, opset: int = 17, **axes: int) -> BatchAxes:
    """Return the batching of a graph in ONNX's text format."""
    return find_batching(onnx.parser.parse_model(HEADER % opset + "g " + text), axes or None)


def proven(inputs: tuple[int | None, ...], outputs: tuple[int | None, ...]) -> BatchAxes:
    return BatchAxes(inputs, outputs)


def refused(found: BatchAxes, *words: str, depends: bool = True) -> bool:
    """Return whether the graph is unproven for a reason that contains these words."""
    return found.independent is (False if depends else None) and all(word in found.reason for word in words)


# ------------------------------------------------------------------------------------------------------ where it is


@pytest.mark.parametrize("name", ["digits.onnx", "digits_dyn.onnx", "digits_float16_dyn.onnx"])
def test_digits_models(name: str, digits: Path) -> None:
    assert find_batching(onnx.load(str(digits / name))) == proven((0,), (0,))


@pytest.mark.parametrize("lead", ["N", "batch", "batch_size", "s0", "unk__1", "x_dynamic_axes_1", "rows"])
def test_a_leading_symbol_of_any_name(lead: str) -> None:
    assert find(f"(float[{lead},3] x) => (float[{lead},3] y) {{ y = Relu(x) }}") == proven((0,), (0,))


def test_a_nameless_dynamic_dimension() -> None:
    assert find("(float[?,3] x) => (float[?,3] y) { y = Relu(x) }") == proven((0,), (0,))


def test_a_dimension_named_batch_on_any_axis() -> None:
    assert find("(float[seq,batch,3] x) => (float[seq,batch,3] y) { y = Relu(x) }") == proven((1,), (1,))


def test_a_named_batch_is_not_replaced_by_another_axis() -> None:
    found = find("(float[batch,other] x) => (float[1,other] y) { y = ReduceMean<axes=[0]>(x) }")
    assert refused(found, "'y' (ReduceMean)", "'x'")
    assert found.inputs == (0,)


def test_the_most_common_symbol_comes_first() -> None:
    text = "(float[a,3] x, float[b,3] y, float[b,3] z) => (float[b,3] s, float[a,3] t) { s = Add(y, z) t = Relu(x) }"
    assert find(text).inputs == (None, 0, 0)


def test_axes_of_the_caller() -> None:
    text = "(float[batch,4] x) => (float[batch,4] y) { y = Softmax<axis=0>(x) }"
    assert refused(find(text), "'y' (Softmax)")
    assert find(text, x=1) == proven((1,), (1,))
    assert find(text, x=-1) == proven((1,), (1,))


@pytest.mark.parametrize(("axes", "words"), [({"z": 0}, "'z'"), ({"x": 2}, "'x'.*2 dimensions")])
def test_a_wrong_override_is_an_error(axes: dict[str, int], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        find("(float[N,4] x) => (float[N,4] y) { y = Relu(x) }", **axes)


def test_silero_vad() -> None:
    text = """(float[batch,samples] input, float[2,batch,4] state, int64 sr)
    => (float[batch,1] output, float[2,batch,4] stateN)
    <int64 rate = {16000}, int64[1] last = {2}, float[1,16,1] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}, float[1,16,4] r,
     int64[1] zero = {0}, int64[1] two = {2}, int64[1] one = {1}, int64[2] halves = {1, 1}>
    {
      fast = Equal(sr, rate)
      some = If(fast)<then_branch = a () => (float[batch,samples] p) { p = Tanh(input) },
                      else_branch = b () => (float[batch,samples] q) { q = Relu(input) }>
      wide = Unsqueeze(some, last)
      turned = Transpose<perm=[1,0,2]>(wide)
      h, c = Split<axis=0>(state, halves)
      y, hn, cn = LSTM<hidden_size=4>(turned, w, r, , , h, c)
      stateN = Concat<axis=0>(hn, cn)
      flat = Squeeze(hn, zero)
      output = ReduceMean<axes=[1]>(flat)
    }"""
    text = text.replace("float[1,16,4] r,", f"float[1,16,4] r = {{{','.join(['1'] * 64)}}},")
    assert find(text) == proven((0, 1, None), (0, 1))
    nameless = text.replace("[batch,samples] input", "[?,?] input").replace("[2,batch,4] state,", "[2,?,4] state,")
    assert find(nameless).inputs == (0, 1, None)
    assert find(nameless).independent


def test_scalars_and_other_symbols_are_shared() -> None:
    text = """(int64[batch,seq] ids, int64[seq] places, float scale) => (float[batch,seq] y)
    { f = Cast<to=1>(ids) p = Cast<to=1>(places) s = Add(f, p) y = Mul(s, scale) }"""
    assert find(text) == proven((0, None, None), (0,))


def test_inputs_that_share_a_symbol() -> None:
    text = "(float[N,3] a, float[N,3] b) => (float[N,3] y) { y = Add(a, b) }"
    assert find(text) == proven((0, 0), (0,))


def test_a_batch_that_cannot_be_split() -> None:
    assert find("(float x) => (float y) { y = Relu(x) }") == proven((None,), (None,))


def test_an_output_of_constants_only() -> None:
    text = "(float[N,3] x) => (float[N,3] y, float[2] c) { y = Relu(x) c = Constant<value = float[2] {1, 2}>() }"
    assert find(text) == proven((0,), (0, None))


def test_a_fixed_batch() -> None:
    assert find("(float[4,3] x, float[4,3] b) => (float[4,3] y) { y = Add(x, b) }") == proven((0, 0), (0,))
    assert find("(float[1,3] x) => (float[1,3] y) { y = Relu(x) }") == proven((0,), (0,))


def test_a_fixed_batch_is_found_on_another_axis_of_another_input() -> None:
    w, r = (",".join(["1"] * count) for count in (24, 16))
    weights = f"<float[1,8,3] w = {{{w}}}, float[1,8,2] r = {{{r}}}, int64[1] a = {{0}}>"
    text = f"""(float[4,3] x, float[1,4,2] h, float[1,4,2] c) => (float[1,4,2] hn) {weights}
    {{ t = Unsqueeze(x, a) y, hn = LSTM<hidden_size=2>(t, w, r, , , h, c) }}"""
    assert find(text) == proven((0, 1, 1), (1,))


GRU = """(float[%s,%s,3] x) => (float[%s,2,%s,2] y, float[2,%s,2] h) <float[2,6,3] w, float[2,6,2] r>
{ y, h = GRU<hidden_size=2, direction="bidirectional">(x, w, r) }"""


@pytest.mark.parametrize(("time", "batch"), [("T", "1"), ("T", "N"), ("?", "1"), ("5", "1"), ("5", "3"), ("s0", "s1")])
def test_a_time_major_gru_is_split_over_the_batch_and_not_over_time(time: str, batch: str) -> None:
    values = {"w": ("2,6,3", 36), "r": ("2,6,2", 24)}
    text = GRU % (time, batch, time, batch, batch)
    for name, (shape, count) in values.items():
        text = text.replace(f"float[{shape}] {name}", f"float[{shape}] {name} = {{{','.join(['1'] * count)}}}")
    assert find(text) == proven((1,), (2, 1))


def test_a_recurrent_layer_with_the_batch_first() -> None:
    text = f"""(float[N,T,3] x, int32[N] lengths) => (float[N,T,1,2] y, float[N,1,2] h)
    <float[1,6,3] w = {{{",".join(["1"] * 18)}}}, float[1,6,2] r = {{{",".join(["1"] * 12)}}}>
    {{ y, h = GRU<hidden_size=2, layout=1>(x, w, r, , lengths) }}"""
    assert find(text) == proven((0, 0), (0, 0))


# ---------------------------------------------------------------------------------------- what brings samples together

MIXING = {
    "CumSum": "<int64 a = {0}> { y = CumSum(x, a) }",
    "Slice": "<int64[1] s = {-1}, int64[1] e = {-999}, int64[1] a = {0}, int64[1] t = {-1}> "
    "{ y = Slice(x, s, e, a, t) }",
    "ReduceMean": "{ m = ReduceMean<axes=[0]>(x) y = Sub(x, m) }",
    "Softmax": "{ y = Softmax<axis=0>(x) }",
    "MatMul": "{ t = Transpose(x) s = MatMul(t, x) y = MatMul(x, s) }",
    "Gemm": "{ s = Gemm<transA=1>(x, x) y = MatMul(x, s) }",
    "Einsum": '{ s = Einsum<equation="ni,nj->ij">(x, x) y = MatMul(x, s) }',
    "TopK": "<int64[1] k = {1}> { v, i = TopK<axis=0>(x, k) y = Sub(x, v) }",
    "DynamicQuantizeLinear": "{ q, s, z = DynamicQuantizeLinear(x) y = DequantizeLinear(q, s, z) }",
    "Gather": "<int64 one = {0}> { r = Gather<axis=0>(x, one) y = Sub(x, r) }",
    "BatchNormalization": "<float[4] w = {1,1,1,1}> { y, m, v = BatchNormalization<training_mode=1>(x, w, w, w, w) }",
    "NonZero": "{ i = NonZero(x) y = Cast<to=1>(i) }",
    "Unique": "{ y = Unique(x) }",
    "LayerNormalization": "<float[4] w = {1,1,1,1}> { y = LayerNormalization<axis=0>(x, w) }",
    "Pad": "<int64[4] p = {1,0,0,0}> { y = Pad(x, p) }",
    "Reshape": "<int64[2] t = {-1, 8}> { y = Reshape(x, t) }",
    "Squeeze": "<int64[1] a = {0}> { y = Squeeze(x, a) }",
    "Concat": "<float[1,4] c = {1,2,3,4}> { y = Concat<axis=0>(x, c) }",
    "Add": "<float[2,4] c = {1,2,3,4,5,6,7,8}> { y = Add(x, c) }",
    "Range": "<int64 z = {0}, int64 o = {1}, int64[2] t = {-1, 1}> "
    "{ s = Shape(x) n = Gather(s, z) r = Range(z, n, o) f = Cast<to=1>(r) c = Reshape(f, t) y = Add(x, c) }",
    "Max": "<int64 z = {0}, int64 o = {1}, int64[2] t = {-1, 1}> { s = Shape(x) n = Gather(s, z) r = Range(z, n, o) "
    "m = Max(r, o) f = Cast<to=1>(m) c = Reshape(f, t) y = Add(x, c) }",
    "Cast": "<int64 z = {0}> { s = Shape(x) n = Gather(s, z) f = Cast<to=1>(n) y = Div(x, f) }",
}


@pytest.mark.parametrize("name", MIXING)
def test_operators_that_combine_samples_are_reported(name: str) -> None:
    found = find(f"(float[N,4] x) => (float[N,4] y) {MIXING[name]}")
    assert refused(found, "node '")
    assert found.inputs == (0,)
    assert name in found.reason or name in ("Cast", "Max", "Range")


def test_reversed_sequences() -> None:
    lengths = "<int64[4] l = {3,3,3,3}>"
    found = find(f"(float[T,4,2] x) => (float[T,4,2] y) {lengths} {{ y = ReverseSequence(x, l) }}")
    assert refused(found, "'y' (ReverseSequence)")
    text = "(float[3,N,2] x, int64[N] l) => (float[3,N,2] y) { y = ReverseSequence(x, l) }"
    assert find(text) == proven((1, 0), (1,))


def test_a_similarity_of_all_pairs_depends() -> None:
    text = "(float[batch,8] x) => (float[batch,batch] y) { t = Transpose(x) y = MatMul(x, t) }"
    assert refused(find(text), "'y'", "twice")
    assert refused(find(text.replace("batch,batch", "?,?")), "'y' (MatMul)")


def test_an_input_with_the_batch_twice_depends() -> None:
    assert refused(find("(float[N,N] x) => (float[N,N] y) { y = Relu(x) }"), "input 'x'", "twice")


def test_random_numbers_are_not_proven() -> None:
    found = find("(float[N,4] x) => (float[N,4] y) { y = RandomNormalLike(x) }")
    assert refused(found, "random", depends=False)
    shared = find("(float[N,4] x) => (float[N,4] y, float[2] z) { y = Relu(x) z = RandomNormal<shape=[2]>() }")
    assert refused(shared, "random", depends=False)


def test_an_unknown_operator_is_reported() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17, "own" : 1]> g (float[N,4] x) => (float[N,4] y) { y = own.Thing(x) }'
    )
    assert refused(find_batching(model), "'y' (Thing)", depends=False)


OTHER_ATTRIBUTES = {
    "einsum": ("equation", None, 3, [3, 3], 0.5),
    "loop": ("body", None, -(2**63), "text", [0, 0]),
    "if": ("else_branch", None, 1, [1]),
    "scan": ("body", None, 0.5, "text"),
    "scan's inputs": ("num_scan_inputs", None, -1, 2**63 - 1),
}
"""An attribute and invalid values of it; ``None`` if it is missing."""


@pytest.mark.parametrize("name", OTHER_ATTRIBUTES)
def test_invalid_attributes_are_not_proven(name: str) -> None:
    attribute, *values = OTHER_ATTRIBUTES[name]
    for value in values:
        model = graphs.SEEDS[name.partition("'")[0]]()
        nodes = [node for node in model.graph.node for one in node.attribute if one.name == attribute]
        kept = [one for one in nodes[0].attribute if one.name != attribute]
        del nodes[0].attribute[:]
        nodes[0].attribute.extend(kept)
        if value is not None:
            nodes[0].attribute.append(helper.make_attribute(attribute, value))
        assert not find_batching(model).independent


def test_several_rows_per_sample_are_rejected() -> None:
    found = find("(float[N,3,4] x) => (float[?,4] y) <int64[2] t = {-1, 4}> { y = Reshape(x, t) }")
    assert refused(found, "several rows per sample")


def test_the_number_of_samples_as_an_output_is_rejected() -> None:
    assert refused(find("(float[N,3] x) => (int64[2] y) { y = Shape(x) }"), "number of samples")


def test_positions_of_a_fixed_batch_depend_on_the_place() -> None:
    text = "(float[2,3] x) => (float[2,3] y) <float[2,3] c = {1,2,3,%s}> { y = Add(x, c) }"
    assert refused(find(text % "4,5,6"), "'c'")
    assert find(text % "1,2,3") == proven((0,), (0,))


def test_large_constants_are_compared_too() -> None:
    rng = np.random.default_rng(1)
    row = rng.normal(size=(1, 2000)).astype(np.float32)
    for rows, same in ((np.repeat(row, 2, 0), True), (rng.normal(size=(2, 2000)).astype(np.float32), False)):
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2000]) for name in "xy")
        graph = helper.make_graph(
            [helper.make_node("Add", ["x", "c"], ["y"])], "g", [x], [y], [numpy_helper.from_array(rows, "c")]
        )
        assert bool(find_batching(helper.make_model(graph)).independent) is same


def test_maxpool_indices_depend_on_the_batch() -> None:
    found = find("(float[N,1,4] x) => (float[N,1,2] y, int64[N,1,2] i) { y, i = MaxPool<kernel_shape=[3]>(x) }")
    assert refused(found, "'y' (MaxPool)")


# ------------------------------------------------------------------------------------------------ what keeps them apart

APART = {
    "attention": """(float[N,S,8] x) => (float[N,S,8] y)
    <int64[1] zero = {0}, int64[1] one = {1}, int64[1] heads = {2}, int64[1] width = {4}, int64[1] rest = {-1}>
    { s = Shape(x) n = Slice(s, zero, one) e = Constant<value = int64[1] {2}>() l = Slice(s, one, e)
      t = Concat<axis=0>(n, l, heads, width) r = Reshape(x, t) q = Transpose<perm=[0,2,1,3]>(r)
      k = Transpose<perm=[0,1,3,2]>(q) a = MatMul(q, k) p = Softmax<axis=-1>(a) v = MatMul(p, q)
      b = Transpose<perm=[0,2,1,3]>(v) u = Concat<axis=0>(n, l, rest) y = Reshape(b, u) }""",
    "heads folded into the batch": """(float[N,S,8] x) => (float[N,S,8] y)
    <int64[1] two = {2}, int64[1] four = {4}, int64[1] eight = {8}, int64[1] rest = {-1}, int64[4] cut = {0, 0, 2, 4}>
    { s = Shape(x) r = Reshape(x, cut) t = Transpose<perm=[0,2,1,3]>(r)
      n = Shape<start=0, end=1>(x) l = Shape<start=1, end=2>(x)
      m = Mul(n, two) f = Concat<axis=0>(m, l, four) q = Reshape(t, f) p = Softmax(q)
      b = Concat<axis=0>(n, two, l, four) o = Reshape(p, b) w = Transpose<perm=[0,2,1,3]>(o)
      z = Concat<axis=0>(n, rest, eight) y = Reshape(w, z) }""",
    "linear layer over time": """(float[N,T,4] x) => (float[N,T,2] y)
    <int64[2] flat = {-1, 4}, int64[1] rest = {-1}, int64[1] two = {2}, float[4,2] w = {1,2,3,4,5,6,7,8}>
    { f = Reshape(x, flat) m = MatMul(f, w) n = Shape<start=0, end=2>(x) t = Concat<axis=0>(n, two)
      y = Reshape(m, t) }""",
    "channel shuffle": """(float[N,6,2,2] x) => (float[N,6,2,2] y) <int64[5] a = {0,2,3,2,2}, int64[4] b = {-1,6,2,2}>
    { g = Reshape(x, a) t = Transpose<perm=[0,2,1,3,4]>(g) y = Reshape(t, b) }""",
    "class token": """(float[N,3,2] x) => (float[N,4,2] y) <float[1,1,2] c = {1,2}, int64[2] tail = {1,1}>
    { n = Shape<start=0, end=1>(x) t = Concat<axis=0>(n, tail) e = Expand(c, t) y = Concat<axis=1>(e, x) }""",
    "zero state": """(float[N,3] x) => (float[N,3] y) <int64[1] w = {3}>
    { n = Shape<start=0, end=1>(x) t = Concat<axis=0>(n, w) z = ConstantOfShape(t) y = Add(x, z) }""",
    "guidance": """(float[N,3] x) => (float[N,3] y)
    { d = Concat<axis=0>(x, x) s = Tanh(d) a, b = Split<axis=0>(s) y = Add(a, b) }""",
    "reverse features": """(float[N,3] x) => (float[N,3] y)
    <int64[1] s = {-1}, int64[1] e = {-99}, int64[1] a = {1}, int64[1] t = {-1}>
    { y = Slice(x, s, e, a, t) }""",
    "sum over features": "(float[N,3] x) => (float[N,3] y) <int64 a = {1}> { y = CumSum(x, a) }",
    "resize": """(float[N,1,H,W] x) => (float[N,1,?,?] y)
    <float[4] s = {1,1,2,2}> { y = Resize<mode="linear">(x, , s) }""",
    "embedding": """(int64[N,S] x) => (float[N,S,2] y) <float[3,2] w = {1,2,3,4,5,6}> { y = Gather(w, x) }""",
    "pick a row": """(float[N,3,2] x) => (float[N,2] y) <int64 i = {0}> { y = Gather<axis=1>(x, i) }""",
    "best class": """(float[N,5] x) => (float[N,1] y) { i = ArgMax<axis=1>(x) y = GatherElements<axis=1>(x, i) }""",
    "a row by its own number": """(float[N,5,2] x, int64[N,5] t) => (float[N,2] y)
    <int64 o = {0}, int64 i = {1}, int64[1] l = {1}>
    { s = Shape(x) n = Gather(s, o) r = Range(o, n, i) a = ArgMax<axis=1, keepdims=0>(t) p = Unsqueeze(r, l)
      q = Unsqueeze(a, l) k = Concat<axis=-1>(p, q) y = GatherND(x, k) }""",
    "an element by two indices, as torch exports it": """(int64[N,S] x) => (int64[N,1,1,S] y)
    <int64 o = {0}, int64 i = {1}, int64[3] a = {1,2,3}, int64[3] b = {0,1,2}, int64[1] l = {-1}>
    { s = Shape(x) n = Gather(s, o) r = Range(o, n, i) p = Unsqueeze(r, a) m = Gather(s, i) t = Range(o, m, i)
      q = Unsqueeze(t, b) w = Max(p, q) z = Shape(w) pe = Expand(p, z) qe = Expand(q, z) pu = Unsqueeze(pe, l)
      qu = Unsqueeze(qe, l) k = Concat<axis=-1>(pu, qu) y = GatherND(x, k) }""",
    "strides of a flat table": """(float[N,3,1,1] x) => (float[N,3,1,1] y)
    <int64 o = {0}, int64 i = {1}, int64 w = {3}, int64[3] l = {1,2,3}, int64[1] flat = {-1},
     int64[1,3,1,1] c = {0,1,2}>
    { s = Shape(x) n = Gather(s, o) r = Range(o, n, i) m = Mul(r, w) u = Unsqueeze(m, l) k = Add(u, c)
      f = Reshape(x, flat) y = Gather(f, k) }""",
    "einsum": """(float[N,3,4] x) => (float[N,3,3] y) { y = Einsum<equation="bij,bkj->bik">(x, x) }""",
    "ellipsis": """(float[N,3,4] x) => (float[N,4,3] y) { y = Einsum<equation="...ij->...ji">(x) }""",
    "old softmax": """(float[N,3,4] x) => (float[N,3,4] y) { y = Softmax<axis=1>(x) }""",
    "layer norm": """(float[N,3] x) => (float[N,3] y) <float[3] w = {1,1,1}> { y = LayerNormalization(x, w, w) }""",
    "instance norm": """(float[N,2,3] x) => (float[N,2,3] y)
    <float[2] w = {1,1}> { y = InstanceNormalization(x, w, w) }""",
    "quantise": """(float[N,3] x) => (float[N,3] y) <float s = {0.5}, uint8 z = {3}>
    { q = QuantizeLinear(x, s, z) y = DequantizeLinear(q, s, z) }""",
    "loop": """(float[N,3] x) => (float[N,3] y) <int64 m = {3}, bool c = {1}>
    { y = Loop(m, c, x)<body = b (int64 i, bool k, float[?,3] s) => (bool k2, float[?,3] t)
      { k2 = Identity(k) t = Tanh(s) }> }""",
    "scan over time": """(float[T,N,3] x) => (float[N,3] h, float[T,N,3] y) <int64 z = {0}>
    { f = Gather(x, z) o = Sub(f, f)
      h, y = Scan<num_scan_inputs=1, body = b (float[?,3] s, float[?,3] v) => (float[?,3] t, float[?,3] w)
      { t = Add(s, v) w = Identity(t) }>(o, x) }""",
}


@pytest.mark.parametrize("name", APART)
def test_independent_graphs_are_proven(name: str) -> None:
    found = find(APART[name])
    assert found.independent, found.reason
    assert 0 not in (len(found.inputs), len(found.outputs))


@pytest.mark.parametrize("places", ["0,1,3", "-1,0,1", "1,2,3"])
def test_positions_in_other_samples_are_not_proven(places: str) -> None:
    found = find(APART["strides of a flat table"].replace("c = {0,1,2}", f"c = {{{places}}}"))
    assert refused(found, "'y' (Gather)")


def test_constant_positions_of_a_fixed_batch() -> None:
    text = """(float[2,3] x) => (float[2,3] y) <int64[1] f = {-1}, int64[2,3] k = {%s}>
    { r = Reshape(x, f) y = Gather(r, k) }"""
    assert find(text % "0,1,2,3,4,5") == proven((0,), (0,))
    assert find(text % "2,1,0,5,4,3") == proven((0,), (0,))
    assert refused(find(text % "0,1,2,5,4,3"))
    assert refused(find(text % "3,4,5,0,1,2"))


def test_constant_indices_on_another_axis() -> None:
    text = "(float[2,2,3] x) => (float[2,2,3] y) <int64[2] k = {0, 1}> { y = Gather<axis=1>(x, k) }"
    assert find(text) == proven((0,), (0,))


def test_axes_of_a_scan() -> None:
    assert find(APART["scan over time"]) == proven((1,), (0, 1))


def test_a_scan_over_the_batch_depends() -> None:
    text = APART["scan over time"].replace("[T,N,3] x", "[N,T,3] x").replace("[T,N,3] y", "[N,T,3] y")
    assert refused(find(text))


def test_a_loop_over_the_samples_depends() -> None:
    text = """(float[N,3] x) => (float[?,?,3] y) <int64 z = {0}, bool c = {1}>
    { s = Shape(x) n = Gather(s, z)
      y = Loop(n, c)<body = b (int64 i, bool k) => (bool k2, float[3] t) { k2 = Identity(k) t = Gather(x, i) }> }"""
    assert refused(find(text), "'y' (Loop)")


def test_a_loop_with_a_condition_on_samples_is_not_proven() -> None:
    text = """(float[N,3] x) => (float[N,3] y) <int64 m = {3}, bool c = {1}, float z = {0}>
    { y = Loop(m, c, x)<body = b (int64 i, bool k, float[?,3] s) => (bool k2, float[?,3] t)
      { t = Tanh(s) a = ReduceMax<keepdims=0>(t) k2 = Greater(a, z) }> }"""
    assert refused(find(text))


def test_a_branch_with_a_condition_on_samples_is_not_proven() -> None:
    text = """(float[N,3] x, bool[N] c) => (float[N,3] y)
    { y = If(c)<then_branch = a () => (float[?,3] p) { p = Tanh(x) },
                  else_branch = b () => (float[?,3] q) { q = Relu(x) }> }"""
    assert refused(find(text), "'y' (If)", depends=False)


def test_old_softmax_normalizes_over_all_axes_from_its_axis() -> None:
    text = "(float[3,N,4] x) => (float[3,N,4] y) { y = Softmax<axis=1>(x) }"
    assert refused(find(text, 11, x=1), "'y' (Softmax)")
    assert refused(find(text.replace("axis=1", "axis=0"), 11, x=1), "'y' (Softmax)")
    assert find(text.replace("axis=1", "axis=2"), 11, x=1).independent
    assert find(text.replace("axis=1", "axis=0"), 13, x=1).independent


def test_functions_are_analysed() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
    g (float[N,4] x) => (float[N,4] y) { y = own.Centre(x) }
    <domain: "own", opset_import: ["" : 17]> Centre (a) => (b) { m = ReduceMean<axes=[%d]>(a) b = Sub(a, m) }"""
    assert find_batching(onnx.parser.parse_model(text % 1)) == proven((0,), (0,))
    assert refused(find_batching(onnx.parser.parse_model(text % 0)), "ReduceMean")


def test_the_model_is_not_changed() -> None:
    model = onnx.parser.parse_model(HEADER % 17 + "g " + APART["attention"])
    before = model.SerializeToString()
    find_batching(model)
    assert model.SerializeToString() == before


def test_a_dynamic_size_fixed_by_a_tracing_exporter() -> None:
    text = """(float[batch,seq,8] x) => (float[batch,7,8] y) <int64[1] seven = {7}, int64[1] eight = {8}>
    { n = Shape<start=0, end=1>(x) t = Concat<axis=0>(n, seven, eight) y = Reshape(x, t) }"""
    assert find(text) == proven((0,), (0,))
