"""Random small graphs; most of their operators keep the samples of ``x`` independent along some axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Draw = Callable[[Any], Any]
BATCH = 4
"""Number of samples; other axes sometimes have the same size, so that sizes are ambiguous."""


class Graph:
    """A graph under construction: the shape of every tensor for ``BATCH`` samples."""

    def __init__(self, draw: Draw, shape: tuple[int, ...]) -> None:
        from hypothesis import strategies as st

        self.st = st
        self.draw = draw
        self.shapes: dict[str, tuple[int, ...]] = {"x": shape}
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.seeds = np.random.default_rng(7)

    def pick(self, values: Any) -> Any:
        return self.draw(self.st.sampled_from(list(values)))

    def tensor(self, least: int = 1) -> str:
        """Return a tensor of at least this rank, usually the newest."""
        names = [name for name, shape in self.shapes.items() if len(shape) >= least]
        assert names
        return names[-1] if self.draw(self.st.integers(0, 2)) else self.pick(names)

    def axis(self, name: str) -> int:
        return int(self.draw(self.st.integers(0, len(self.shapes[name]) - 1)))

    def constant(self, values: Any, dtype: Any = np.int64) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def weights(self, *shape: int) -> str:
        return self.constant(self.seeds.normal(size=shape), np.float32)

    def add(
        self, op: str, inputs: list[str], shape: tuple[int, ...] | None, outputs: int = 1, **attributes: Any
    ) -> str:
        """Add a node; with a shape, other nodes may read its first output."""
        names = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        domain = attributes.pop("domain", "")
        self.nodes.append(helper.make_node(op, inputs, names, domain=domain, **attributes))
        if shape is not None:
            self.shapes[names[0]] = shape
        return names[0]

    def model(self, axis: int, dynamic: bool, outputs: list[str]) -> onnx.ModelProto:
        shape: list[int | str] = list(self.shapes["x"])
        if dynamic:
            shape[axis] = "N"
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
        ends = [onnx.ValueInfoProto(name=name) for name in outputs]
        for end in ends:
            end.type.tensor_type.elem_type = TensorProto.FLOAT
        graph = helper.make_graph(self._read_by(outputs), "g", [x], ends, self.constants)
        return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])

    def _read_by(self, outputs: list[str]) -> list[onnx.NodeProto]:
        """Return the nodes that the outputs depend on; others might not run at another batch size."""
        needed, kept = set(outputs), []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                needed.update(node.input)
                kept.append(node)
        return kept[::-1]


# ---------------------------------------------------------------------------------------------------------- operators


def unary(g: Graph) -> None:
    name = g.tensor()
    g.add(g.pick(["Tanh", "Neg", "Sin", "Identity"]), [name], g.shapes[name])


def softmax(g: Graph) -> None:
    name = g.tensor()
    axis = g.axis(name)
    g.add(g.pick(["Softmax", "LogSoftmax"]), [name], g.shapes[name], axis=g.pick([axis, axis - len(g.shapes[name])]))


def cumsum(g: Graph) -> None:
    name = g.tensor()
    g.add("CumSum", [name, g.constant(g.axis(name))], g.shapes[name])


def reduce(g: Graph) -> None:
    name = g.tensor(2)
    shape, axis, keep = g.shapes[name], g.axis(name), g.pick([0, 1])
    left = tuple(1 if i == axis else n for i, n in enumerate(shape) if keep or i != axis)
    g.add(g.pick(["ReduceMean", "ReduceMax", "ReduceL2"]), [name], left, axes=[axis], keepdims=keep)


def arg_max(g: Graph) -> None:
    name = g.tensor(2)
    axis = g.axis(name)
    shape = tuple(1 if i == axis else n for i, n in enumerate(g.shapes[name]))
    picked = g.add("ArgMax", [name], None, axis=axis)
    if g.pick([True, False]):
        g.add("GatherElements", [name, picked], shape, axis=g.pick([axis, g.axis(name)]))
    else:
        g.add("Cast", [picked], shape, to=TensorProto.FLOAT)


def transpose(g: Graph) -> None:
    name = g.tensor(2)
    order = g.draw(g.st.permutations(range(len(g.shapes[name]))))
    g.add("Transpose", [name], tuple(g.shapes[name][i] for i in order), perm=order)


def reshape(g: Graph) -> None:
    """Merge or split axes; one size is -1 or taken from the shape."""
    name = g.tensor()
    shape = list(g.shapes[name])
    axis = g.axis(name)
    if axis + 1 < len(shape) and g.pick([True, False]):
        target = [*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :]]
    else:
        part = g.pick([n for n in range(1, shape[axis] + 1) if shape[axis] % n == 0])
        target = [*shape[:axis], part, shape[axis] // part, *shape[axis + 1 :]]
    if len(target) > 4:
        return
    free = g.draw(g.st.integers(0, len(target) - 1))
    written = [-1 if i == free else n for i, n in enumerate(target)]
    if g.pick([True, False]):
        g.add("Reshape", [name, g.constant(written)], tuple(target))
        return
    whole = g.add("Shape", [name], None)
    same = [i for i, (a, b) in enumerate(zip(shape, target, strict=False)) if a == b and i != free]
    parts = [g.constant([n]) for n in written]
    for i in same:
        parts[i] = g.add("Gather", [whole, g.constant([i])], None)
    g.add("Reshape", [name, g.add("Concat", parts, None, axis=0)], tuple(target))


def flatten(g: Graph) -> None:
    name = g.tensor()
    shape, axis = g.shapes[name], g.axis(name)
    g.add("Flatten", [name], (math.prod(shape[:axis]), math.prod(shape[axis:])), axis=axis)


def unsqueeze(g: Graph) -> None:
    name = g.tensor()
    shape = g.shapes[name]
    if len(shape) < 4:
        axis = g.draw(g.st.integers(0, len(shape)))
        g.add("Unsqueeze", [name, g.constant([axis])], (*shape[:axis], 1, *shape[axis:]))


def squeeze(g: Graph) -> None:
    name = g.tensor()
    shape = g.shapes[name]
    ones = [i for i, n in enumerate(shape) if n == 1]
    if ones and len(shape) > 1:
        axis = g.pick(ones)
        g.add("Squeeze", [name, g.constant([axis])], (*shape[:axis], *shape[axis + 1 :]))


def concat(g: Graph) -> None:
    name = g.tensor()
    shape, axis = g.shapes[name], g.axis(name)
    if math.prod(shape) > 2000:
        return
    same = [other for other, its in g.shapes.items() if its == shape]
    beside = g.pick(same) if g.pick([True, True, False]) else g.weights(*shape)
    g.add("Concat", [name, beside], (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :]), axis=axis)


def split(g: Graph) -> None:
    name = g.tensor()
    shape, axis = g.shapes[name], g.axis(name)
    if shape[axis] % 2 == 0:
        half = (*shape[:axis], shape[axis] // 2, *shape[axis + 1 :])
        g.shapes[f"t{len(g.nodes)}_1"] = half
        g.add("Split", [name], half, 2, axis=axis)


def slice_(g: Graph) -> None:
    name = g.tensor()
    shape, axis = g.shapes[name], g.axis(name)
    start, end, step = g.pick([(0, 2**62, 1), (0, 2, 1), (1, 2**62, 1), (-1, -(2**62), -1), (0, shape[axis], 1)])
    left = len(range(*slice(start, end if step > 0 else None, step).indices(shape[axis])))
    if left:
        cut = [g.constant([n]) for n in (start, end, axis, step)]
        g.add("Slice", [name, *cut], (*shape[:axis], left, *shape[axis + 1 :]))


def gather(g: Graph) -> None:
    name = g.tensor()
    shape, axis = g.shapes[name], g.axis(name)
    picks = g.pick([[0], [0, 0], list(range(shape[axis])), list(range(shape[axis]))[::-1]])
    g.add("Gather", [name, g.constant(picks)], (*shape[:axis], len(picks), *shape[axis + 1 :]), axis=axis)


def matmul(g: Graph) -> None:
    name = g.tensor()
    shape = g.shapes[name]
    if len(shape) > 1 and g.pick([True, False]):
        g.add("MatMul", [g.weights(3, shape[-2]), name], (*shape[:-2], 3, shape[-1]))
    else:
        g.add("MatMul", [name, g.weights(shape[-1], 3)], (*shape[:-1], 3))


def similarity(g: Graph) -> None:
    name = g.tensor(2)
    shape = g.shapes[name]
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    turned = g.add("Transpose", [name], None, perm=order)
    g.add("MatMul", [name, turned], (*shape[:-1], shape[-2]))


def gemm(g: Graph) -> None:
    name = g.tensor(2)
    shape = g.shapes[name]
    if len(shape) == 2:
        turn = g.pick([0, 1])
        inner, outer = shape[1 - turn], shape[turn]
        g.add(
            "Gemm", [name, g.weights(inner, 3), g.weights(*g.pick([(3,), (1, 3), (outer, 3)]))], (outer, 3), transA=turn
        )


def einsum(g: Graph) -> None:
    name = g.tensor(2)
    shape = g.shapes[name]
    if len(shape) == 2:
        equation = g.pick(["ij->ji", "ij->i", "ij->j", "ij,ij->i", "ij,kj->ik", "ij,ij->ij"])
        sizes = {"i": shape[0], "j": shape[1], "k": shape[0]}
        left = tuple(sizes[letter] for letter in equation.split("->")[1])
        g.add("Einsum", [name] * (1 + equation.count(",")), left, equation=equation)


def binary(g: Graph) -> None:
    """Combine a tensor with another one that broadcasts, or with a constant."""
    name = g.tensor()
    shape = g.shapes[name]
    fitting = []
    for other, its in g.shapes.items():
        try:
            fitting.append((other, np.broadcast_shapes(shape, its)))
        except ValueError:
            continue
    other, result = g.pick(fitting)
    if g.pick([True, False]):
        own = tuple(g.pick([1, n]) for n in shape[g.draw(g.st.integers(0, len(shape))) :])
        other, result = g.weights(*own), shape
    if len(result) <= 4 and math.prod(result) < 5000:
        g.add(g.pick(["Add", "Mul", "Sub", "Max"]), [name, other], result)


def where(g: Graph) -> None:
    name = g.tensor()
    over = g.add("Greater", [name, g.weights()], None)
    g.add("Where", [over, name, g.weights()], g.shapes[name])


def spread(g: Graph) -> None:
    """Create ones or positions from a tensor's shape."""
    name = g.tensor()
    shape = g.shapes[name]
    whole = g.add("Shape", [name], None)
    made = g.add("Expand", [g.weights(), whole], shape)
    if g.pick([True, False]):
        axis = g.axis(name)
        size = g.add("Squeeze", [g.add("Gather", [whole, g.constant([axis])], None)], None)
        counted = g.add("Range", [g.constant(0), size, g.constant(1)], None)
        g.add("Cast", [g.pick([counted, size])], None, to=TensorProto.FLOAT)
        last = g.nodes[-1]
        g.shapes[last.output[0]] = (shape[axis],) if last.input[0] == counted else ()
        g.shapes[last.output[0]] or g.shapes.pop(last.output[0])
    g.shapes[made] = g.shapes.pop(made)


