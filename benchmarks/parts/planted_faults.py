"""Injection of faults at random nodes of a model: weights scaled or swapped, attributes changed, values beyond float16.

Every faulty node changes the outputs by itself; otherwise another node is chosen. An overflow (or underflow) has two
faulty nodes: the one that writes the activations, and the one that divides them again, which reads them from float16
storage. Either of them in float16 changes the outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, helper, numpy_helper

from engine import Array
from engine.backends import HostSession
from engine.sdaa import float16_storage

LARGEST = 60_000.0
"""Weights stay below it, so that they are finite in float16; the largest activation is larger than twice 65504."""

SMALLEST = 2.0**-24
"""Smallest positive float16: products of weights with it are 0, and activations lose nearly all digits."""

PRECISION = ("overflow", "underflow", "attention")
"""Kinds that do not occur in float32; the others are errors in float32 too."""

LINEAR = ("Conv", "Gemm", "MatMul")
WEIGHTED = (*LINEAR, "ConvTranspose", "GRU", "LSTM", "RNN")
NORMS = ("BatchNormalization", "InstanceNormalization", "LayerNormalization")

LEAST = {"epsilon": 2e-4, "scaled": 1e-3, "swapped": 1e-3}
"""Default minimum difference that a fault causes, by kind."""

EPSILON = 1e-3
"""Epsilon that replaces that of a normalisation, as if an export used the framework's default."""


class Fault(NamedTuple):
    """A fault: the names of its nodes."""

    nodes: tuple[str, ...]


class Planter:
    """Injects faults into copies of a model.

    Args:
        model: unique node names, nodes in topological order.
        inputs: samples; every faulty node by itself changes the outputs on them.
        least: minimum of the mean relative L2 difference of the worst output.
    """

    def __init__(self, model: ModelProto, inputs: Sequence[Array], least: float = 0.05) -> None:
        self.model, self.inputs, self.least = model, inputs, least
        self._right = HostSession(model).run(inputs)
        self._known: dict[tuple[str, str], bool] = {}

    def plant(self, kind: str, count: int, seed: int) -> tuple[ModelProto, list[Fault]]:
        """Return a model with faults of a kind at random nodes, and the faults in graph order.

        Args:
            kind: ``overflow``, ``underflow``, ``weights``, ``scaled``, ``swapped``, ``attribute``, ``epsilon`` or
                ``attention`` (scores beyond float16).
            count: faults. seed: of the nodes; a larger count with the same seed adds nodes.
        """
        names = self.candidates(kind)
        chosen: set[str] = set()
        for i in np.random.default_rng(seed).permutation(len(names)):
            if len(chosen) < count and self._matters(kind, names[i]):
                chosen.add(names[i])
        assert len(chosen) == count, f"only {len(chosen)} of {len(names)} nodes take a fault of kind {kind!r}"
        planted = ModelProto()
        planted.CopyFrom(self.model)
        order = [node.name for node in self.model.graph.node if node.name in chosen]
        return planted, [Fault(_apply(kind, planted, name, self.inputs)) for name in order]

    def candidates(self, kind: str) -> list[str]:
        """Return the nodes that support a fault of a kind."""
        return [node.name for node in self.model.graph.node if _CANDIDATE[kind](node, self.model)]

    def _matters(self, kind: str, name: str) -> bool:
        """Return whether a fault at a node is possible, and each of its nodes changes the outputs by itself."""
        if (kind, name) not in self._known:
            trial = ModelProto()
            trial.CopyFrom(self.model)
            nodes = _apply(kind, trial, name, self.inputs)
            errors = [self._difference(kind, trial, {*nodes} - {node}) for node in nodes]
            self._known[kind, name] = min(errors, default=0.0) > LEAST.get(kind, self.least)
        return self._known[kind, name]

    def _difference(self, kind: str, model: ModelProto, float32: set[str]) -> float:
        """Return the difference of the outputs from the correct ones, in float16 storage if the fault needs it."""
        inputs = self.inputs
        if kind in PRECISION:
            model = float16_storage(model, lambda node: node.name in float32)
            inputs = [a.astype(np.float16) if a.dtype == np.float32 else a for a in inputs]
        worst = 0.0
        for ours, theirs in zip(HostSession(model).run(inputs), self._right, strict=True):
            a, b = (x.reshape(len(x), -1).astype(np.float64) for x in (ours, theirs))
            with np.errstate(invalid="ignore"):
                error = np.sqrt(((a - b) ** 2).sum(axis=1) / (b**2).sum(axis=1))
            worst = max(worst, float(np.nan_to_num(error, nan=1.0, posinf=1.0).clip(0, 1).mean()))
        return worst


