"""Value ranges of all tensors of a model, computed from bounds of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, isinf, prod

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

from engine.base import Array
from engine.onnx.range_rules import (
    ANY,
    BOOLEAN,
    EXP_HIGHEST,
    FLOATS,
    INF,
    KEEPING,
    RULES,
    TRUTHS,
    WHOLE,
    Inputs,
    Operand,
    Range,
    exponent,
)
from engine.onnx.view import dims, subgraphs
from engine.signature import Dim

_LARGEST_CONSTANT = 2**16
"""Maximum number of elements of a constant whose values are examined; of larger ones only the type is used."""

_INDICES = frozenset(("Shape", "Size", "NonZero", "ArgMax", "ArgMin"))


@dataclass(frozen=True, slots=True)
class Assumed:
    """Assumptions about a call."""

    inputs: Mapping[str, Range]  # ranges of graph inputs; inputs without an entry may have any value of their type
    longest: int  # maximum size of a dynamic dimension
    cast: int  # floats that are cast to integers are within ``-cast`` to ``cast``, unless their range is known


@dataclass(frozen=True, slots=True)
class Step:
    """A node with the ranges of its inputs and outputs."""

    given: Inputs
    outputs: Sequence[Range]  # ranges of the outputs as unbounded numbers
    kinds: Sequence[int]  # types of the outputs
    inner: bool  # the node is in a body of If, Loop or Scan
    makes_nan: bool  # it may produce NaN from finite numbers
    casts: bool  # it casts floats to integers, relying on :attr:`Assumed.cast`

    @property
    def node(self) -> NodeProto:
        """The node."""
        return self.given.node


@dataclass
class _Scope:
    """Known properties of the tensors of a graph and of the enclosing graphs."""

    ranges: dict[str, Range] = field(default_factory=dict)
    kinds: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, Sequence[Dim]] = field(default_factory=dict)
    constants: dict[str, Array] = field(default_factory=dict)

    def inside(self) -> _Scope:
        """Return a scope for a body."""
        return _Scope(dict(self.ranges), dict(self.kinds), dict(self.shapes), dict(self.constants))


def whole_range(kind: int) -> Range:
    """Return the range of a type."""
    if kind == TensorProto.BOOL:
        return BOOLEAN
    return Range(*WHOLE[kind]) if kind in WHOLE else ANY


def steps(graph: GraphProto, assumed: Assumed) -> list[Step]:
    """Return the nodes of a sorted graph with inferred types and shapes, each after those of its bodies."""
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
    numeric = tensor.data_type in WHOLE or tensor.data_type in FLOATS or tensor.data_type == TensorProto.BOOL
    if not numeric or tensor.data_location == TensorProto.EXTERNAL:
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
    return Operand(name, scope.ranges.get(name, ANY), kind, scope.shapes.get(name), scope.constants.get(name))


def _kind(scope: _Scope, given: Inputs, place: int) -> int:
    """Return the type of a node's output; if it was not inferred, the one that the operator suggests."""
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
    """Record the value of a Constant node."""
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
    """Return the ranges of a node's outputs, and whether its cast relies on the assumption."""
    node = given.node
    if node.domain not in ("", "ai.onnx"):
        return [whole_range(kind) for kind in kinds], False
    if node.op_type in ("Cast", "CastLike"):
        return _cast(given, kinds[0], assumed)
    rule = RULES.get(node.op_type)
    found = [whole_range(kind) for kind in kinds]
    if rule is not None and kinds:
        found[0] = rule(given)
        if node.op_type == "Split":
            found = [found[0]] * len(kinds)
    if node.op_type == "TopK" and len(kinds) > 1:
        found[1] = Range(0, given.longest_size(0))
    if node.op_type in ("MaxPool", "Unique", "Dropout") and len(kinds) > 1:
        found[1:] = [Range(0, given.count(0)) if kind in WHOLE else whole_range(kind) for kind in kinds[1:]]
    return found, False


