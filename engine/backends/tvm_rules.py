"""Rewrites of a graph before TVM imports it, so that its values and its failures are those of ONNX Runtime.

Two kinds of nodes need one (Apache TVM 0.27):

- Comparisons. TVM's ``max(x, 0)`` is 0 for NaN, so a ``Clip`` would hide it. ``Where(x < 0, 0, x)`` does not. (``Relu``
  is a kernel of :mod:`engine.backends.tvm_schedule`, so that layouts are converted through it.)
- Indices. TVM reads and writes at any index without a check, so one beyond its table ends the process. Each is moved
  into the table, and the graph gets one more output that reports which nodes had such an index.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from engine.onnx.view import dims, replace_items
from engine.signature import Dim
from tecoinfer_modelzoo.errors import ModelError

if TYPE_CHECKING:
    from onnx import GraphProto

INDEX_ERRORS = "teco:index_errors"
"""Name of the output of index errors: int32, one element for each guarded node, 0 if all of its indices are valid."""

_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16)
_ALONG_AXIS = {"Gather": 0, "GatherElements": 0, "Scatter": 0, "ScatterElements": 0}  # with the default of ``axis``
_COORDINATES = ("GatherND", "ScatterND")


@dataclass
class Rewriter:
    """Rewrites the nodes of a graph with known shapes, in place.

    Attributes:
        guarded: names of the nodes whose indices are reported, in the order of the additional output.
    """

    model: ModelProto
    guarded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        graph = self.model.graph
        self._shapes, self._kinds = _shapes(graph), _kinds(graph)
        self._constants = {tensor.name: tensor for tensor in graph.initializer}
        self._nodes: list[NodeProto] = []
        self._errors: list[str] = []
        self._count = 0

    def rewritten(self) -> ModelProto:
        """Rewrite all nodes; return the model.

        Raise ModelError for an index into a tensor of unknown shape.
        """
        graph = self.model.graph
        for node in graph.node:
            rule = _RULES.get(node.op_type)
            if rule is None or not rule(self, node):
                self._nodes.append(node)
        if self._errors:
            self._add("Concat", self._errors, [INDEX_ERRORS], axis=0)
            shape = [len(self._errors)]
            graph.output.append(helper.make_tensor_value_info(INDEX_ERRORS, TensorProto.INT32, shape))
        replace_items(graph.node, self._nodes)
        return self.model

    # ----------------------------------------------------------------------------------------------------- helpers

    def _new(self) -> str:
        self._count += 1
        return f"teco:{self._count}"

    def _add(self, op: str, inputs: Sequence[str], outputs: Sequence[str] = (), **attributes: Any) -> str:
        made = list(outputs) or [self._new()]
        self._nodes.append(helper.make_node(op, inputs, made, f"{op}:{made[0]}", **attributes))
        return made[0]

    def _constant(self, value: Any, kind: int) -> str:
        name = self._new()
        array = np.asarray(value, helper.tensor_dtype_to_np_dtype(kind))
        self.model.graph.initializer.append(numpy_helper.from_array(array, name))
        return name

    def _is_float(self, node: NodeProto) -> bool:
        return self._kind(node.input[0]) in _FLOATS

    def _kind(self, name: str) -> int:
        return self._kinds.get(name, TensorProto.UNDEFINED)

    # ------------------------------------------------------------------------------------------- comparisons and NaN

    def clip(self, node: NodeProto) -> bool:
        """Clip: Where(x < low, low, x), and the same with the upper bound, which decides if they cross."""
        x, kind = node.input[0], self._kind(node.input[0])
        given = _attributes(node)
        bounds = [
            (op, self._constant(given[name], kind) if name in given else _input(node, i))
            for i, (op, name) in enumerate((("Less", "min"), ("Greater", "max")), 1)
        ]
        bounds = [(op, bound) for op, bound in bounds if bound]
        for i, (op, bound) in enumerate(bounds, 1):
            x = self._add("Where", [self._add(op, [x, bound]), bound, x], node.output if i == len(bounds) else ())
        if not bounds:
            self._add("Identity", [x], node.output)
        return True

    def extreme(self, node: NodeProto) -> bool:
        """Max or Min: for each further operand Where(a > b or a is NaN, a, b)."""
        found, *others = node.input
        op = "Greater" if node.op_type == "Max" else "Less"
        for i, other in enumerate(others, 1):
            first = self._add(op, [found, other])
            if self._is_float(node):
                first = self._add("Or", [first, self._add("IsNaN", [found])])
            found = self._add("Where", [first, found, other], node.output if i == len(others) else ())
        if not others:
            self._add("Identity", [found], node.output)
        return True

    def exponential(self, node: NodeProto) -> bool:
        """Elu, Celu and Selu: gamma * Where(x < 0, alpha * (exp(x / divisor) - 1), x)."""
        x, kind, given = node.input[0], self._kind(node.input[0]), _attributes(node)
        alpha = given.get("alpha", 1.67326319217681884765625 if node.op_type == "Selu" else 1.0)
        scaled = self._add("Div", [x, self._constant(alpha, kind)]) if node.op_type == "Celu" else x
        less = self._add("Sub", [self._add("Exp", [scaled]), self._constant(1, kind)])
        negative = self._add("Mul", [less, self._constant(alpha, kind)])
        gamma = given.get("gamma", 1.05070102214813232421875) if node.op_type == "Selu" else None
        chosen = [self._add("Less", [x, self._constant(0, kind)]), negative, x]
        if gamma is None:
            self._add("Where", chosen, node.output)
        else:
            self._add("Mul", [self._add("Where", chosen), self._constant(gamma, kind)], node.output)
        return True

    def hard(self, node: NodeProto) -> bool:
        """HardSigmoid: alpha * x + beta, from 0 to 1; HardSwish: x times HardSigmoid with 1/6 and 1/2."""
        x, kind, given = node.input[0], self._kind(node.input[0]), _attributes(node)
        swish = node.op_type == "HardSwish"
        alpha, beta = (1 / 6, 0.5) if swish else (given.get("alpha", 0.2), given.get("beta", 0.5))
        line = self._add("Mul", [x, self._constant(alpha, kind)])
        line = self._add("Add", [line, self._constant(beta, kind)])
        zero, one = self._constant(0, kind), self._constant(1, kind)
        line = self._add("Where", [self._add("Less", [line, zero]), zero, line])
        last = [self._add("Greater", [line, one]), one, line]
        if swish:
            self._add("Mul", [x, self._add("Where", last)], node.output)
        else:
            self._add("Where", last, node.output)
        return True

    def softplus(self, node: NodeProto) -> bool:
        """Softplus: Relu(x) + log(1 + exp(-|x|)); the importer of TVM 0.27 fails on it."""
        x, kind = node.input[0], self._kind(node.input[0])
        small = self._add("Exp", [self._add("Neg", [self._add("Abs", [x])])])
        rest = self._add("Log", [self._add("Add", [small, self._constant(1, kind)])])
        self._add("Add", [self._add("Relu", [x]), rest], node.output)
        return True

    def sign(self, node: NodeProto) -> bool:
        """Sign: NaN stays NaN."""
        x = node.input[0]
        if not self._is_float(node):
            return False
        self._add("Where", [self._add("IsNaN", [x]), x, self._add("Sign", [x])], node.output)
        return True

    def threshold(self, node: NodeProto) -> bool:
        """ThresholdedRelu: Where(x > alpha, x, 0), as ONNX Runtime: 0 for NaN."""
        x, kind = node.input[0], self._kind(node.input[0])
        above = self._add("Greater", [x, self._constant(_attributes(node).get("alpha", 1.0), kind)])
        self._add("Where", [above, x, self._constant(0, kind)], node.output)
        return True

    # -------------------------------------------------------------------------------------------------------- indices

    def guard(self, node: NodeProto) -> bool:
        """Move the indices of a node into its table, and report whether any was outside."""
        indices = node.input[1]
        if indices in self._constants:  # the runtime that folds constants checks them
            self._check_constant(node)
            return False
        sizes = self._table(node)
        if 0 in self._shapes.get(indices, ()):
            return False
        kind = self._kind(indices)
        low, high = (self._constant(bound, kind) for bound in (-sizes, sizes - 1))
        below, above = self._add("Less", [indices, low]), self._add("Greater", [indices, high])
        self._report(node, self._add("Or", [below, above]))
        inside = self._add("Where", [below, low, indices])
        node.input[1] = self._add("Where", [above, high, inside])
        self._nodes.append(node)
        return True

    def _table(self, node: NodeProto) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the number of rows that an index has: one number, or one for each coordinate."""
        table, given = self._shapes.get(node.input[0]), _attributes(node)
        if table is None:
            raise ModelError(f"node {node.name or node.output[0]!r} ({node.op_type}) has a table of unknown shape")
        if node.op_type in _ALONG_AXIS:
            return np.asarray(table[given.get("axis", 0)], np.int64)
        start = given.get("batch_dims", 0)
        count = self._shapes.get(node.input[1], (0,))[-1]
        return np.asarray(table[start : start + count], np.int64)

    def _check_constant(self, node: NodeProto) -> None:
        sizes, indices = self._table(node), numpy_helper.to_array(self._constants[node.input[1]])
        if indices.size and not ((indices >= -sizes) & (indices < sizes)).all():
            raise ModelError(f"node {node.name or node.output[0]!r} ({node.op_type}) has an index out of range")

    def _report(self, node: NodeProto, outside: str) -> None:
        flat = self._add("Reshape", [self._add("Cast", [outside], to=TensorProto.INT32), self._constant([-1], 7)])
        opset = next(one.version for one in self.model.opset_import if one.domain in ("", "ai.onnx"))
        if opset >= 18:
            self._errors.append(self._add("ReduceMax", [flat, self._constant([0], 7)], keepdims=1))
        else:
            self._errors.append(self._add("ReduceMax", [flat], axes=[0], keepdims=1))
        self.guarded.append(node.name or node.output[0])