# --------------------------------------------------------------------------------------------------------------- kinds


def _linear(node: NodeProto, model: ModelProto) -> bool:
    weights = {tensor.name for tensor in model.graph.initializer}
    return node.op_type in LINEAR and node.input[1] in weights and weights.issuperset(filter(None, node.input[1:]))


def _changeable(node: NodeProto, _: ModelProto) -> bool:
    return node.op_type in _CHANGES and _CHANGES[node.op_type](node) is not None


def _weighted(node: NodeProto, model: ModelProto) -> bool:
    if node.op_type not in WEIGHTED or len(node.input) < 2:
        return False
    return any(t.name == node.input[1] and t.data_type == 1 and len(t.dims) > 1 for t in model.graph.initializer)


def _scores(node: NodeProto, model: ModelProto) -> bool:
    """Return whether a node multiplies two activations, on the way to a softmax."""
    weights = {tensor.name for tensor in model.graph.initializer}
    if node.op_type != "MatMul" or weights.intersection(node.input):
        return False
    reached = set(node.output)
    for other in model.graph.node:
        if reached.intersection(other.input):
            if other.op_type == "Softmax":
                return True
            if other.op_type in ("Add", "Mul", "Div", "Where", "Reshape"):
                reached.update(other.output)
    return False


_CANDIDATE: dict[str, Callable[[NodeProto, ModelProto], bool]] = {
    "overflow": _linear,
    "underflow": _linear,
    "weights": _linear,
    "scaled": _weighted,
    "swapped": lambda node, model: bool(_twin(node, model)),
    "epsilon": lambda node, _: node.op_type in NORMS,
    "attention": _scores,
    "attribute": _changeable,
}


_FACTORS = {"weights": 1.7, "scaled": 1.1}


def _apply(kind: str, model: ModelProto, name: str, inputs: Sequence[Array]) -> tuple[str, ...]:
    """Inject a fault; return the names of its nodes, or nothing if the node does not support it."""
    node = next(node for node in model.graph.node if node.name == name)
    if kind == "attention":
        return _scaled_scores(model, node, inputs)
    if kind == "swapped":
        return _swap(model, node)
    if kind in PRECISION:
        scale = SMALLEST if kind == "underflow" else _large(model, node, inputs)
        return _there_and_back(model, node, scale) if scale else ()
    if kind in _FACTORS:
        _scale(model, node, 1, _FACTORS[kind])
        return (name,)
    change = {"epsilon": EPSILON} if kind == "epsilon" else _CHANGES[node.op_type](node)
    assert change is not None
    kept = [a for a in node.attribute if a.name not in change]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(key, value) for key, value in change.items())])
    return (name,)


def _twin(node: NodeProto, model: ModelProto) -> str:
    """Return the next node with weights of the same shape and attributes of the same values, or ""."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    if not _weighted(node, model):
        return ""
    place = [other.name for other in model.graph.node].index(node.name)
    return next((other.name for other in model.graph.node[place + 1 :] if _alike(node, other, shapes)), "")


def _alike(node: NodeProto, other: NodeProto, shapes: dict[str, tuple[int, ...]]) -> bool:
    if node.op_type != other.op_type or node.input[1] == other.input[1] or other.input[1] not in shapes:
        return False
    return _attributes(node) == _attributes(other) and shapes[node.input[1]] == shapes[other.input[1]]


def _swap(model: ModelProto, node: NodeProto) -> tuple[str, ...]:
    """Swap a node's weights with those of the next similar node."""
    other = next(one for one in model.graph.node if one.name == _twin(node, model))
    node.input[1], other.input[1] = other.input[1], node.input[1]
    return node.name, other.name


