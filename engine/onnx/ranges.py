"""Which values every tensor of a model may have, when those of its inputs are known to lie within bounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, isinf, prod

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from engine.base import Array
from engine.onnx.nan_origins import may_make_nan
from engine.onnx.range_rules import ANY, BOOLEAN, FLOATS, RULES, TRUTHS, WHOLE, Inputs, Operand, Range
from engine.onnx.view import dims, subgraphs
from engine.signature import Dim

_LARGEST_CONSTANT = 2**16
"""Elements of a constant whose values are looked at; of a larger one only the type is known."""

_INDICES = frozenset(("Shape", "Size", "NonZero", "ArgMax", "ArgMin"))


@dataclass(frozen=True, slots=True)
class Assumed:
    """What holds for a call.

    Attributes:
        inputs: the values of graph inputs; what is not named may have any of its type. longest: the largest size of a
            dimension that the model leaves open. cast: what floats that are cast to whole numbers lie within, where
            nothing better is known: ``-cast`` to ``cast``.
    """

    inputs: Mapping[str, Range]
    longest: int
    cast: int


@dataclass(frozen=True, slots=True)
class Step:
    """A node, with the ranges of what it reads and writes.

    Attributes:
        given: the node with its inputs. outputs: the ranges of its outputs as unlimited numbers. kinds: their types.
        inner: the node stands in a body of If, Loop or Scan. makes_nan: it may make NaN of finite numbers.
        casts: it casts floats to whole numbers, and whether :attr:`Assumed.cast` holds is not known.
    """

    given: Inputs
    outputs: Sequence[Range]
    kinds: Sequence[int]
    inner: bool
    makes_nan: bool
    casts: bool

    @property
    def node(self) -> NodeProto:
        """The node itself."""
        return self.given.node


@dataclass
class _Scope:
    """What is known of the tensors of a graph, and of those around it."""

    ranges: dict[str, Range] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, Sequence[Dim]] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)

    def inside(self) -> _Scope:
        """Return a scope for a body."""
        return _Scope(dict(self.ranges), dict(self.kinds), dict(self.shapes), dict(self.constants))


def whole_range(kind: int) -> Range:
    """Return all values of a type."""
    if kind == TensorProto.BOOL:
        return BOOLEAN
    return Range(*WHOLE[kind]) if kind in WHOLE else ANY


def steps(graph: GraphProto, assumed: Assumed) -> list[Step]:
    """Return the nodes of a graph in order, each after those of its bodies.

    Args:
        graph: with inferred types and shapes, its nodes in topological order. assumed: what holds for a call.
    """
    return list(_walk(graph, assumed, _Scope(), inner=False))


def _walk(graph: GraphProto, assumed: Assumed, scope: _Scope, inner: bool) -> Iterator[Step]:
    for info in (*graph.input, *graph.value_info, *graph.output):
        scope.kinds[info.name] = info.type.tensor_type.elem_type
        if info.type.tensor_type.HasField("shape"):
            scope.shapes[info.name] = dims(info)
    for info in graph.input:
        scope.ranges[info.name] = whole_range(scope.kinds[info.name])
        if not inner:
            scope.ranges[info.name] = assumed.inputs.get(info.name, scope.ranges[info.name])
    for tensor in graph.initializer:
        _take_constant(scope, tensor.name, tensor)
    for node in graph.node:
        yield from _visit(node, assumed, scope, inner)


def _take_constant(scope: _Scope, name: str, tensor: TensorProto) -> None:
    scope.kinds[name], scope.shapes[name] = tensor.data_type, list(tensor.dims)
    scope.ranges[name] = whole_range(tensor.data_type)
    known = tensor.data_type in WHOLE or tensor.data_type in FLOATS or tensor.data_type == TensorProto.BOOL
    if not known or tensor.data_location == TensorProto.EXTERNAL:
        return
    small = prod(tensor.dims) <= _LARGEST_CONSTANT
    if small or tensor.data_type in WHOLE:
        array = numpy_helper.to_array(tensor)
        scope.ranges[name] = range_of(array)
        if small:
            scope.constants[name] = array


def range_of(array: Array) -> Range:
    """Return the range of an array's values."""
    if array.size == 0:
        return Range(0, 0)
    low, high = array.min().item(), array.max().item()
    return Range(low, high) if isfinite(low) and isfinite(high) else Range(ANY.low, ANY.high, infinite=True)