def _cast(given: Inputs, kind: int, assumed: Assumed) -> tuple[list[Range], bool]:
    first = given.operand(0)
    known, source = given.range(0), TensorProto.UNDEFINED if first is None else first.kind
    if kind == TensorProto.BOOL:
        return [BOOLEAN], False
    if source not in FLOATS or kind not in WHOLE:
        return [known], False
    every = whole_range(kind)
    low, high = max(every.low, -assumed.cast), min(every.high, assumed.cast)
    ends = [x if isinf(x) else int(x) for x in (known.low, known.high)]
    whole = Range(ends[0], ends[1])
    if whole.within(low, high):
        return [whole], False
    return [Range(max(low, min(whole.low, high)), min(high, max(whole.high, low)))], True


_LEAST_DIVISOR = 1e-20  # smallest divisor for which ordinary numbers stay in the range of float32
_LOSSLESS_POWERS = (0.0, 1.0, 2.0, 3.0, 4.0)  # exponents of Pow that are computed as products


def _is_nearly_zero(a: Range) -> bool:
    return a.low < _LEAST_DIVISOR and a.high > -_LEAST_DIVISOR


def _divides_by_zero(i: Inputs) -> bool:
    return not i.is_whole() and _is_nearly_zero(i.range(1))


def _may_overflow(i: Inputs) -> bool:
    return i.range(0).high > EXP_HIGHEST


def _outside(low: float, high: float) -> Callable[[Inputs], bool]:
    return lambda i: not i.range(0).within(low, high)


def _power_is_not_safe(i: Inputs) -> bool:
    if i.is_whole() or exponent(i) in _LOSSLESS_POWERS:
        return False
    power = exponent(i)
    return power is None or power < 0 or power > max(_LOSSLESS_POWERS) or i.range(0).low < 0


def _has_no_epsilon(i: Inputs) -> bool:
    return bool(i.attribute("epsilon", 1e-5) <= 0)


_NAN_SOURCES: Mapping[str, Callable[[Inputs], bool]] = {
    "Div": _divides_by_zero,
    "Mod": _divides_by_zero,
    "Pow": _power_is_not_safe,
    "Exp": _may_overflow,
    "Log": lambda i: i.range(0).low <= 0,
    "Sqrt": lambda i: i.range(0).low < 0,
    "Reciprocal": lambda i: _is_nearly_zero(i.range(0)),
    "ReduceLogSum": lambda i: i.range(0).low <= 0,
    "Sinh": _outside(-EXP_HIGHEST, EXP_HIGHEST),
    "Cosh": _outside(-EXP_HIGHEST, EXP_HIGHEST),
    "Acos": _outside(-1, 1),
    "Asin": _outside(-1, 1),
    "Acosh": _outside(1, INF),
    "Atanh": _outside(-0.999, 0.999),
    "BatchNormalization": lambda i: i.range(4).low + i.attribute("epsilon", 1e-5) <= 0,
    "ReduceLogSumExp": _may_overflow,
    "ReduceProd": lambda i: True,
    **dict.fromkeys(("LayerNormalization", "InstanceNormalization", "GroupNormalization"), _has_no_epsilon),
    **dict.fromkeys(("RMSNormalization", "MeanVarianceNormalization"), _has_no_epsilon),
    "LpNormalization": lambda i: True,
}

_INFINITY_SAFE = frozenset(
    {
        *KEEPING,
        *TRUTHS,
        *("Where", "Concat", "Pad", "Max", "Min", "Clip", "Neg", "Abs", "Cast", "CastLike", "Relu", "Constant"),
        *("ScatterElements", "ScatterND", "Trilu", "ConstantOfShape", "Sigmoid", "Tanh", "Shape", "Size", "Erf"),
    }
) - {"ReduceMean", "GlobalAveragePool"}
"""Operators that do not turn an infinity into NaN."""


def may_make_nan(i: Inputs) -> bool:
    """Return whether an operator may turn finite numbers into NaN or infinity, or a constant's infinity into NaN.

    ``True`` for operators of other domains. Overflow of products and sums is not considered.
    """
    if i.node.domain not in ("", "ai.onnx"):
        return True
    infinite = [r for r in i.ranges() if r.infinite]
    op = i.node.op_type
    if infinite and op not in _INFINITY_SAFE and not (op in ("Add", "Sub") and len(infinite) == 1):
        return True
    source = _NAN_SOURCES.get(op)
    return source is not None and source(i)
