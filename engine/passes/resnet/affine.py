"""Interpretation of nodes as ``scale * x + shift`` per channel (axis 1), with constants in float64.

All functions return ``None`` for nodes without this form.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx_ir as ir

Vector = np.ndarray[Any, np.dtype[np.float64]]

_FLOATS = frozenset({"FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16"})


def constant(value: ir.Value | None) -> Vector | None:
    """Return a value's constant floats as float64; ``None`` if it is not constant."""
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    if value.const_value.dtype.name not in _FLOATS:
        return None
    return np.asarray(value.const_value.numpy()).astype(np.float64)


def per_channel(value: ir.Value | None, channels: int, rank: int) -> Vector | None:
    """Return a constant that broadcasts along axis 1 of a tensor of rank ``rank`` as one value per channel."""
    array = constant(value)
    if array is None or array.ndim > rank:
        return None
    if array.size == 1:
        return np.full(channels, array.item())
    shape = (1,) * (rank - array.ndim) + array.shape
    return array.reshape(channels) if shape == (1, channels) + (1,) * (rank - 2) else None


def only_consumer(value: ir.Value) -> ir.Node | None:
    """Return the only reader of a value, in the same graph, if the value is not a graph output."""
    uses = value.uses()
    if len(uses) != 1 or value.is_graph_output():
        return None
    node = next(iter(uses)).node
    producer = value.producer()
    return node if producer is not None and node.graph is producer.graph else None


def read_affine(node: ir.Node, x: ir.Value, channels: int, rank: int, opset: int) -> tuple[Vector, Vector] | None:
    """Return (scale, shift) of BatchNormalization, +, -, * or / constant on ``x`` (channels on axis 1, opset 7+)."""
    if node.domain != "":
        return None
    if node.op_type == "BatchNormalization":
        return _batch_norm(node, x, channels, opset)
    if node.op_type not in {"Add", "Sub", "Mul", "Div"}:
        return None
    first = node.inputs[0] is x
    other = per_channel(node.inputs[1 if first else 0], channels, rank)
    return None if other is None else _arithmetic(node.op_type, other, first)


def _arithmetic(op_type: str, other: Vector, first: bool) -> tuple[Vector, Vector] | None:
    """Return (scale, shift) of ``x op other``, or of ``other op x`` if ``first`` is False."""
    one, zero = np.ones_like(other), np.zeros_like(other)
    if op_type == "Add":
        return one, other
    if op_type == "Sub":
        return (one, -other) if first else (-one, other)
    if op_type == "Mul":
        return other, zero
    if not first or not other.all():
        return None
    return 1 / other, zero


def _is_plain(node: ir.Node, opset: int) -> bool:
    """Return whether a batch norm scales channels by constants, and its statistics are not read."""
    per_position = opset < 9 and node.attributes.get_int("spatial", 1) != 1
    read = any(output.uses() or output.is_graph_output() for output in node.outputs[1:])
    return not (per_position or read or node.attributes.get_int("training_mode"))


def _batch_norm(node: ir.Node, x: ir.Value, channels: int, opset: int) -> tuple[Vector, Vector] | None:
    """Return (scale, shift) of an inference batch norm: gamma * (x - mean) / sqrt(variance + epsilon) + beta."""
    if node.inputs[0] is not x or not _is_plain(node, opset):
        return None
    parameters = [constant(value) for value in node.inputs[1:]]
    gamma, beta, mean, variance = parameters
    if gamma is None or beta is None or mean is None or variance is None or gamma.shape != (channels,):
        return None
    spread = variance + node.attributes.get_float("epsilon", 1e-5)
    if not (spread > 0).all():
        return None
    scale = gamma / np.sqrt(spread)
    return scale, beta - mean * scale
