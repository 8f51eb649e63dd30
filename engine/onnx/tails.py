"""Kind of each model output, determined from the end of the graph: logits, probabilities or labels.

The graph is followed backwards from an output through operators that only move values to the operator that determines
the kind: ``Softmax`` gives probabilities, ``ArgMax`` labels, ``Gemm`` or a convolution logits. Operators elsewhere,
such as the ``Softmax`` of an attention, are not reached. The search continues to the layer that computes the classes,
which determines their number and their axis in the output.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from engine.onnx.light import Graph, LightModel, Node, constant_at, found_at, open_light

LOGITS, PROBABILITIES, LOG_PROBABILITIES, LABELS = KINDS = ("logits", "probabilities", "log_probabilities", "labels")

Axes: TypeAlias = "tuple[int | None, ...] | None"
"""For each axis of a tensor, the corresponding axis of the output; ``None`` if unknown or removed."""


class Tail(NamedTuple):
    """Properties of an output according to the graph."""

    kind: str | None = None  # one of :data:`KINDS`; ``None`` if the graph does not determine it
    operator: str = ""  # the operator that determines the kind, or empty
    axis: int | None = None  # class axis of the output; ``None`` if unknown or missing
    classes: int | None = None  # number of classes; ``None`` if unknown
    sorted: bool = False  # values are in descending order, as from ``TopK``: their positions are not class numbers


_NOTHING = Tail()
_STEPS = 2000  # maximum number of nodes visited for one output
_DEEPEST = 40  # maximum recursion depth where several tensors are followed
_MOST_CLASSES = 1 << 24  # maximum plausible number of classes of a layer
_SAME_AXES = {"Identity", "Cast", "CastLike", "Dropout", "Clip", "QuantizeLinear", "DequantizeLinear", "Resize"}
_SAME_AXES |= {"Upsample", "Slice", "Split", "Gather", "Expand", "Pad", "com.microsoft::QuantizeLinear", "Min", "Max"}
_SAME_AXES |= {"com.microsoft::DequantizeLinear"}
_SELECTING = {"Slice", "Split", "Gather", "Pad", "Expand", "Tile"}
_MOVING = {"Transpose", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "DepthToSpace", "SpaceToDepth", "Tile"}
_AVERAGING = {"ReduceMean", "ReduceMax", "ReduceMin", "AveragePool", "MaxPool", "GlobalAveragePool", "GlobalMaxPool"}
_JOINING = {"Concat", "Mean", "Where"}
_COMPARING = {"Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal", "Not", "And", "Or"}
_QUANTIZED = "com.microsoft::QLinear"
_CONVOLUTIONS = {"Conv", "ConvTranspose", "QLinearConv", "com.microsoft::FusedConv"}
_PRODUCTS = {"Gemm", "MatMul", "com.microsoft::FusedMatMul", "com.microsoft::FusedGemm"}
_ELEMENTWISE = {"Add", "Sub", "Mul", "Div", "Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Tanh", "Softplus", "Sigmoid"}
_ELEMENTWISE |= {"HardSigmoid", "Softmax", "LogSoftmax", "Log", "Exp", "BatchNormalization", "InstanceNormalization"}
_ELEMENTWISE |= {"Round", "Neg", "Reciprocal", "LayerNormalization", "HardSwish", "Gelu", "Erf", "Sqrt"}


def output_tails(path: Path, names: Collection[str] | None = None) -> dict[str, Tail]:
    """Return the properties of the outputs (or those in ``names``) of a model file; empty if it is not ONNX."""
    try:
        with open_light(path) as model:
            return tails_of(model, names)
    except OSError:
        return {}


def tails_of(model: LightModel, names: Collection[str] | None = None) -> dict[str, Tail]:
    """Return the properties of a model's outputs by name."""
    found = {}
    for name, rank in model.graph.outputs:
        if names is None or name in names:
            axes = None if rank is None else tuple(range(rank))
            found[name] = _Walk(model, rank is None or rank > ROWS).value(model.graph, name, axes)
    return found


ROWS = 2  # rank of an output with one row per sample, whose last axis holds the classes


