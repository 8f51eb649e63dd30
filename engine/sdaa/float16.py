"""Values on the card: float16 storage, float32 accumulation, rounded at every kernel boundary.

ONNX Runtime's CPU provider runs a plain float16 model in float32 and removes the casts between its nodes, so an
overflow on the real card would go unnoticed. This module makes a float32 graph with an explicit cast to float16 and
back after every node, and with weights and inputs rounded first; runtimes must not remove those casts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from math import prod

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from engine.backends.ort import HostSession
from engine.onnx.apart import origin
from engine.onnx.functions import inlined as _inlined
from engine.onnx.large import (
    keep_tensors,
    put_array,
)
from engine.onnx.shapes import infer_in_place
from engine.onnx.view import graph_inputs, rename_inputs, subgraphs, used_names
from engine.onnx.whole_numbers import Exact, exact_parts
from engine.onnx.widen import widen
from engine.sdaa.fills import hold_fills
from engine.sdaa.kernels import folded, inner_tensors
from engine.signature import Array

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16

_ROUNDED = ":rounded"  # end of the names of rounded constants

# Their outputs are copies or selections of their inputs: rounded inputs give rounded outputs.
EXACT_OPS = frozenset(
    {
        *("Abs", "Clip", "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GatherElements"),
        *("GatherND", "Identity", "Max", "MaxPool", "Min", "Neg", "Pad", "ReduceMax", "ReduceMin", "Relu", "Reshape"),
        *("ReverseSequence", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile"),
        *("TopK", "Transpose", "Trilu", "Unsqueeze", "Where"),
    }
)

FLOAT32_PARAMETERS: Mapping[str, tuple[int, ...]] = {
    "BatchNormalization": (1, 2, 3, 4),
    "DequantizeLinear": (1,),
    "QuantizeLinear": (1,),
    "Resize": (1, 2),
    "Upsample": (1,),
}
"""Inputs that the operator keeps in float32 for any dtype of its data: indices by operator.

A running variance is a square, beyond float16 if activations exceed 256; the kernel computes a scale and a shift from
the four parameters of a batch norm."""

SCALAR_OPS = frozenset(("Div", "Mul"))
"""Operators that take a one-element constant as an argument of the launch, in float32, as PyTorch does for half.

Stored in float16, ``x / 1e6`` would be ``x / inf``, and ``(1 - mask) * -1e9`` 0 times infinity, which is NaN."""


def float32_inputs(node: NodeProto, scalars: Collection[str]) -> tuple[int, ...]:
    """Return the indices of a node's inputs that stay float32 in float16 storage, with :func:`scalar_constants`."""
    if node.op_type in SCALAR_OPS:
        return tuple(i for i, name in enumerate(node.input) if name in scalars)
    return FLOAT32_PARAMETERS.get(node.op_type, ())


def scalar_constants(graph: GraphProto, exact: Exact | None = None) -> set[str]:
    """Return operands of products and quotients that stay float32: one-element constants, and counts.

    ``exact``: the graph's :func:`~engine.onnx.whole_numbers.exact_parts`, if they are known.
    """
    return _scalar_constants(graph) | (exact or exact_parts(graph)).divisors


def _scalar_constants(graph: GraphProto) -> set[str]:
    found = {tensor.name for tensor in graph.initializer if prod(tensor.dims) == 1}
    for node in graph.node:
        value = node.attribute[0] if node.op_type == "Constant" and len(node.attribute) == 1 else None
        if value is not None and (value.name == "value_float" or (value.name == "value" and prod(value.t.dims) == 1)):
            found.add(node.output[0])
    return found


