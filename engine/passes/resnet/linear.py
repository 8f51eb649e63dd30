"""Folding of scales and shifts per channel into the weights of Conv, ConvTranspose and Gemm.

Sums and products over a chain of nodes are computed in float64 and rounded once to the weights' dtype. Nodes are not
folded if their weights are shared, if the result exceeds the weights' dtype (overflow, or all subnormal), or if it
would vanish in float16 on devices without subnormals (:class:`engine.onnx.half_range.Loss`), which is logged.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.onnx.half_range import folded_loss
from engine.passes._library import free_name
from engine.passes.resnet.affine import Vector, constant, only_consumer, per_channel, read_affine

if TYPE_CHECKING:
    import onnx_ir as ir

_log = logging.getLogger(__name__)
_LINEAR = frozenset({"Conv", "ConvTranspose", "Gemm"})


@dataclass(frozen=True)
class _Linear:
    """Node that is linear in constant weights, with float64 copies of these, and its number of output channels."""

    node: ir.Node
    weight: Vector
    bias: Vector | None
    channels: int

    @property
    def rank(self) -> int:
        return self.weight.ndim

    def scaled(self, scale: Vector) -> Vector:
        """Return the weights with every output channel multiplied by its factor."""
        if self.node.op_type == "ConvTranspose":
            # Weights are (inputs, outputs / group, kernel); an output channel reads the inputs of its group.
            group = self.node.attributes.get_int("group", 1)
            inputs, per_group = self.weight.shape[:2]
            grouped = self.weight.reshape(group, inputs // group, per_group, -1)
            return (grouped * scale.reshape(group, 1, per_group, 1)).reshape(self.weight.shape)
        by_row = self.node.op_type == "Conv" or self.node.attributes.get_int("transB")
        return self.weight * scale.reshape(-1, *(1,) * (self.rank - 1)) if by_row else self.weight * scale


def _read_linear(node: ir.Node) -> _Linear | None:
    if node.op_type not in _LINEAR or node.domain != "":
        return None
    weight = constant(node.inputs[1])
    value = node.inputs[1]
    if weight is None or value is None or len(value.uses()) != 1 or value.is_graph_output():
        return None
    channels = _channels(node, weight)
    source = node.inputs[2] if len(node.inputs) > 2 else None
    bias = per_channel(source, channels, 2)
    if source is not None and bias is None:
        return None
    if bias is not None and node.op_type == "Gemm":
        bias = bias * node.attributes.get_float("beta", 1.0)
    return _Linear(node, weight, bias, channels)


def _channels(node: ir.Node, weight: Vector) -> int:
    rows, columns = weight.shape[:2]
    if node.op_type == "ConvTranspose":
        return int(columns * node.attributes.get_int("group", 1))
    return int(columns if node.op_type == "Gemm" and not node.attributes.get_int("transB") else rows)


def fold_after(node: ir.Node, opset: int) -> bool:
    """Fold subsequent batch norms and constant Add, Sub, Mul, Div into a linear node; return whether any was folded."""
    linear = _read_linear(node)
    if linear is None:
        return False
    scale, shift = np.ones(linear.channels), np.zeros(linear.channels)
    chain: list[ir.Node] = []
    last = node.outputs[0]
    while (follower := only_consumer(last)) is not None:
        step = read_affine(follower, last, linear.channels, linear.rank, opset)
        if step is None:
            break
        scale, shift = scale * step[0], shift * step[0] + step[1]
        chain.append(follower)
        last = follower.outputs[0]
    if not chain or not _store(linear, scale, shift):
        return False
    _bypass(node.outputs[0], chain)
    return True


def _store(linear: _Linear, scale: Vector, shift: Vector) -> bool:
    """Write folded weights and bias into the graph, if their dtype can represent them."""
    source = linear.node.inputs[1]
    if source is None or source.const_value is None:
        return False
    dtype = np.asarray(source.const_value.numpy()).dtype
    weight = rounded(linear.scaled(scale), dtype)
    bias = rounded((0.0 if linear.bias is None else linear.bias * scale) + shift, dtype)
    if weight is None or bias is None or _vanishes(linear, weight):
        return False
    _set_weight(source, weight)
    if linear.bias is not None or bias.any():
        _set_bias(linear.node, bias)
    return True


def _vanishes(linear: _Linear, weight: np.ndarray[Any, np.dtype[Any]]) -> bool:
    """Return, and log, whether folded weights would vanish in float16 and the original ones do not."""
    lost = folded_loss(linear.weight, weight)
    if lost is not None:
        _log.warning(
            "%s (%s) is not folded with its neighbours: %.0f%% of its weights would be below float16's smallest normal",
            linear.node.name or linear.node.outputs[0].name,
            linear.node.op_type,
            100 * lost.share,
        )
    return lost is not None


def rounded(exact: Vector, dtype: np.dtype[Any]) -> np.ndarray[Any, np.dtype[Any]] | None:
    """Round to a float dtype; ``None`` if the error exceeds one unit in the last place of the largest value."""
    import ml_dtypes

    with np.errstate(over="ignore", invalid="ignore"):
        result = exact.astype(dtype)
        error = np.abs(result.astype(np.float64) - exact).max(initial=0.0)
    step = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    return result if error <= step * np.abs(exact).max(initial=0.0) else None  # False for NaN


def _set_weight(value: ir.Value, array: np.ndarray[Any, np.dtype[Any]]) -> None:
    import onnx_ir as ir

    value.const_value = ir.tensor(array, name=value.name)


def _set_bias(node: ir.Node, array: np.ndarray[Any, np.dtype[Any]]) -> None:
    import onnx_ir as ir

    graph = node.graph
    if not isinstance(graph, ir.Graph):
        raise TypeError("a node with constant weights is in a graph")  # functions were inlined and have no weights
    name = free_name(graph, f"{node.outputs[0].name}_folded_bias")
    tensor = ir.tensor(array, name=name)
    value = ir.Value(name=name, shape=ir.Shape(array.shape), type=ir.TensorType(tensor.dtype), const_value=tensor)
    graph.register_initializer(value)
    node.resize_inputs(3)
    node.replace_input_with(2, value)
    if node.op_type == "Gemm":
        node.attributes["beta"] = ir.AttrFloat32("beta", 1.0)


def _bypass(value: ir.Value, chain: list[ir.Node]) -> None:
    """Replace the output of a chain of nodes by ``value``, the input of the chain, and remove the chain."""
    import onnx_ir as ir

    last = chain[-1].outputs[0]
    name, was_output = last.name, last.is_graph_output()
    value.shape, value.type = last.shape or value.shape, last.type or value.type
    ir.convenience.replace_all_uses_with(last, value, replace_graph_outputs=True)
    for node in reversed(chain):
        if node.graph is not None:
            node.graph.remove(node, safe=True)
    if was_output:
        value.name = name


def fold_before(node: ir.Node) -> bool:
    """Fold constant Mul and Div on a Conv's input into its weights (exact with padding); return whether any was."""
    linear = _read_linear(node) if node.op_type == "Conv" else None
    if linear is None:
        return False
    group = node.attributes.get_int("group", 1)
    channels = linear.weight.shape[1] * group
    scale = np.ones(channels)
    x = node.inputs[0]
    while x is not None and (step := _read_scale(x, channels, linear.rank)) is not None:
        scale, x = scale * step[0], step[1]
    if x is None or x is node.inputs[0]:
        return False
    # Weights are (outputs, inputs / group, kernel); output m reads the input channels of its group.
    outputs, per_group = linear.weight.shape[:2]
    grouped = linear.weight.reshape(group, outputs // group, per_group, -1) * scale.reshape(group, 1, per_group, 1)
    source = node.inputs[1]
    if source is None or source.const_value is None:
        return False
    weight = rounded(grouped.reshape(linear.weight.shape), np.asarray(source.const_value.numpy()).dtype)
    if weight is None or _vanishes(linear, weight):
        return False
    _set_weight(source, weight)
    node.replace_input_with(0, x)
    return True


def _read_scale(y: ir.Value, channels: int, rank: int) -> tuple[Vector, ir.Value] | None:
    """Return (scale, x) if ``y`` = scale * x, x has y's shape, and y has no other reader."""
    node = y.producer()
    if node is None or node.domain != "" or node.op_type not in {"Mul", "Div"} or only_consumer(y) is None:
        return None
    for x, other in (node.inputs, node.inputs[::-1]):
        scale = per_channel(other, channels, rank)
        if x is None or scale is None or not _same_shape(x, other, channels, rank):
            continue
        if node.op_type == "Mul":
            return scale, x
        return (1 / scale, x) if x is node.inputs[0] and scale.all() else None
    return None


def _same_shape(x: ir.Value, other: ir.Value | None, channels: int, rank: int) -> bool:
    """Return whether multiplying x by a constant of up to ``rank`` dimensions certainly keeps its shape."""
    if other is not None and other.shape is not None and list(other.shape) in ([], [1]):
        return True
    return x.shape is not None and len(x.shape) == rank and x.shape[1] == channels