def _input(node: NodeProto, index: int) -> str:
    return node.input[index] if len(node.input) > index else ""


def _attributes(node: NodeProto) -> dict[str, Any]:
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _shapes(graph: GraphProto) -> dict[str, tuple[int, ...]]:
    infos = (*graph.input, *graph.value_info, *graph.output)
    found = {info.name: dims(info) for info in infos if info.type.tensor_type.HasField("shape")}
    found |= {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    return {name: tuple(d for d in shape if isinstance(d, int)) for name, shape in found.items() if _is_known(shape)}


def _is_known(shape: Sequence[Dim]) -> bool:
    return all(isinstance(d, int) for d in shape)


def _kinds(graph: GraphProto) -> dict[str, int]:
    infos = (*graph.input, *graph.value_info, *graph.output)
    found = {info.name: info.type.tensor_type.elem_type for info in infos}
    return found | {tensor.name: tensor.data_type for tensor in graph.initializer}


_Rule = Callable[[Rewriter, NodeProto], bool]

_RULES: dict[str, _Rule] = {
    "Clip": Rewriter.clip,
    "Softplus": Rewriter.softplus,
    "Sign": Rewriter.sign,
    "ThresholdedRelu": Rewriter.threshold,
    **dict.fromkeys(("Max", "Min"), Rewriter.extreme),
    **dict.fromkeys(("Elu", "Celu", "Selu"), Rewriter.exponential),
    **dict.fromkeys(("HardSigmoid", "HardSwish"), Rewriter.hard),
    **dict.fromkeys((*_ALONG_AXIS, *_COORDINATES), Rewriter.guard),
}
"""Operator -> method that adds other nodes for a node and returns ``True``, or leaves the node as it is."""