def _visit(node: NodeProto, assumed: Assumed, scope: _Scope, inner: bool) -> Iterator[Step]:
    branches: list[_Scope] = []
    graphs = list(subgraphs(node))
    for graph in graphs:
        branches.append(scope.inside())
        yield from _walk(graph, assumed, branches[-1], inner=True)
    operands = [_operand(scope, name) for name in node.input]
    given = Inputs(node, operands, assumed.longest)
    kinds = [_kind(scope, given, place) for place in range(len(node.output))]
    if node.op_type == "Constant" and not node.domain:
        _constant(node, scope)
        kinds = [scope.kinds[node.output[0]]]
        outputs, casts = [scope.ranges[node.output[0]]], False
    elif node.op_type == "If":
        outputs, casts = _either(graphs, branches, kinds), False
    else:
        outputs, casts = _outputs(given, kinds, assumed)
    for name, found, kind in zip(node.output, outputs, kinds, strict=True):
        scope.kinds[name] = kind
        every = whole_range(kind)
        scope.ranges[name] = found if found.within(every.low, every.high) else every
    makes_nan = not graphs and any(kind in FLOATS for kind in kinds) and may_make_nan(given)
    yield Step(given, outputs, kinds, inner, makes_nan, casts)


def _operand(scope: _Scope, name: str) -> Operand | None:
    if not name:
        return None
    kind = scope.kinds.get(name, TensorProto.UNDEFINED)
    known = scope.ranges.get(name, ANY)
    return Operand(name, known, kind, scope.shapes.get(name), scope.constants.get(name))


def _kind(scope: _Scope, given: Inputs, place: int) -> int:
    """Return the type of a node's output; where it was not inferred, what the operator suggests."""
    known = scope.kinds.get(given.node.output[place], TensorProto.UNDEFINED)
    if known:
        return known
    op = given.node.op_type
    if op in _INDICES or (op == "TopK" and place == 1):
        return TensorProto.INT64
    if op in TRUTHS:
        return TensorProto.BOOL
    if op == "Cast":
        return int(given.attribute("to", TensorProto.UNDEFINED))
    if given.node.domain not in ("", "ai.onnx"):
        kinds = [one.kind for one in given.operands if one is not None]
        return next((kind for kind in kinds if kind in FLOATS), TensorProto.UNDEFINED)
    first = given.operand(1 if op in ("Where", "CastLike") else 0)
    return TensorProto.UNDEFINED if first is None else first.kind


def _constant(node: NodeProto, scope: _Scope) -> None:
    """Take note of what a Constant node gives."""
    name = node.output[0]
    (attribute,) = node.attribute
    if attribute.name == "value":
        _take_constant(scope, name, attribute.t)
        return
    if attribute.name.startswith(("value_int", "value_float")):
        dtype = np.int64 if attribute.name.startswith("value_int") else np.float32
        array = np.asarray(helper.get_attribute_value(attribute), dtype)
        _take_constant(scope, name, numpy_helper.from_array(array))
        return
    kind = scope.kinds.get(name, TensorProto.UNDEFINED)
    scope.kinds[name], scope.ranges[name] = kind, whole_range(kind)


def _either(graphs: Sequence[GraphProto], branches: Sequence[_Scope], kinds: Sequence[int]) -> list[Range]:
    found = []
    for place, kind in enumerate(kinds):
        names = [graph.output[place].name for graph in graphs]
        every = [branch.ranges.get(name) for name, branch in zip(names, branches, strict=True)]
        known = [one for one in every if one is not None]
        found.append(known[0].joined(*known[1:]) if len(known) == len(every) and known else whole_range(kind))
    return found


def _outputs(given: Inputs, kinds: Sequence[int], assumed: Assumed) -> tuple[list[Range], bool]:
    """Return the ranges of a node's outputs, and whether what it casts has to be looked at."""
    node = given.node
    if node.domain not in ("", "ai.onnx"):
        return [whole_range(kind) for kind in kinds], False
    if node.op_type in ("Cast", "CastLike"):
        return _cast(given, kinds[0], assumed)
    rule = RULES.get(node.op_type)
    found = [whole_range(kind) for kind in kinds]
    if rule is not None and kinds:
        found[0] = rule(given)
        if node.op_type in ("Split",):
            found = [found[0]] * len(kinds)
    if node.op_type == "TopK" and len(kinds) > 1:
        found[1] = Range(0, given.longest_size(0))
    if node.op_type in ("MaxPool", "Unique", "Dropout") and len(kinds) > 1:
        found[1:] = [Range(0, given.count(0)) if kind in WHOLE else whole_range(kind) for kind in kinds[1:]]
    return found, False


def _truncated(known: Range) -> tuple[float, float]:
    low, high = (x if isinf(x) else int(x) for x in (known.low, known.high))
    return low, high


def _cast(given: Inputs, kind: int, assumed: Assumed) -> tuple[list[Range], bool]:
    first = given.operand(0)
    known, source = given.range(0), TensorProto.UNDEFINED if first is None else first.kind
    if kind == TensorProto.BOOL:
        return [BOOLEAN], False
    if source not in FLOATS or kind not in WHOLE:
        return [known], False
    every = whole_range(kind)
    low, high = max(every.low, -assumed.cast), min(every.high, assumed.cast)
    whole = Range(*_truncated(known))
    if whole.within(low, high):
        return [whole], False
    return [Range(max(low, min(whole.low, high)), min(high, max(whole.high, low)))], True
