"""LSTM, GRU and RNN as plain operators, for compilers that lack the recurrent operators.

The formulas are those of the ONNX specification of the operators (https://onnx.ai/onnx/operators, LSTM-14, GRU-14 and
RNN-14). The product of the inputs with their weights is one ``MatMul`` for all time steps; each step then multiplies
the state with the recurrent weights. The steps are a group of nodes each, or one node (:data:`LOOP`) for a compiler
that has a loop for it: the time to compile a group of nodes per step grows with the length of the sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper

from engine.onnx.large import copy_model
from engine.onnx.view import dims, replace_items
from engine.signature import Array
from tecoinfer_modelzoo.errors import ModelError

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, ValueInfoProto

GATES: Mapping[str, int] = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""Recurrent operators, and their number of gates."""

MOST_STEPS = 4096
"""Most time steps that become nodes, summed over recurrent nodes and their directions; each becomes 10 to 20 nodes."""

LOOP, LOOP_DOMAIN = "TecoRecurrence", "teco"
"""Operator of all time steps of one direction; no runtime has it.

Inputs: the inputs' product with their weights and biases (steps, samples, gates * hidden); transposed recurrent weights
(hidden, gates * hidden); the first state (1, samples, hidden); that of the cell, for LSTM; the sequence lengths; the
recurrent bias of the GRU's hidden gate (hidden). Absent ones are "". Outputs: the states of all steps (steps, samples,
hidden), the last state, and that of the cell for LSTM. Attributes: ``kind`` (one of :data:`GATES`), ``backwards``, and
``after``, 1 if a GRU multiplies its reset gate after the product with the weights.
"""

_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}
_PLAIN = frozenset(("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh"))  # activations without parameters


def unrolled(model: ModelProto, loops: bool = False) -> ModelProto:
    """Return a model in which LSTM, GRU and RNN of the main graph are plain operators; itself if it has none.

    Args:
        model: with a known shape for the first input (time steps, samples, features) and the weights of each such node;
            not changed.
        loops: the time steps of a layer are one node :data:`LOOP` if it has the default activations, no peepholes and
            no coupled gates; the others are groups of nodes.

    Raise ModelError for shapes that are unknown, more than :data:`MOST_STEPS` time steps, and attributes that are not
    supported: ``clip``, activations with parameters, ``layout`` 1, which ONNX Runtime does not support either.
    """
    if not any(_is_recurrent(node) for node in model.graph.node):
        return model
    result = copy_model(model)
    graph = result.graph
    shapes = _shapes(graph)
    kinds = {info.name: info.type.tensor_type.elem_type for info in (*graph.input, *graph.value_info)}
    kinds |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    names = _Names(graph)
    nodes: list[NodeProto] = []
    steps = 0
    for node in graph.node:
        if not _is_recurrent(node):
            nodes.append(node)
            continue
        layer = _Layer(node, shapes, kinds.get(node.input[0], TensorProto.FLOAT), names, loops)
        steps += 0 if layer.loops else layer.steps * layer.directions
        if steps > MOST_STEPS:
            raise ModelError(
                f"its recurrent operators have more than {MOST_STEPS} time steps in total; pass shorter sequences"
            )
        nodes += layer.expanded()
        graph.initializer.extend(layer.constants)
        graph.value_info.extend(layer.infos)
    replace_items(graph.node, nodes)
    if any(node.op_type == LOOP for node in nodes):
        result.opset_import.add(domain=LOOP_DOMAIN, version=1)
    return result


def _is_recurrent(node: NodeProto) -> bool:
    return node.op_type in GATES and node.domain in ("", "ai.onnx")


def _shapes(graph: GraphProto) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {info.name: dims(info) for info in (*graph.input, *graph.value_info, *graph.output)}
    return found | {tensor.name: list(tensor.dims) for tensor in graph.initializer}