def float16_storage(
    model: ModelProto,
    keep: Callable[[NodeProto], bool] | None = None,
    keep_inputs: Iterable[str] = (),
    wide: ModelProto | None = None,
) -> ModelProto:
    """Return a model that computes the same as the card: float16 inputs, storage and outputs.

    An If, Loop or Scan counts as one kernel: values of its body are rounded only when they leave the node.

    Args:
        model: a float32, float16 or mixed model, nodes in topological order.
        keep: returns whether a node stays float32; its outputs are rounded only where another node reads them. Nodes
        that
            compute with integers and coordinates stay float32 as well (:mod:`engine.onnx.whole_numbers`).
        keep_inputs: graph inputs that stay float32; so do inputs and outputs that hold integers.
        wide: the result of :func:`widened`, which is changed and returned; ``None``: a new one.
    """
    # The order matters: kinds are inferred on the widened graph, where every float is float32.
    halves = frozenset(tensor.name for tensor in model.graph.initializer if tensor.data_type == HALF)
    wide = widened(model) if wide is None else wide
    if hold_fills(wide.graph, keep):
        infer_in_place(wide)
    exact, narrow = exact_parts(wide.graph), _half_ends(model)
    kept_inputs = frozenset(keep_inputs) | exact.inputs - narrow
    return _Rounder(wide, exact, keeping(exact, keep), kept_inputs, exact.outputs - narrow, halves).rounded()


def exact_ends(exact: Exact, model: ModelProto) -> frozenset[str]:
    """Return the inputs and outputs that are float32 on the card, since they hold integers or coordinates.

    ``exact`` is of the widened model, with inferred types, in topological order; ``model`` is before widening.
    """
    return (exact.inputs | exact.outputs) - _half_ends(model)


def _half_ends(model: ModelProto) -> frozenset[str]:
    """Return the inputs and outputs that are float16 in a model."""
    ends = (*model.graph.input, *model.graph.output)
    return frozenset(info.name for info in ends if info.type.tensor_type.elem_type == HALF)


def keeping_exact(graph: GraphProto, keep: Callable[[NodeProto], bool] | None = None) -> Callable[[NodeProto], bool]:
    """Return the predicate of nodes that stay float32: those of ``keep``, and those that keep integers exact."""
    return keeping(exact_parts(graph), keep)


def keeping(exact: Exact, keep: Callable[[NodeProto], bool] | None) -> Callable[[NodeProto], bool]:
    """Return the same predicate for a graph whose exact parts are known."""
    return lambda node: (keep is not None and keep(node)) or not exact.written.isdisjoint(node.output)


def inlined(model: ModelProto) -> ModelProto:
    """Return a model with function calls replaced by their bodies, which contain kernels too."""
    return _inlined(model)


def widened(model: ModelProto) -> ModelProto:
    """Return :func:`widen` of a model without functions, with inferred shapes."""
    wide = widen(inlined(model))
    infer_in_place(wide)
    return wide