class _Walk:
    """Backward traversal from one output over a limited number of nodes, or (``layers``) to the classes' layer."""

    def __init__(self, model: LightModel, layers: bool) -> None:
        self._model, self._layers, self._left, self._depth = model, layers, _STEPS, 0

    def value(self, scope: Graph, name: str, axes: Axes) -> Tail:
        """Return the properties of a tensor; ``axes`` maps its axes to those of the output."""
        if self._depth >= _DEEPEST:
            return _NOTHING
        self._depth += 1
        try:
            return self._value(scope, name, axes)
        finally:
            self._depth -= 1

    def _value(self, scope: Graph, name: str, axes: Axes) -> Tail:
        whole = True  # no operator selects a part of the classes
        while (at := self._producer(scope, name)) is not None:
            scope, node, name = at
            if node.op in _SAME_AXES or node.op in _MOVING:
                if node.op in ("Min", "Max") and self._data(scope, node) is None:
                    return _NOTHING
                axes = self._moved(scope, node, axes)
                whole = whole and node.op not in _SELECTING
                name = self._data(scope, node) or node.inputs[0]
                continue
            found = self._decided(scope, node, name, axes)
            return found if whole or found.kind == LABELS else found._replace(classes=None)
        return _NOTHING

    def _producer(self, scope: Graph, name: str) -> tuple[Graph, Node, str] | None:
        """Return the node that computes a tensor, with graph and tensor name, following calls of functions."""
        while self._left > 0:
            self._left -= 1
            at = found_at(scope, name)
            if at is None or not (at[1].inputs or at[1].op == "If"):
                return None
            scope, node = at
            body = self._model.function(node, scope)
            if body is None:
                return scope, node, name
            place = node.outputs.index(name) if name in node.outputs else 0
            if place >= len(body.outputs):
                return None
            scope, name = body, body.outputs[place][0]
        return None

    def _decided(self, scope: Graph, node: Node, name: str, axes: Axes) -> Tail:
        op = node.op.removeprefix(_QUANTIZED)
        if op in ("Softmax", "LogSoftmax"):
            return self._normalised(scope, node, axes)
        if op in ("Sigmoid", "HardSigmoid"):
            return self._with_classes(PROBABILITIES, op, scope, node.inputs[0], axes)
        if op in ("ArgMax", "ArgMin"):
            return Tail(LABELS, op, None, self._chosen_from(scope, node))
        if op == "TopK":
            if node.outputs[1:2] == [name]:
                return Tail(LABELS, op)
            inner = self.value(scope, node.inputs[0], axes)
            return inner._replace(axis=None, operator="TopK", sorted=True)
        if op in _COMPARING:
            return Tail(LABELS, op, None, 2)
        if op == "If":
            return self._branches(scope, node, name, axes)
        if op in _JOINING:
            return self._joined(scope, node, axes)
        if op in _AVERAGING:
            inner = self.value(scope, node.inputs[0], self._reduced(scope, node, axes))
            return inner if inner.kind in (PROBABILITIES, LOGITS) else _NOTHING
        if op in ("Log", "Exp", "Round", "Div", "Reciprocal", "Mul"):
            found = self._computed(scope, node, axes)
            if found is not None:
                return found
        return self._linear(scope, node, axes)

    def _normalised(self, scope: Graph, node: Node, axes: Axes) -> Tail:
        """Return the properties of a ``Softmax``, whose axis is the class axis."""
        kind = LOG_PROBABILITIES if node.op == "LogSoftmax" else PROBABILITIES
        axis = node.whole("axis", -1 if self._model.opset >= 13 else 1)
        place = axes[axis] if axes is not None and -len(axes) <= axis < len(axes) else None
        made = self._made(scope, node.inputs[0], axes)
        classes = made[1] if place is not None and made[0] == place else None
        return Tail(kind, node.op.removeprefix(_QUANTIZED), place, classes)

    def _with_classes(self, kind: str, op: str, scope: Graph, name: str, axes: Axes) -> Tail:
        return Tail(kind, op, *self._made(scope, name, axes))

    def _made(self, scope: Graph, name: str, axes: Axes) -> tuple[int | None, int | None]:
        return self.classes(scope, name, axes) if self._layers else (None, None)

    def _chosen_from(self, scope: Graph, node: Node) -> int | None:
        """Return the number of classes of an ``ArgMax``."""
        for rank in (2, 4, 3, 5):  # rank of the input, confirmed by the layer that computes the classes
            axis = node.whole("axis", 0)
            axis += rank if axis < 0 else 0
            place, count = self.classes(scope, node.inputs[0], tuple(range(rank)))
            if count is not None and place == axis:
                return count
        return None

    def _branches(self, scope: Graph, node: Node, name: str, axes: Axes) -> Tail:
        """Return the common properties of both branches of an ``If``."""
        place, found = node.outputs.index(name), list[Tail]()
        for branch in ("then_branch", "else_branch"):
            lies = node.body(branch)
            if lies is None:
                return _NOTHING
            body = Graph(*lies, outer=scope)
            if place >= len(body.outputs):
                return _NOTHING
            found.append(self.value(body, body.outputs[place][0], axes))
        return _agreed(found)

    def _joined(self, scope: Graph, node: Node, axes: Axes) -> Tail:
        """Return the common properties of several tensors; constants are ignored."""
        names = node.inputs[1:] if node.op == "Where" else node.inputs
        moving = [name for name in names if constant_at(scope, name) is None]
        if node.op == "Where" and not moving:
            return Tail(LABELS, node.op)
        if not moving or (node.op == "Concat" and len(moving) < len(names)):
            return _NOTHING
        found = _agreed([self.value(scope, name, axes) for name in moving])
        return found._replace(classes=None) if node.op == "Concat" and len(names) > 1 else found

    def _computed(self, scope: Graph, node: Node, axes: Axes) -> Tail | None:
        """Return the properties of arithmetic that forms a known function; ``None`` for other arithmetic."""
        op, first = node.op, node.inputs[0]
        if op in ("Log", "Exp"):
            before, after = (PROBABILITIES, LOG_PROBABILITIES)[:: 1 if op == "Log" else -1]
            inner = self.value(scope, first, axes)
            return inner._replace(kind=after, operator=inner.operator) if inner.kind == before else _NOTHING
        if op == "Round":
            inner = self.value(scope, first, axes)
            return Tail(LABELS, op, None, 2) if inner.kind == PROBABILITIES else _NOTHING
        if op == "Mul":
            moving = [name for name in node.inputs if constant_at(scope, name) is None]
            if len(moving) == 2:
                both = [self.value(scope, name, axes) for name in moving]
                return _agreed(both) if all(one.kind == PROBABILITIES for one in both) else _NOTHING
            return None
        return self._written_out(scope, node, axes)

    def _written_out(self, scope: Graph, node: Node, axes: Axes) -> Tail | None:
        """Return the properties of decomposed softmax, e / sum(e), and sigmoid, 1 / (1 + e), with e = exp(x)."""
        below = node.inputs[-1]
        if node.op == "Div" and constant_at(scope, node.inputs[0]) is None:
            sums = self._behind(scope, below, "ReduceSum")
            above = self._behind(scope, node.inputs[0], "Exp")
            if sums is None or above is None or self._behind(sums[0], sums[1].inputs[0], "Exp") is None:
                return None
            summed = self._constant_axes(*sums)
            axis = summed[0] if summed else None
            place = axes[axis] if axes and axis is not None and -len(axes) <= axis < len(axes) else None
            made = self._made(scope, node.inputs[0], axes)
            return Tail(PROBABILITIES, "Softmax", place, made[1] if made[0] == place else None)
        sums = self._behind(scope, below, "Add")
        if sums is None:
            return None
        powers = (self._behind(sums[0], name, "Exp") for name in sums[1].inputs)
        found = next((one for one in powers if one is not None), None)
        return self._with_classes(PROBABILITIES, "Sigmoid", found[0], found[1].inputs[0], axes) if found else None

    def _behind(self, scope: Graph, name: str, op: str) -> tuple[Graph, Node] | None:
        """Return the node with this operator that computes a tensor, skipping operators that only move values."""
        for _ in range(8):
            at = found_at(scope, name)
            if at is None or at[1].op == op:
                return at
            if not (at[1].op in _SAME_AXES or at[1].op in _MOVING):
                return None
            scope, name = at[0], at[1].inputs[0]
        return None

    def _linear(self, scope: Graph, node: Node, axes: Axes) -> Tail:
        """Return logits for the result of a layer, with or without bias; the class axis in any case."""
        made, last = self._made(scope, node.outputs[0], axes), node
        if node.op in ("Add", "BatchNormalization"):
            names = node.inputs if node.op == "Add" else node.inputs[:1]
            moving = [found_at(scope, name) for name in names if constant_at(scope, name) is None]
            layers = [at[1] for at in moving if at is not None and at[1].op in (*_PRODUCTS, *_CONVOLUTIONS)]
            last = layers[0] if layers and len(layers) == len(moving) else node
        if last.op in _PRODUCTS or last.op in _CONVOLUTIONS:
            return Tail(LOGITS, last.name, *made)
        return Tail(None, "", *made)

    def classes(self, scope: Graph, name: str, axes: Axes) -> tuple[int | None, int | None]:
        """Return class axis in the output and number of classes of the layer that computes a tensor."""
        while (at := self._producer(scope, name)) is not None:
            scope, node, name = at
            if node.op in _CONVOLUTIONS or node.op in _PRODUCTS:
                axis, count = self._layer(scope, node, axes)
                return axis, count if count is not None and 0 < count <= _MOST_CLASSES else None
            if node.op in _SAME_AXES or node.op in _ELEMENTWISE:
                if node.op in _SELECTING:
                    axes = None  # the number of classes may change
                data = self._data(scope, node)
            elif node.op in _MOVING:
                axes, data = self._moved(scope, node, axes), node.inputs[0]
            elif node.op in _AVERAGING:
                axes, data = self._reduced(scope, node, axes), node.inputs[0]
            else:
                return None, None
            if axes is None or data is None:
                return None, None
            name = data
        return None, None

    def _layer(self, scope: Graph, node: Node, axes: Axes) -> tuple[int | None, int | None]:
        """Return channel axis and number of channels of a layer."""
        if not axes or len(axes) < 2:
            return None, None
        place = axes[-1] if node.op in _PRODUCTS else axes[1]
        weight = node.inputs[3 if node.op == "QLinearConv" and len(node.inputs) > 3 else min(1, len(node.inputs) - 1)]
        shape = self._shape(scope, weight)
        if not shape:
            return place, None
        if node.name in ("Gemm", "FusedGemm"):
            return place, shape[0 if node.whole("transB", 0) else -1]
        if node.op == "ConvTranspose":
            return place, shape[1] * node.whole("group", 1) if len(shape) > 1 else None
        return place, shape[0 if node.op in _CONVOLUTIONS else -1]

    def _shape(self, scope: Graph, name: str) -> tuple[int, ...] | None:
        """Return the shape of a weight that may be dequantized, cast or transposed in the graph."""
        for _ in range(6):
            constant = constant_at(scope, name)
            if constant is not None:
                return constant.shape
            at = found_at(scope, name)
            if at is None:
                return None
            scope, node = at
            if node.op == "Transpose":
                inner, order = self._shape(scope, node.inputs[0]), node.wholes("perm")
                if inner is None or (order is not None and len(order) != len(inner)):
                    return None
                return tuple(inner[i] for i in order or range(len(inner) - 1, -1, -1))
            if node.op not in ("DequantizeLinear", "QuantizeLinear", "Cast", "Identity"):
                return None
            name = node.inputs[0]
        return None

    def _data(self, scope: Graph, node: Node) -> str | None:
        """Return the first input that is not constant."""
        several = node.op in ("Add", "Sub", "Mul", "Div", "Min", "Max")
        names = node.inputs if several else node.inputs[:1]
        moving = [name for name in names if constant_at(scope, name) is None]
        if node.op in ("Min", "Max") and len(moving) > 1:
            return None
        return moving[0] if moving else None

    def _moved(self, scope: Graph, node: Node, axes: Axes) -> Axes:
        """Return the axes of a node's input, given those of its output."""
        if axes is None or node.op in _SAME_AXES:
            return axes if node.op != "Gather" else None
        if node.op == "Transpose":
            order = node.wholes("perm") or list(range(len(axes) - 1, -1, -1))
            if sorted(order) != list(range(len(axes))):
                return None
            before: list[int | None] = [None] * len(axes)
            for place, source in enumerate(order):
                before[source] = axes[place]
            return tuple(before)
        if node.op in ("Squeeze", "Unsqueeze"):
            changed = self._constant_axes(scope, node)
            if changed is None:
                return None
            return _unsqueezed(axes, changed) if node.op == "Squeeze" else _squeezed(axes, changed)
        return axes if node.op in ("DepthToSpace", "SpaceToDepth") else None

    def _reduced(self, scope: Graph, node: Node, axes: Axes) -> Axes:
        """Return the axes of the input of a reduction."""
        if axes is None or not node.op.startswith("Reduce") or node.whole("keepdims", 1):
            return axes
        gone = self._constant_axes(scope, node)
        return _unsqueezed(axes, gone) if gone is not None else None

    def _constant_axes(self, scope: Graph, node: Node) -> list[int] | None:
        """Return the axes in an attribute or a constant input; ``None`` if unknown."""
        named = node.wholes("axes")
        if named is not None or len(node.inputs) < 2:
            return named
        constant = constant_at(scope, node.inputs[1])
        return list(constant.numbers) if constant is not None and constant.numbers is not None else None


def _agreed(found: Sequence[Tail]) -> Tail:
    """Return the common properties of several tensors of one kind; differing ones are unknown."""
    first = found[0]
    if first.kind is None or any(one.kind != first.kind or one.sorted != first.sorted for one in found):
        return _NOTHING
    axis = first.axis if all(one.axis == first.axis for one in found) else None
    classes = first.classes if all(one.classes == first.classes for one in found) else None
    return first._replace(axis=axis, classes=classes)


def _unsqueezed(axes: tuple[int | None, ...], gone: Sequence[int]) -> Axes:
    """Return the axes of a tensor, given those after removing some."""
    rank = len(axes) + len(gone)
    places = {axis + rank if axis < 0 else axis for axis in gone}
    if len(places) != len(gone) or not all(0 <= place < rank for place in places):
        return None
    left = iter(axes)
    return tuple(None if place in places else next(left) for place in range(rank))


def _squeezed(axes: tuple[int | None, ...], added: Sequence[int]) -> Axes:
    """Return the axes of a tensor, given those after adding some."""
    places = {axis + len(axes) if axis < 0 else axis for axis in added}
    return tuple(axis for place, axis in enumerate(axes) if place not in places)
