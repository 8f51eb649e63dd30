"""Random models for every rewrite rule, in the forms that exporters write."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from pass_models import batch_norm, build, floats, node

Draw = Callable[..., Any]
Drawn = tuple[onnx.ModelProto, str]
"""A model, and the operator a rule should put into it ("" for none)."""


def scalar(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def longs(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def swapped(draw: Draw, a: str, b: str) -> list[str]:
    return [a, b] if draw(st.booleans()) else [b, a]


def shape4(draw: Draw) -> list[int]:
    return [draw(st.integers(1, 3)), *(draw(st.integers(2, 5)) for _ in range(3))]


def conv(channels: int, out: int, kernel: int, group: int = 1) -> dict[str, np.ndarray]:
    return {"w": floats(out, channels // group, kernel, kernel), "b": floats(out)}


def conv_batch_norm(draw: Draw) -> Drawn:
    n, c, h, w = shape4(draw)
    weights = conv(c, 4, draw(st.sampled_from([1, 2]))) | batch_norm(4)
    inputs = ["x", "w", "b"] if draw(st.booleans()) else ["x", "w"]
    weights = {name: array for name, array in weights.items() if name in inputs or name.startswith("bn")}
    names = [f"bn_{part}" for part in ("gamma", "beta", "mean", "var")]
    return build([node("Conv", inputs, "c"), node("BatchNormalization", ["c", *names], "y")], weights, [n, c, h, w]), ""


def conv_bias(draw: Draw) -> Drawn:
    n, c, h, w = shape4(draw)
    kind = draw(st.sampled_from(["Add", "Sub", "Mul", "Div"]))
    weights = conv(c, 4, 1) | {"k": np.abs(floats(1, 4, 1, 1)) + np.float32(0.5)}
    return build([node("Conv", ["x", "w", "b"], "c"), node(kind, ["c", "k"], "y")], weights, [n, c, h, w]), ""


def conv_activation(draw: Draw) -> Drawn:
    n, c, h, w = shape4(draw)
    kind = draw(st.sampled_from(["Relu", "Clip", "LeakyRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Elu"]))
    move = draw(st.sampled_from(["Reshape", "Transpose", "Flatten", "Unsqueeze"]))
    weights = conv(c, 4, 1)
    extra = {"Reshape": longs(0, -1), "Unsqueeze": longs(1)}
    bounds = {"low": scalar(-0.5), "high": scalar(0.5)} if kind == "Clip" else {}
    weights |= bounds | ({"s": extra[move]} if move in extra else {})
    turned = {"perm": [0, 2, 3, 1]} if move == "Transpose" else {}
    nodes = [
        node("Conv", ["x", "w", "b"], "c"),
        node(move, ["c", *(["s"] if move in extra else [])], "m", **turned),
        node(kind, ["m", *bounds], "y"),
    ]
    return build(nodes, weights, [n, c, h, w]), kind


def hard_swish(draw: Draw) -> Drawn:
    way = draw(st.integers(0, 3))
    weights = {"three": scalar(3), "zero": scalar(0), "six": scalar(6), "sixth": scalar(1 / 6)}
    clip = [node("Add", swapped(draw, "x", "three"), "a"), node("Clip", ["a", "zero", "six"], "c")]
    ways = [
        [*clip, node("Mul", swapped(draw, "x", "c"), "m"), node("Div", ["m", "six"], "y")],
        [*clip, node("Div", ["c", "six"], "d"), node("Mul", swapped(draw, "x", "d"), "y")],
        [*clip, node("Mul", swapped(draw, "c", "sixth"), "d"), node("Mul", swapped(draw, "x", "d"), "y")],
        [node("HardSigmoid", ["x"], "h", alpha=1 / 6, beta=0.5), node("Mul", swapped(draw, "x", "h"), "y")],
    ]
    used = {name for one in ways[way] for name in one.input}
    weights = {name: array for name, array in weights.items() if name in used}
    return build(ways[way], weights, shape4(draw)), "HardSwish"


def silu(draw: Draw) -> Drawn:
    nodes = [node("Sigmoid", ["x"], "s"), node("Mul", swapped(draw, "x", "s"), "y")]
    return build(nodes, {}, shape4(draw), opset=24), "Swish"


def halves(draw: Draw, inner: str) -> list[onnx.NodeProto]:
    """Multiply x, 0.5 and an inner factor in any order."""
    first, second, last = draw(st.permutations(["x", "half", inner]))
    return [node("Mul", [first, second], "p"), node("Mul", swapped(draw, "p", last), "y")]


def gelu(draw: Draw) -> Drawn:
    divided = draw(st.booleans())
    weights = {"k": scalar(math.sqrt(2) if divided else math.sqrt(0.5)), "one": scalar(1), "half": scalar(0.5)}
    nodes = [
        node("Div", ["x", "k"], "s") if divided else node("Mul", swapped(draw, "x", "k"), "s"),
        node("Erf", ["s"], "e"),
        node("Add", swapped(draw, "e", "one"), "i"),
        *halves(draw, "i"),
    ]
    return build(nodes, weights, shape4(draw), opset=20), "Gelu"


def gelu_tanh(draw: Draw) -> Drawn:
    weights = {"k": scalar(0.044715), "r": scalar(math.sqrt(2 / math.pi)), "one": scalar(1), "half": scalar(0.5)}
    if draw(st.booleans()):
        weights["cube"] = scalar(3)
        power = [node("Pow", ["x", "cube"], "c")]
    else:
        power = [node("Mul", ["x", "x"], "q"), node("Mul", swapped(draw, "q", "x"), "c")]
    nodes = [
        *power,
        node("Mul", swapped(draw, "c", "k"), "kc"),
        node("Add", swapped(draw, "x", "kc"), "a"),
        node("Mul", swapped(draw, "a", "r"), "ra"),
        node("Tanh", ["ra"], "t"),
        node("Add", swapped(draw, "t", "one"), "i"),
        *halves(draw, "i"),
    ]
    return build(nodes, weights, shape4(draw), opset=20), "Gelu"


def layer_norm(draw: Draw) -> Drawn:
    shape, opset = shape4(draw), draw(st.sampled_from([17, 18]))
    d = shape[-1]
    weights = {"eps": scalar(draw(st.sampled_from([1e-5, 1e-3]))), "gamma": floats(d), "two": scalar(2)}
    axes: dict[str, Any] = {"axes": [draw(st.sampled_from([-1, 3]))]} if opset < 18 else {}
    extra = [] if opset < 18 else ["axes"]
    if extra:
        weights["axes"] = longs(-1)
    square = node("Pow", ["d", "two"], "s") if draw(st.booleans()) else node("Mul", ["d", "d"], "s")
    divide = [node("Div", ["d", "r"], "n")]
    if draw(st.booleans()):
        divide = [node("Reciprocal", ["r"], "i"), node("Mul", swapped(draw, "d", "i"), "n")]
    nodes = [
        node("ReduceMean", ["x", *extra], "m", **axes),
        node("Sub", ["x", "m"], "d"),
        square,
        node("ReduceMean", ["s", *extra], "v", **axes),
        # Not swapped: ONNX Runtime 1.31's fusion uses epsilon 1e-5 if it is the first operand.
        node("Add", ["v", "eps"], "e"),
        node("Sqrt", ["e"], "r"),
        *divide,
    ]
    if draw(st.booleans()):
        weights["beta"] = floats(d)
        nodes += [node("Mul", swapped(draw, "n", "gamma"), "g"), node("Add", swapped(draw, "g", "beta"), "y")]
    else:
        nodes += [node("Mul", swapped(draw, "n", "gamma"), "y")]
    used = {name for one in nodes for name in one.input}
    return build(nodes, {k: v for k, v in weights.items() if k in used}, shape, opset=opset), "LayerNormalization"


def attention(draw: Draw) -> Drawn:
    n, h, s, d = shape4(draw)
    weights = {"scale": scalar(1 / math.sqrt(d)), "root": scalar(math.sqrt(d)), "quarter": scalar(d**-0.25)}
    mask = draw(st.sampled_from([(s, s), (h, s, s), (1, 1, s, s), (n, 1, s, s)]))
    weights |= {"bias": floats(*mask), "wk": floats(d, d), "wv": floats(d, d)}
    nodes = [node("MatMul", ["x", "wk"], "k"), node("MatMul", ["x", "wv"], "v")]
    if draw(st.booleans()):
        nodes.append(node("Transpose", ["k"], "kt", perm=[0, 1, 3, 2]))
    else:  # the form of newer exporters
        weights |= {"three": longs(-1, s, d), "four": longs(n, h, d, s)}
        nodes += [node("Reshape", ["k", "three"], "k3"), node("Transpose", ["k3"], "t3", perm=[0, 2, 1])]
        nodes += [node("Reshape", ["t3", "four"], "kt")]
    way = draw(st.integers(0, 3))
    if way == 0:
        nodes += [node("MatMul", ["x", "kt"], "q"), node("Mul", swapped(draw, "q", "scale"), "l")]
    elif way == 1:
        nodes += [node("MatMul", ["x", "kt"], "q"), node("Div", ["q", "root"], "l")]
    elif way == 2:
        nodes += [node("Mul", ["x", "quarter"], "qs"), node("Mul", swapped(draw, "kt", "quarter"), "ks")]
        nodes += [node("MatMul", ["qs", "ks"], "l")]
    else:
        nodes += [node("MatMul", ["x", "kt"], "l")]
    masked = draw(st.booleans())
    nodes += [node("Add", swapped(draw, "l", "bias"), "lm")] if masked else []
    nodes += [node("Softmax", ["lm" if masked else "l"], "p", axis=-1), node("MatMul", ["p", "v"], "y")]
    used = {name for one in nodes for name in one.input}
    return build(nodes, {k: a for k, a in weights.items() if k in used}, [n, h, s, d], opset=23), "Attention"


def transpose_past(draw: Draw) -> Drawn:
    kind = draw(st.sampled_from(["Relu", "Sigmoid", "Tanh", "Clip", "LeakyRelu", "Neg", "Erf", "Exp", "Softplus"]))
    there = draw(st.permutations(range(4)))
    back = draw(st.sampled_from([list(np.argsort(there)), draw(st.permutations(range(4)))]))
    bounds = {"low": scalar(-0.5), "high": scalar(0.5)} if kind == "Clip" else {}
    nodes = [
        node("Transpose", ["x"], "a", perm=[int(i) for i in there]),
        node(kind, ["a", *bounds], "b"),
        node("Transpose", ["b"], "y", perm=[int(i) for i in back]),
    ]
    return build(nodes, bounds, shape4(draw)), kind


def transpose_pair(draw: Draw) -> Drawn:
    perms = [draw(st.permutations(range(4))) for _ in range(draw(st.integers(2, 4)))]
    names = ["x", *(f"t{i}" for i in range(len(perms) - 1)), "z"]
    nodes = [node("Transpose", [a], b, perm=list(p)) for a, b, p in zip(names, names[1:], perms, strict=False)]
    return build([*nodes, node("Relu", ["z"], "y")], {}, shape4(draw)), "Relu"


def transpose_view(draw: Draw) -> Drawn:
    size = draw(st.integers(2, 5))
    batch = draw(st.sampled_from([1, 3, "batch"]))
    perm = draw(st.sampled_from([[0, 2, 1, 3], [0, 2, 3, 1], [2, 0, 1, 3], [0, 1, 3, 2]]))
    shape = [batch, size, 1, 1] if perm != [0, 1, 3, 2] else [batch, size, 1, 4]
    return build([node("Transpose", ["x"], "t", perm=perm), node("Relu", ["t"], "y")], {}, shape), "Reshape"


def shuffled(draw: Draw, batch: int | str, groups: list[int], rest: list[int]) -> tuple[list[Any], dict[str, Any]]:
    """Shuffle the channels of x into z; groups may be more than two."""
    inner = draw(st.permutations(range(len(groups))))
    perm = [0, *(i + 1 for i in inner), *range(len(groups) + 1, len(groups) + 1 + len(rest))]
    whole = 0 if batch == "batch" else batch
    weights = {"into": longs(whole, *groups, *rest), "back": longs(whole, math.prod(groups), *rest)}
    nodes = [
        node("Reshape", ["x", "into"], "a"),
        node("Transpose", ["a"], "b", perm=perm),
        node("Reshape", ["b", "back"], "z"),
    ]
    return nodes, weights


def some_groups(draw: Draw) -> tuple[int | str, list[int], list[int]]:
    groups = [draw(st.integers(2, 3)) for _ in range(draw(st.integers(2, 3)))]
    rest = [draw(st.integers(2, 4)) for _ in range(draw(st.integers(0, 2)))]
    return draw(st.sampled_from([1, 3, "batch"])), groups, rest


def channel_shuffle(draw: Draw) -> Drawn:
    batch, groups, rest = some_groups(draw)
    nodes, weights = shuffled(draw, batch, groups, rest)
    return build([*nodes, node("Relu", ["z"], "y")], weights, [batch, math.prod(groups), *rest]), "Gather"


def shuffle_split(draw: Draw) -> Drawn:
    channels = draw(st.integers(3, 6))
    order = draw(st.permutations(range(channels)))
    cut, axis = draw(st.integers(1, channels - 1)), draw(st.sampled_from([1, -3]))
    weights = {"order": longs(*order), "parts": longs(cut, channels - cut)}
    pieces = [node("Split", ["g", "parts"], ["p", "q"], axis=axis)]
    if draw(st.booleans()):  # the form of the older exporter; -1 counts from the end
        ends = {"zero": longs(0), "cut": longs(draw(st.sampled_from([cut, cut - channels])))}
        weights = {"order": longs(*order), **ends, "end": longs(draw(st.sampled_from([channels, 2**63 - 1])))}
        weights["axis"] = longs(axis)
        pieces = [node("Slice", ["g", "zero", "cut", "axis"], "p"), node("Slice", ["g", "cut", "end", "axis"], "q")]
    nodes = [node("Gather", ["x", "order"], "g", axis=1), *pieces, node("Relu", ["p"], "y"), node("Neg", ["q"], "z")]
    return build(nodes, weights, [draw(st.sampled_from([2, "batch"])), channels, 3, 4], ("y", "z")), "Gather"


def gather_conv(draw: Draw) -> Drawn:
    channels = draw(st.integers(2, 6))
    order = draw(st.permutations(range(channels)))[: draw(st.integers(1, channels))]
    weights = {"order": longs(*order)} | conv(len(order), 4, draw(st.sampled_from([1, 3])))
    nodes = [node("Gather", ["x", "order"], "g", axis=1), node("Conv", ["g", "w", "b"], "y", pads=[1, 1, 1, 1])]
    return build(nodes, weights, [draw(st.sampled_from([2, "batch"])), channels, 5, 4]), "Conv"


def reshape_chain(draw: Draw) -> Drawn:
    n, c, h, w = shape4(draw)
    weights = {"into": longs(n, c * h, w), "flat": longs(n, -1), "one": longs(1)}
    second = draw(st.sampled_from(["Reshape", "Flatten", "Unsqueeze"]))
    nodes = {
        "Reshape": node("Reshape", ["a", "flat"], "z"),
        "Flatten": node("Flatten", ["a"], "z"),
        "Unsqueeze": node("Unsqueeze", ["a", "one"], "z"),
    }
    chain = [node("Reshape", ["x", "into"], "a"), nodes[second]]
    used = {name for one in chain for name in one.input}
    nodes_all = [*chain, node("Relu", ["z"], "y")]
    return build(nodes_all, {k: v for k, v in weights.items() if k in used}, [n, c, h, w]), "Relu"


_CASES = (
    *(conv_batch_norm, conv_bias, conv_activation, hard_swish, silu, gelu, gelu_tanh, layer_norm, attention),
    *(transpose_past, transpose_pair, transpose_view, channel_shuffle, shuffle_split, gather_conv, reshape_chain),
)
CASES: dict[str, Callable[[Draw], Drawn]] = {case.__name__: case for case in _CASES}