def tile(g: Graph) -> None:
    name = g.tensor()
    shape = g.shapes[name]
    if math.prod(shape) < 500:
        times = [g.pick([1, 1, 2]) for _ in shape]
        g.add("Tile", [name, g.constant(times)], tuple(a * b for a, b in zip(shape, times, strict=True)))


def pad(g: Graph) -> None:
    name = g.tensor()
    shape, axis = g.shapes[name], g.axis(name)
    if math.prod(shape) < 500:
        pads = [int(i == axis) for i in range(len(shape))] + [0] * len(shape)
        g.add("Pad", [name, g.constant(pads)], (*shape[:axis], shape[axis] + 1, *shape[axis + 1 :]))


def top_k(g: Graph) -> None:
    name = g.tensor()
    shape, axis = g.shapes[name], g.axis(name)
    g.add("TopK", [name, g.constant([1])], (*shape[:axis], 1, *shape[axis + 1 :]), 2, axis=axis)


def layer_norm(g: Graph) -> None:
    name = g.tensor(2)
    shape, axis = g.shapes[name], g.axis(name)
    g.add("LayerNormalization", [name, g.weights(*shape[axis:])], shape, axis=axis)


def batch_norm(g: Graph) -> None:
    name = g.tensor(2)
    channels = g.shapes[name][1]
    ones = g.constant(np.ones(channels), np.float32)
    g.add(
        "BatchNormalization",
        [name, g.weights(channels), g.weights(channels), g.weights(channels), ones],
        g.shapes[name],
    )


