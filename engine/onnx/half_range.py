"""Loss of constants in float16, and replacement of parameters that float16 cannot represent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper

from engine.onnx.view import replace_items, used_names

Array = np.ndarray[Any, np.dtype[Any]]

LARGEST, SMALLEST = float(np.finfo(np.float16).max), float(np.finfo(np.float16).smallest_normal)
"""65504, and 2**-14, the smallest normal number, which every device keeps with full precision."""

TOLERATED = 0.1
"""Maximum part of a tensor's root sum of squares in numbers below :data:`SMALLEST`.

Normally distributed weights with a standard deviation of 3e-4 just reach it; folding a batch norm with a variance of
1e7 into weights moves nearly all of them below.
"""

_LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_SCALING = ("Mul", "Div")
_SCALE_STEPS = range(7)
"""Powers of 2 by which a batch norm's scale and the square root of its variance may be raised together."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Effect of float16 on the elements of a tensor: how many become infinite or zero, or lose bits as subnormals.

    ``part`` is the share of the root sum of squares in elements that become zero or subnormal, 0 to 1.
    """

    elements: int
    infinite: int
    zero: int
    subnormal: int
    part: float

    @property
    def share(self) -> float:
        """Share of elements that are infinite, zero or subnormal, 0 to 1."""
        return (self.infinite + self.zero + self.subnormal) / max(self.elements, 1)

    @property
    def vanishes(self) -> bool:
        """Whether a device that flushes subnormals would change the tensor significantly."""
        return self.part > TOLERATED


def loss(values: Array) -> Loss:
    """Return the loss of floats of any width in float16; infinite elements count as lost."""
    with np.errstate(over="ignore"):
        half = np.asarray(values).astype(np.float16)
    size = np.abs(np.asarray(values, np.float64))
    tiny = (size < SMALLEST) & (size > 0)
    finite = np.where(np.isfinite(size), size, 0.0)
    largest = finite.max(initial=0.0) or 1.0  # scaled, because squares of tiny numbers underflow
    total = float(np.square(finite / largest).sum())
    return Loss(
        elements=half.size,
        infinite=int(np.isinf(half).sum()),
        zero=int((tiny & (half == 0)).sum()),
        subnormal=int((tiny & (half != 0)).sum()),
        part=float(np.sqrt(np.square(np.where(tiny, finite, 0.0) / largest).sum() / total)) if total else 0.0,
    )


def surely_kept(values: Array) -> bool:
    """Return whether float32 weights certainly do not vanish, faster than :func:`loss`; ``False`` means unknown.

    Even if every number were just below :data:`SMALLEST`, these would be less than :data:`TOLERATED` of the total.
    """
    flat = values.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        total = float(np.dot(flat, flat)) / 2  # halved to allow for rounding of the float32 sum
    return bool(np.isfinite(total)) and flat.size * SMALLEST**2 < TOLERATED**2 * total


def folded_loss(before: Array, after: Array) -> Loss | None:
    """Return the loss of folded weights if they vanish in float16 and did not before; else ``None``."""
    lost = loss(after)
    return lost if lost.vanishes and not loss(before).vanishes else None


def vanishing(graph: GraphProto) -> dict[str, Loss]:
    """Return node name -> loss of convolution and matrix product weights that vanish in float16."""
    constants = constant_tensors(graph)
    found: dict[str, Loss] = {}
    for node in graph.node:
        values = _floats(constants.get(node.input[1])) if node.op_type in _LINEAR and not node.domain else None
        lost = None if values is None or surely_kept(values) else loss(values)
        if lost is not None and lost.vanishes:
            found[node.name or node.output[0]] = lost
    return found


def fusion_loss_message(before: GraphProto, after: GraphProto) -> str:
    """Describe in one line the weights that vanish in float16 because batch norms were fused; "" if there are none."""
    if not any(node.op_type == "BatchNormalization" for node in before.node):
        return ""
    lost = vanishing(after)
    return "" if not lost or lost.keys() <= vanishing(before).keys() else worst_of(lost)


def worst_of(lost: Mapping[str, Loss]) -> str:
    """Describe the node whose weights lose the largest share."""
    name, worst = max(lost.items(), key=lambda item: item[1].share)
    return f"{worst.share:.0%} of the weights of {name} are below float16's smallest normal"


def constant_tensors(graph: GraphProto) -> dict[str, TensorProto]:
    """Return the constants of a graph by name: initializers, and tensors or floats of Constant nodes."""
    found = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and len(node.attribute) == 1:
            tensor = _as_tensor(node.attribute[0])
            if tensor is not None:
                found[node.output[0]] = tensor
    return found


def _as_tensor(attribute: AttributeProto) -> TensorProto | None:
    if attribute.name == "value":
        return attribute.t
    if attribute.name in ("value_float", "value_floats"):
        values = helper.get_attribute_value(attribute)
        return numpy_helper.from_array(np.asarray(values, np.float32))
    return None


def unfit(node: NodeProto, constants: Mapping[str, TensorProto], clamp: bool) -> bool:
    """Return whether a node scales by a constant beyond float16; with ``clamp`` large negative ones saturate."""
    if node.op_type not in _SCALING or node.domain:
        return False
    return any(_beyond(constants[name], clamp) for name in node.input if name in constants)


def _beyond(tensor: TensorProto, clamp: bool) -> bool:
    values = _floats(tensor)
    if values is None:
        return False
    large = (values if clamp else np.abs(values)) > LARGEST
    return bool((np.isfinite(values) & large).any()) or loss(values).vanishes


def fit_batch_norms(graph: GraphProto, keep: Callable[[NodeProto], bool]) -> set[str]:
    """Replace batch norm parameters beyond float16, in place; return first outputs of those that stay float32.

    ``scale * (x - mean) / sqrt(variance + epsilon)`` is unchanged if scale and variance shrink together: the variance
    becomes 1, or a power of 4 if the scale requires it. ``keep`` selects nodes that stay float32.
    """
    constants = constant_tensors(graph)
    left: set[str] = set()
    replaced: set[str] = set()
    for node in graph.node:
        if node.op_type != "BatchNormalization" or node.domain or keep(node):
            continue
        parameters = [_floats(constants.get(name)) for name in node.input[1:]]
        arrays = [array for array in parameters if array is not None and array.ndim == 1]
        losses = [loss(array) for array in arrays] if len(arrays) == len(parameters) else []
        if not (any(one.infinite for one in losses) or (losses and losses[3].zero + losses[3].subnormal)):
            continue  # float16 makes no parameter infinite, and keeps the bits of the variance
        fitted = _fitted(arrays, next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5))
        if fitted is None:
            left.add(node.output[0])
            continue
        for place, array in fitted.items():
            name = f"{node.input[place]}:{node.output[0]}"
            graph.initializer.append(numpy_helper.from_array(array, name))
            replaced.add(node.input[place])
            node.input[place] = name
    drop_unread(graph, replaced)
    return left


def _floats(tensor: TensorProto | None) -> Array | None:
    """Return the values of a float32 constant; ``None`` for another type or external data."""
    if tensor is None or tensor.data_type != TensorProto.FLOAT or tensor.data_location == TensorProto.EXTERNAL:
        return None
    return numpy_helper.to_array(tensor)


def _fitted(parameters: list[Array], epsilon: float) -> dict[int, Array] | None:
    """Return new scale and variance by input index, or ``None`` if float16 cannot represent any."""
    gamma, beta, mean, variance = (array.astype(np.float64) for array in parameters)
    if loss(beta).infinite or loss(mean).infinite or not (variance + epsilon > 0).all():
        return None
    exact = gamma / np.sqrt(variance + epsilon)
    roots = np.ones_like(exact)
    for _ in _SCALE_STEPS:
        roots = np.where(np.abs(exact) * roots < SMALLEST, roots * 2, roots)
    scale = exact * np.sqrt(roots**2 + epsilon)
    if loss(scale).infinite:
        return None
    return {1: scale.astype(np.float32), 4: (roots**2).astype(np.float32)}


def drop_unread(graph: GraphProto, names: Collection[str]) -> None:
    """Remove constants with these names that are not read."""
    read = {name for node in graph.node for name in used_names(node)} | {info.name for info in graph.output}
    gone = set(names) - read
    replace_items(graph.initializer, [tensor for tensor in graph.initializer if tensor.name not in gone])
    replace_items(graph.input, [info for info in graph.input if info.name not in gone])
    replace_items(graph.node, [n for n in graph.node if not gone.issuperset(n.output) or not n.output])
