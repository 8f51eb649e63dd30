"""SmoothQuant (Xiao et al., 2023): move outliers of a layer's input into its weights, which int8 represents better.

In a transformer a few channels of an activation are many times as large as the others, and one scale for all channels
leaves few int8 levels for the others. Each channel is divided by a factor that the weights are multiplied by: the
product stays the same, and both get ranges that fit 8 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.base import Array

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

ALPHA = 0.8  # share of the outliers that is moved into the weights, 0 to 1
_SMALLEST, _BOUND = 1e-5, 1e3  # lower limit of magnitudes, and limit of the ratio between a factor and the mean factor


def readers(model: ModelProto) -> dict[str, list[NodeProto]]:
    """Return the MatMul and Gemm nodes with constant weights (initializers), by the activation they read."""
    weights = {tensor.name: len(tensor.dims) for tensor in model.graph.initializer}
    found: dict[str, list[NodeProto]] = {}
    for node in model.graph.node:
        fit = node.op_type == "MatMul" or (node.op_type == "Gemm" and not _flag(node, "transA"))
        if fit and not node.domain and weights.get(node.input[1]) == 2 and node.input[0] not in weights:
            found.setdefault(node.input[0], []).append(node)
    return found


def smooth(model: ModelProto, largest: Mapping[str, Array]) -> None:
    """Smooth the activations of :func:`readers` in place.

    Args:
        model: its constants are initializers, and every node has a unique name.
        largest: by activation, the largest magnitude of each channel over the calibration samples.
    """
    from onnx import helper, numpy_helper

    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    before: dict[str, NodeProto] = {}
    for name, nodes in readers(model).items():
        arrays = [numpy_helper.to_array(weights[node.input[1]]) for node in nodes]
        factors = _factors(largest[name], [_by_channel(*both) for both in zip(nodes, arrays, strict=True)])
        model.graph.initializer.append(numpy_helper.from_array(1 / factors, f"{name}/unscale"))
        before[nodes[0].name] = helper.make_node("Mul", [name, f"{name}/unscale"], [f"{name}/smooth"], f"{name}/smooth")
        for node, array in zip(nodes, arrays, strict=True):
            scaled = np.ascontiguousarray((_by_channel(node, array) * factors[:, None]).astype(array.dtype))
            node.input[0], node.input[1] = f"{name}/smooth", f"{node.name}/weights"
            model.graph.initializer.append(numpy_helper.from_array(_by_channel(node, scaled), f"{node.name}/weights"))
    ordered = [one for node in model.graph.node for one in (before.get(node.name), node) if one is not None]
    del model.graph.node[:]
    model.graph.node.extend(ordered)


def _factors(largest: Array, weights: Sequence[Array]) -> Array:
    """Return factors of each channel's weights (channels, outputs): float32, with geometric mean 1."""
    activation = np.maximum(largest.astype(np.float64), _SMALLEST)
    weight = np.maximum(np.max([np.abs(array).max(axis=1) for array in weights], axis=0), _SMALLEST)
    factors = activation**ALPHA / weight ** (1 - ALPHA)
    factors /= np.exp(np.log(factors).mean())
    bounded: Array = np.clip(factors, 1 / _BOUND, _BOUND).astype(np.float32)
    return bounded


def _by_channel(node: NodeProto, weights: Array) -> Array:
    """Return weights with the activation's channels first, or transpose such weights back to the node's layout."""
    return weights.T if node.op_type == "Gemm" and _flag(node, "transB") else weights


def _flag(node: NodeProto, name: str) -> bool:
    return any(attribute.name == name and attribute.i for attribute in node.attribute)