def convolve(g: Graph) -> None:
    name = g.tensor(3)
    shape = g.shapes[name]
    if len(shape) == 3:
        g.add("Conv", [name, g.weights(3, shape[1], 1)], (shape[0], 3, shape[2]))


def pool(g: Graph) -> None:
    name = g.tensor(3)
    shape = g.shapes[name]
    if len(shape) == 3:
        g.add(g.pick(["GlobalAveragePool", "GlobalMaxPool"]), [name], (*shape[:2], 1))


def recurrent(g: Graph) -> None:
    name = g.tensor(3)
    shape = g.shapes[name]
    if len(shape) == 3:
        weights = [g.weights(1, 6, shape[2]), g.weights(1, 6, 2)]
        g.add("GRU", [name, *weights], (shape[0], 1, shape[1], 2), hidden_size=2)


def reverse(g: Graph) -> None:
    name = g.tensor(2)
    shape, along = g.shapes[name], g.pick([0, 1])
    lengths = g.constant([shape[along]] * shape[1 - along])
    g.add("ReverseSequence", [name, lengths], shape, time_axis=along, batch_axis=1 - along)


def quantize(g: Graph) -> None:
    name = g.tensor()
    quantized = g.add("DynamicQuantizeLinear", [name], None, 3)
    scale, zero = quantized[:-1] + "1", quantized[:-1] + "2"
    g.add("DequantizeLinear", [quantized, scale, zero], g.shapes[name])