class _Rounder:
    """Rewrites one graph. Each float tensor has up to two forms: as written, and rounded to float16."""

    def __init__(
        self,
        model: ModelProto,
        exact: Exact,
        keep: Callable[[NodeProto], bool],
        keep_inputs: frozenset[str],
        keep_outputs: frozenset[str],
        halves: frozenset[str],
    ) -> None:
        self.model, self.keep = model, keep
        self.halves = halves  # constants that are float16 in the file: rounding them again would take most of the time
        self.graph = model.graph
        self.inputs = {info.name for info in graph_inputs(model)}
        self.keep_inputs = keep_inputs & self.inputs
        self.keep_outputs = keep_outputs - self.inputs
        self.nodes: list[NodeProto] = []
        self.exact: dict[str, str] = {}  # original name -> name of the value as written
        self.half: dict[str, str] = {}  # original name -> name of the value rounded to float16 (held as float32)
        self.constants = {tensor.name: tensor for tensor in self.graph.initializer}
        self.floats = {name for name, tensor in self.constants.items() if tensor.data_type == FLOAT}
        for info in (*self.graph.input, *self.graph.output, *self.graph.value_info):
            if info.type.tensor_type.elem_type == FLOAT:
                self.floats.add(info.name)
        self._warn_untyped()
        self.known, self.scalars = folded(self.graph), _scalar_constants(self.graph) | exact.divisors
        self.outputs = {info.name for info in self.graph.output}
        self.fused = inner_tensors(self.graph, keep) & self.floats  # tensors inside a kernel: rounded at its end

    def rounded(self) -> ModelProto:
        # Before IR 4 constants are listed among the inputs; a replaced one must not remain an input.
        inputs = graph_inputs(self.model)
        self.model.ir_version = max(self.model.ir_version, 4)
        del self.graph.input[:]
        self.graph.input.extend(inputs)
        for name in self.outputs & self.floats & self.constants.keys():  # the rounded values get their names
            self.exact[name] = self.constants[name].name = f"{name}:value"
        for info in self.graph.input:
            if info.name in self.floats and info.name not in self.keep_inputs:
                info.type.tensor_type.elem_type = HALF
                self.half[info.name] = self.exact[info.name] = self._cast(info.name, f"{info.name}:float", FLOAT)
        nodes = list(self.graph.node)
        for node in nodes:
            self._add(node)
        for name in sorted(self.outputs & self.floats - self.inputs - self.keep_outputs):
            self._cast(self._rounded(name), name, HALF)
        for name in sorted(self.keep_outputs):
            self.nodes.append(helper.make_node("Identity", [self.exact[name]], [name], f"{name}:exact"))
        for info in self.graph.output:
            if info.name in self.floats - self.keep_inputs - self.keep_outputs:
                info.type.tensor_type.elem_type = HALF
        del self.graph.node[:]
        del self.graph.value_info[:]
        self.graph.node.extend(self.nodes)
        used = {name for node in self.nodes for name in used_names(node)} | self.outputs
        keep_tensors(self.graph, lambda tensor: tensor.name in used)
        return self.model

    def _warn_untyped(self) -> None:
        """Warn about values that cannot be rounded because onnx has no schema, hence no type, for their operator."""
        typed = {info.name for info in (*self.graph.value_info, *self.graph.output)}
        untyped = {node.op_type for node in self.graph.node if not typed.issuperset(filter(None, node.output))}
        if untyped:
            warnings.warn(
                f"outputs of {', '.join(sorted(untyped))} have a type unknown to onnx and are not rounded to float16",
                stacklevel=2,
            )

    def _cast(self, source: str, target: str, to: int) -> str:
        self.nodes.append(helper.make_node("Cast", [source], [target], f"{target}:cast", to=to))
        return target

    def _rounded(self, name: str) -> str:
        """Return the name of a float value rounded to float16, created on first use."""
        if name not in self.half:
            if name in self.constants:
                self.half[name] = self._rounded_constant(self.constants[name])
            else:
                half = self._cast(self.exact.get(name, name), f"{name}:half", HALF)
                self.half[name] = self._cast(half, f"{name}:rounded", FLOAT)
        return self.half[name]

    def _rounded_constant(self, tensor: TensorProto) -> str:
        if tensor.name in self.halves:
            return tensor.name
        if tensor.data_location == TensorProto.EXTERNAL:  # rounded by the holder of the values
            kept = self.graph.initializer.add()
            kept.CopyFrom(tensor)
            kept.name = f"{tensor.name}{_ROUNDED}"
            return str(kept.name)
        values = numpy_helper.to_array(tensor)
        rounded = round_half(values)
        if _same_bits(values, rounded):
            return tensor.name
        name = f"{tensor.name}{_ROUNDED}"
        put_array(self.graph.initializer.add(), rounded, name)
        return name

    def _add(self, node: NodeProto) -> None:
        """Add a node that reads rounded values and whose outputs are rounded where they leave the kernel."""
        kept = self.keep(node) or any(True for _ in subgraphs(node)) or self._is_constant(node)
        if not kept:
            self._read_rounded(node)
        rename_inputs(node, self.exact)
        outputs = [name for name in node.output if name in self.floats]
        for i, name in enumerate(node.output):
            if name in self.outputs and name in self.floats:  # the rounded value gets its name
                node.output[i] = self.exact[name] = f"{name}:value"
        self.nodes.append(node)
        if not kept:
            self._leave_rounded(node, [name for name in outputs if name not in self.fused])

    def _is_constant(self, node: NodeProto) -> bool:
        """Return whether a node only returns or moves constants, which are rounded where a kernel reads them."""
        moves = node.op_type == "Constant" or _is_exact(node)
        return moves and self.known.issuperset(filter(None, node.output))

    def _read_rounded(self, node: NodeProto) -> None:
        parameters = float32_inputs(node, self.scalars)
        for i, name in enumerate(node.input):
            if name in self.floats and i not in parameters and name not in self.fused:
                node.input[i] = self._rounded(name)

    def _leave_rounded(self, node: NodeProto, outputs: Iterable[str]) -> None:
        """Round the outputs of a kernel, unless it only copies or selects rounded values."""
        exact = _is_exact(node) and not self.fused.intersection(node.input)
        for name in outputs:
            if exact:
                self.half[name] = self.exact.get(name, name)
            else:
                self.exact[name] = self._rounded(name)