def _scaled_scores(model: ModelProto, node: NodeProto, inputs: Sequence[Array]) -> tuple[str, ...]:
    """Multiply the input of a product up to the range of float16, and divide its output; nothing if not enough."""
    factors = [float(2.0 ** np.floor(np.log2(LARGEST / _largest(model, name, inputs)))) for name in node.input]
    by = float(np.prod(factors))
    if by * _largest(model, node.output[0], inputs) < 4 * 65504:
        return ()
    place = [n.name for n in model.graph.node].index(node.name)
    out, added = node.output[0], []
    for i, factor in enumerate(factors):
        added.append(_by_constant(model, "Mul", node.input[i], factor, f"{node.name}_up{i}"))
        node.input[i] = added[-1].output[0]
    node.output[0] = f"{out}_scaled"
    model.graph.node.insert(place + 1, _by_constant(model, "Div", node.output[0], by, f"{node.name}_back", out))
    for one in reversed(added):
        model.graph.node.insert(place, one)
    return (node.name,)


def _by_constant(model: ModelProto, op: str, source: str, by: float, name: str, out: str = "") -> NodeProto:
    model.graph.initializer.append(numpy_helper.from_array(np.float32(by), f"{name}_by"))
    return helper.make_node(op, [source, f"{name}_by"], [out or f"{name}_out"], name)


def _large(model: ModelProto, node: NodeProto, inputs: Sequence[Array]) -> float:
    """Return the largest power of two that a node's weights allow; 0 if it is too small for its outputs."""
    largest = max(float(np.abs(_weight(model, name)).max()) for name in node.input[1:] if name)
    scale = float(2.0 ** np.floor(np.log2(LARGEST / largest)))
    return scale if scale * _largest(model, node.output[0], inputs) > 2 * 65504 else 0.0


def _there_and_back(model: ModelProto, node: NodeProto, scale: float) -> tuple[str, ...]:
    """Multiply weights and bias by a power of two, and divide the output of the node."""
    for i in range(1, len(node.input)):
        _scale(model, node, i, scale)
    out, back = node.output[0], f"{node.name}_back"
    node.output[0] = f"{out}_scaled"
    divide = _by_constant(model, "Div", node.output[0], scale, back, out)
    model.graph.node.insert([n.name for n in model.graph.node].index(node.name) + 1, divide)
    return node.name, back


def _largest(model: ModelProto, name: str, inputs: Sequence[Array]) -> float:
    shown = ModelProto()
    shown.CopyFrom(model)
    del shown.graph.output[:]
    shown.graph.output.append(helper.make_empty_tensor_value_info(name))
    return float(np.abs(HostSession(shown).run(inputs)[0]).max())


def _weight(model: ModelProto, name: str) -> Array:
    return numpy_helper.to_array(next(tensor for tensor in model.graph.initializer if tensor.name == name))


def _scale(model: ModelProto, node: NodeProto, i: int, factor: float) -> None:
    """Give a node its own multiplied weights, since other nodes may share the original ones."""
    name = node.input[i]
    if not name:
        return
    node.input[i] = f"{name}:{node.name}"
    scaled = _weight(model, name) * np.float32(factor)
    model.graph.initializer.append(numpy_helper.from_array(scaled, node.input[i]))


# --------------------------------------------------------------------------------------------------- other attributes

Change = dict[str, object]


def _attributes(node: NodeProto) -> Change:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute if a.type != AttributeProto.GRAPH}


def _dilated(node: NodeProto) -> Change | None:
    """Return a dilation of 2 for a 3x3 window, with the padding that keeps the shape."""
    have = _attributes(node)
    if have.get("kernel_shape") != [3, 3] or have.get("pads") != [1] * 4 or have.get("dilations", [1, 1]) != [1, 1]:
        return None
    return {"dilations": [2, 2], "pads": [2] * 4}


def _other_axis(node: NodeProto) -> Change | None:
    return {"axis": -2} if _attributes(node).get("axis") == -1 else None


_CHANGES: dict[str, Callable[[NodeProto], Change | None]] = {
    "Conv": _dilated,
    "MaxPool": _dilated,
    "Softmax": _other_axis,
    "Gemm": lambda node: {"alpha": 1.7},
    "LeakyRelu": lambda node: {"alpha": 0.6},
    "LayerNormalization": lambda node: {"epsilon": 1.0},
}
"""Attributes that can be changed without changing a shape, by operator."""