def one_hot(g: Graph) -> None:
    name = g.tensor()
    shape = g.shapes[name]
    if len(shape) < 4:
        axis = g.draw(g.st.integers(0, len(shape)))
        whole = g.add("Cast", [name], None, to=TensorProto.INT64)
        inputs = [whole, g.constant(3), g.constant([0, 1], np.float32)]
        g.add("OneHot", inputs, (*shape[:axis], 3, *shape[axis:]), axis=axis)


def scatter(g: Graph) -> None:
    name = g.tensor()
    shape, axis = g.shapes[name], g.axis(name)
    places = g.add("Cast", [g.add("Mul", [name, g.constant(0, np.float32)], None)], None, to=TensorProto.INT64)
    g.add("ScatterElements", [name, places, g.add("Neg", [name], shape)], shape, axis=axis)
    g.shapes.popitem()  # duplicate indices: the result is undefined


def place(g: Graph) -> None:
    """Select by positions: rows of the first axis, or elements of a flat table by strides."""
    name = g.tensor(2)
    shape = g.shapes[name]
    whole = g.add("Shape", [name], None)
    size = g.add("Gather", [whole, g.constant(0)], None)
    counted = g.add("Range", [g.constant(0), size, g.constant(1)], None)
    column = g.add("Unsqueeze", [counted, g.constant([1])], None)
    if g.pick([True, False]):
        best = g.add("ArgMax", [name], None, axis=1, keepdims=1)
        flat = g.add("Reshape", [best, g.constant([0, -1])], None)
        first = g.add("Slice", [flat, *(g.constant([n]) for n in (0, 1, 1))], None)
        g.add("GatherND", [name, g.add("Concat", [column, first], None, axis=1)], (shape[0], *shape[2:]))
        return
    stride = g.pick([shape[1], math.prod(shape[1:])])
    start = g.add("Mul", [column, g.constant(stride)], None)
    offsets = g.pick([[0], [stride - 1, 0], list(range(stride))[:4], [stride % math.prod(shape), 0]])
    index = g.add("Add", [start, g.constant([offsets])], None)
    if max(offsets) + stride * (shape[0] - 1) < math.prod(shape):
        flat = g.add("Reshape", [name, g.constant([-1])], None)
        g.add("Gather", [flat, index], (shape[0], len(offsets)))