def _is_exact(node: NodeProto) -> bool:
    sums = any(a.name == "reduction" and a.s not in (b"none", b"max", b"min") for a in node.attribute)
    return node.op_type in EXACT_OPS and not sums


def resolved(
    model: ModelProto, weights: Mapping[str, Array], spend: dict[str, Array] | None = None
) -> dict[str, Array]:
    """Return the weights that a lowered graph has apart (:mod:`engine.onnx.apart`), by their names in the graph.

    Weights that only kernels in float16 storage read are rounded. Others, and those that are not rounded by it, are not
    copied.

    Args:
        model: the graph, with the original names of weights as their locations. weights: as in the file, by name.
        spend: the same weights if they are not needed any more: rounded in place, and removed.
    """
    wanted: dict[str, list[TensorProto]] = {}
    for tensor in model.graph.initializer:
        name = origin(tensor)
        if name in weights:
            wanted.setdefault(name, []).append(tensor)
    found: dict[str, Array] = {}
    for name, tensors in wanted.items():
        values = weights[name]
        if spend is not None:
            del spend[name]
        if values.dtype == np.float16 and tensors[0].data_type == FLOAT:
            values = values.astype(np.float32)
        rounds = [tensor.name != name and tensor.name.endswith(_ROUNDED) for tensor in tensors]
        rounded = values
        if any(rounds):
            rounded = round_half(values, values if spend is not None and all(rounds) else None)
            if rounded is not values and _same_bits(values, rounded):
                rounded = values  # one copy
        found |= {one.name: rounded if half else values for one, half in zip(tensors, rounds, strict=True)}
    return found


def round_half(values: Array, out: Array | None = None) -> Array:
    """Round float32 values to the nearest float16 and back; magnitudes from 65520 become infinite.

    ONNX Runtime converts with the processor's instructions, about ten times as fast as NumPy, with the same result.
    ``out``: contiguous array of the same shape for the result, which is returned; it may be ``values``.
    """
    if values.size >= _MANY:
        result = np.empty_like(values, order="C") if out is None else out
        given, flat = np.ascontiguousarray(values).reshape(-1), result.reshape(-1)
        for start in range(0, flat.size, _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            _casting_session().run_into([given[part]], [flat[part]])
        return result
    with np.errstate(over="ignore"):
        rounded: Array = values.astype(np.float16).astype(np.float32)
    if out is None:
        return rounded
    out[...] = rounded
    return out


_AT_ONCE = 2**18  # values that are rounded at once: they fit the second-level cache of most processors


_MANY = 2**16  # values from which a session is opened to round them


@lru_cache(maxsize=1)
def _casting_session() -> HostSession:
    casts = [helper.make_node("Cast", ["x"], ["half"], to=HALF), helper.make_node("Cast", ["half"], ["y"], to=FLOAT)]
    ends = [helper.make_tensor_value_info(name, FLOAT, ["values"]) for name in ("x", "y")]
    graph = helper.make_graph(casts, "round_half", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return HostSession(model, threads=1, optimised=False)  # optimisation removes casts


def _same_bits(one: Array, other: Array) -> bool:
    """Return whether float32 arrays of one shape are equal bit by bit; most differ at their beginning."""
    a, b = (np.ascontiguousarray(array).reshape(-1).view(np.int32) for array in (one, other))
    return bool((a[:_MANY] == b[:_MANY]).all() and (a == b).all())