class _Names:
    """Makes names that a graph does not have."""

    def __init__(self, graph: GraphProto) -> None:
        self._used = {name for node in graph.node for name in (*node.input, *node.output)}
        self._count = 0

    def new(self, prefix: str) -> str:
        while True:
            self._count += 1
            name = f"{prefix}:{self._count}"
            if name not in self._used:
                return name


@dataclass
class _Weights:
    """Tensors of one direction by name: ``x`` and ``r`` are transposed weights, the others vectors; "" if absent."""

    x: str
    r: str
    bias: str  # added to the inputs' product, of all gates
    hidden_bias: str  # of the GRU's hidden gate with ``linear_before_reset``
    peepholes: list[str] = field(default_factory=list)  # of the LSTM: input, output, forget


class _Layer:
    """One recurrent node. States keep the axis of time steps: (1, samples, hidden)."""

    def __init__(
        self, node: NodeProto, shapes: Mapping[str, list[Any]], kind: int, names: _Names, loops: bool = False
    ) -> None:
        self.node, self.op, self.kind = node, node.op_type, kind
        self._names, self.nodes, self.constants = names, list[NodeProto](), list[TensorProto]()
        self.infos: list[ValueInfoProto] = []
        self._dtype = helper.tensor_dtype_to_np_dtype(kind)
        self._attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self._who = f"node {node.name or node.output[0]!r} ({self.op})"
        self._take_shapes(shapes)
        self._check()
        usual = self._activations == list(_DEFAULTS[self.op]) * self.directions
        self.loops = loops and usual and not self._input(7) and not self._attributes.get("input_forget", 0)

    def _take_shapes(self, shapes: Mapping[str, list[Any]]) -> None:
        x, r = shapes.get(self.node.input[0], []), shapes.get(self.node.input[2], [])
        if len(x) != 3 or len(r) != 3 or not all(isinstance(d, int) for d in (*x, *r)):
            raise ModelError(f"{self._who}: the shapes of its inputs are not known, so its time steps are not either")
        self.steps, self.samples, self.features = x
        self.directions, self.hidden = r[0], r[2]
        if not self.steps:
            raise ModelError(f"{self._who} has no time steps")

    def _check(self) -> None:
        given = self._attributes
        refused = [name for name in ("clip", "layout", "activation_alpha", "activation_beta") if given.get(name)]
        names = [name.decode() for name in given.get("activations", ())]
        self._activations = names or list(_DEFAULTS[self.op]) * self.directions
        refused += [f"activation {name}" for name in self._activations if name not in _PLAIN]
        if refused:
            raise ModelError(f"{self._who}: {refused[0]} is not supported")

    # --------------------------------------------------------------------------------------------- parts of a graph

    def _add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        made = [self._names.new(self.node.output[0] or self.op) for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, made, made[0], **attributes))
        return made[0] if outputs == 1 else made

    def _constant(self, array: Array) -> str:
        name = self._names.new(self.op)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def _ints(self, *values: int) -> str:
        return self._constant(np.array(values, np.int64))

    def _slice(self, name: str, axis: int, start: int, stop: int) -> str:
        return str(self._add("Slice", name, self._ints(start), self._ints(stop), self._ints(axis)))

    def _of_direction(self, name: str, direction: int) -> str:
        """Return the part of a tensor whose first axis are the directions, without that axis."""
        part = self._slice(name, 0, direction, direction + 1) if self.directions > 1 else name
        return str(self._add("Squeeze", part, self._ints(0)))

    def _split(self, name: str, count: int, axis: int, size: int) -> list[str]:
        if count == 1:
            return [name]
        return list(self._add("Split", name, self._ints(*[size] * count), outputs=count, axis=axis))

    def _input(self, index: int) -> str:
        return str(self.node.input[index]) if len(self.node.input) > index else ""

    def _activation(self, direction: int, which: int, name: str) -> str:
        per_direction = len(_DEFAULTS[self.op])
        return str(self._add(self._activations[direction * per_direction + which], name))

    # -------------------------------------------------------------------------------------------------- whole layers

    def expanded(self) -> list[NodeProto]:
        """Return the nodes that compute the layer's outputs under their names."""
        lens = self._input(4)
        self._masks = self._masks_of(lens) if lens and not self.loops else []
        reverse = {b"forward": [False], b"reverse": [True], b"bidirectional": [False, True]}
        backwards = reverse[self._attributes.get("direction", b"forward")]
        sides = [self._direction(i, back) for i, back in enumerate(backwards)]
        every, *last = zip(*sides, strict=True)
        # (steps, samples, hidden) of each direction -> (steps, directions, samples, hidden)
        widened = [str(self._add("Unsqueeze", one, self._ints(1))) for one in every]
        for index, (parts, axis) in enumerate([(widened, 1), *((list(one), 0) for one in last)]):
            name = self.node.output[index] if len(self.node.output) > index else ""
            if name:
                node = helper.make_node("Identity", parts, [name], f"{name}:one")
                if len(parts) > 1:
                    node = helper.make_node("Concat", parts, [name], f"{name}:all", axis=axis)
                self.nodes.append(node)
        return self.nodes

    def _masks_of(self, lens: str) -> list[str]:
        """Return for each time step whether it is within each sample's length: (1, samples, 1)."""
        wide = self._add("Cast", lens, to=TensorProto.INT64)
        column = self._add("Reshape", wide, self._ints(1, self.samples, 1))
        return [str(self._add("Less", self._ints(step), column)) for step in range(self.steps)]

    def _direction(self, direction: int, backwards: bool) -> tuple[str, ...]:
        """Return the states of all time steps, the last state, and that of the cell for LSTM."""
        weights = self._weights(direction)
        products = self._add("MatMul", self.node.input[0], weights.x)
        if weights.bias:
            products = self._add("Add", products, weights.bias)
        width = GATES[self.op] * self.hidden
        assert width  # noqa: S101 -- a layer without hidden values has no weights, which the runtime refuses
        states = [self._initial(5, direction)] + ([self._initial(6, direction)] if self.op == "LSTM" else [])
        if self.loops:
            return self._loop(weights, products, states, backwards)
        inputs = self._split(products, self.steps, 0, 1)
        step_of: dict[str, Callable[..., list[str]]] = {"LSTM": self._lstm, "GRU": self._gru, "RNN": self._rnn}
        shown: list[str] = [""] * self.steps
        for step in reversed(range(self.steps)) if backwards else range(self.steps):
            found = step_of[self.op](direction, weights, inputs[step], *states)
            shown[step] = found[0]
            if self._masks:
                mask = self._masks[step]
                zero = self._constant(np.zeros((), self._dtype))
                shown[step] = str(self._add("Where", mask, found[0], zero))
                found = [str(self._add("Where", mask, new, old)) for new, old in zip(found, states, strict=True)]
            states = found
        every = self._add("Concat", *shown, axis=0) if self.steps > 1 else shown[0]
        return (str(every), *states)

    def _loop(self, weights: _Weights, products: str, states: list[str], backwards: bool) -> tuple[str, ...]:
        """Add one node for all time steps; return its outputs."""
        cell = states[1] if len(states) > 1 else ""
        given = [products, weights.r, states[0], cell, self._input(4), weights.hidden_bias]
        attributes = {"kind": self.op, "backwards": int(backwards), "after": int(self._after)}
        made = self._add(LOOP, *given, outputs=1 + len(states), domain=LOOP_DOMAIN, **attributes)
        for name, steps in zip(made, (self.steps, *[1] * len(states)), strict=True):
            shape = [steps, self.samples, self.hidden]
            self.infos.append(helper.make_tensor_value_info(name, self.kind, shape))
        return tuple(made)

    @property
    def _after(self) -> bool:
        return self.op == "GRU" and bool(self._attributes.get("linear_before_reset", 0))

    def _initial(self, index: int, direction: int) -> str:
        """Return a state before the first step: (1, samples, hidden)."""
        name = self._input(index)
        if not name:
            return self._constant(np.zeros((1, self.samples, self.hidden), self._dtype))
        return self._slice(name, 0, direction, direction + 1) if self.directions > 1 else name

    def _weights(self, direction: int) -> _Weights:
        x, r = (
            str(self._add("Transpose", self._of_direction(self.node.input[i], direction), perm=[1, 0])) for i in (1, 2)
        )
        bias, hidden_bias = self._biases(direction)
        peepholes: list[str] = []
        if self.op == "LSTM" and self._input(7):
            peepholes = self._split(self._of_direction(self._input(7), direction), 3, 0, self.hidden)
        return _Weights(x, r, bias, hidden_bias, peepholes)

    def _biases(self, direction: int) -> tuple[str, str]:
        """Return what is added to the inputs' product, and the recurrent bias that a GRU multiplies with its reset."""
        if not self._input(3):
            return "", ""
        width = GATES[self.op] * self.hidden
        both = self._of_direction(self._input(3), direction)
        of_input, of_state = self._split(both, 2, 0, width)
        if not self._after:
            return str(self._add("Add", of_input, of_state)), ""
        gates = self._slice(of_state, 0, 0, 2 * self.hidden)
        none = self._constant(np.zeros(self.hidden, self._dtype))
        padded = self._add("Concat", gates, none, axis=0)
        return str(self._add("Add", of_input, padded)), self._slice(of_state, 0, 2 * self.hidden, width)

    # --------------------------------------------------------------------------------------------------- single steps

    def _rnn(self, direction: int, weights: _Weights, inputs: str, state: str) -> list[str]:
        total = self._add("Add", inputs, self._add("MatMul", state, weights.r))
        return [self._activation(direction, 0, total)]

    def _lstm(self, direction: int, weights: _Weights, inputs: str, state: str, cell: str) -> list[str]:
        total = self._add("Add", inputs, self._add("MatMul", state, weights.r))
        entering, leaving, forgetting, new = self._split(total, 4, 2, self.hidden)
        holes = weights.peepholes

        def gate(name: str, hole: int, of: str) -> str:
            seen = self._add("Add", name, self._add("Mul", of, holes[hole])) if holes else name
            return self._activation(direction, 0, seen)

        i = gate(entering, 0, cell)
        one = self._constant(np.ones((), self._dtype))
        f = self._add("Sub", one, i) if self._attributes.get("input_forget", 0) else gate(forgetting, 2, cell)
        c = self._activation(direction, 1, new)
        cell = str(self._add("Add", self._add("Mul", f, cell), self._add("Mul", i, c)))
        o = gate(leaving, 1, cell)
        return [str(self._add("Mul", o, self._activation(direction, 2, cell))), cell]

    def _gru(self, direction: int, weights: _Weights, inputs: str, state: str) -> list[str]:
        size = self.hidden
        both = [self._slice(inputs, 2, 0, 2 * size), self._slice(inputs, 2, 2 * size, 3 * size)]
        recurrent = [self._slice(weights.r, 1, 0, 2 * size), self._slice(weights.r, 1, 2 * size, 3 * size)]
        total = self._add("Add", both[0], self._add("MatMul", state, recurrent[0]))
        z, r = self._split(self._activation(direction, 0, total), 2, 2, size)
        if self._after:
            hidden = self._add("MatMul", state, recurrent[1])
            hidden = self._add("Add", hidden, weights.hidden_bias) if weights.hidden_bias else hidden
            hidden = self._add("Mul", r, hidden)
        else:
            hidden = self._add("MatMul", self._add("Mul", r, state), recurrent[1])
        new = self._activation(direction, 1, self._add("Add", both[1], hidden))
        one = self._constant(np.ones((), self._dtype))
        kept = self._add("Mul", z, state)
        return [str(self._add("Add", self._add("Mul", self._add("Sub", one, z), new), kept))]


def recurrent_operators(nodes: Sequence[NodeProto]) -> set[str]:
    """Return the recurrent operators among nodes and their bodies."""
    found = {node.op_type for node in nodes if _is_recurrent(node)}
    for node in nodes:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                found |= recurrent_operators(attribute.g.node)
    return found