BUILDERS: list[Callable[[Graph], None]] = [
    unary, softmax, cumsum, reduce, arg_max, transpose, reshape, reshape, reshape, flatten, unsqueeze, squeeze, concat,
    split, slice_, gather, matmul, similarity, gemm, einsum, binary, binary, binary, where, spread, tile, pad, top_k,
    layer_norm, batch_norm, convolve, pool, recurrent, reverse, quantize, one_hot, scatter, place,
]  # fmt: skip
"""Functions that add a step to a graph."""

NEEDS = {
    **dict.fromkeys([reduce, arg_max, transpose, similarity, gemm, einsum, layer_norm, batch_norm, reverse, place], 2),
    **dict.fromkeys([convolve, pool, recurrent], 3),
}
"""Minimum rank of at least one tensor."""


def grown(draw: Draw, steps: int) -> tuple[Graph, int]:
    """Return a random graph and the batch axis of its input."""
    from hypothesis import strategies as st

    rank = draw(st.integers(1, 3))
    axis = draw(st.integers(0, rank - 1))
    shape = tuple(BATCH if i == axis else draw(st.sampled_from([1, 2, 3, BATCH, 6])) for i in range(rank))
    graph = Graph(draw, shape)
    for builder in draw(st.lists(st.sampled_from(BUILDERS), min_size=1, max_size=steps)):
        if all(len(its) < NEEDS.get(builder, 1) for its in graph.shapes.values()):
            continue
        builder(graph)
    return graph, axis


MIXING: list[tuple[str, str]] = [
    ("CumSum", "input"), ("Softmax", "attribute"), ("LogSoftmax", "attribute"), ("ReduceMean", "axes"),
    ("ReduceMax", "axes"), ("flip", ""), ("DynamicQuantizeLinear", ""), ("similarity", ""),
]  # fmt: skip
"""Operators that combine elements along an axis, and the form of their axis parameter."""


def planted(draw: Draw) -> tuple[Graph, int]:
    """Return a graph that transposes its axes, then works along the batch axis, and its batch axis."""
    from hypothesis import strategies as st

    rank = draw(st.integers(2, 3))
    axis = batch = draw(st.integers(0, rank - 1))
    shape = tuple(BATCH if i == axis else draw(st.sampled_from([2, 3, BATCH])) for i in range(rank))
    g, name = Graph(draw, shape), "x"
    for _ in range(draw(st.integers(0, 3))):
        order = list(draw(st.permutations(range(rank))))
        name = g.add("Transpose", [name], tuple(g.shapes[name][i] for i in order), perm=order)
        batch = order.index(batch)
        name = g.add(g.pick(["Tanh", "Neg"]), [name], g.shapes[name])
    name = _mixed(g, name, batch)
    g.add("Tanh", [name], g.shapes[name])
    return g, axis


def _mixed(g: Graph, name: str, batch: int) -> str:
    op, how = g.pick(MIXING)
    shape = g.shapes[name]
    if how == "input":
        return g.add(op, [name, g.constant(batch)], shape)
    if how == "attribute":
        return g.add(op, [name], shape, axis=batch - g.pick([0, len(shape)]))
    if how == "axes":
        return g.add("Sub", [name, g.add(op, [name], None, axes=[batch])], shape)
    if op == "flip":
        return g.add("Slice", [name, *(g.constant([n]) for n in (-1, -(2**62), batch, -1))], shape)
    if op == "similarity":
        order = [i for i in range(len(shape)) if i != batch]
        last = g.add("Transpose", [name], None, perm=[*order, batch])
        turned = [*order[:-1], batch, order[-1]]
        rows = g.add("Transpose", [name], None, perm=turned)
        return g.add("MatMul", [rows, last], (*(shape[i] for i in order[:-1]), shape[batch], shape[batch]))
    quantized = g.add(op, [name], None, 3)
    return g.add("DequantizeLinear", [quantized, quantized[:-1] + "1", quantized[:-1] + "2"], shape)
