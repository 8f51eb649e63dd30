"""Constants against float16's range: what they lose there, and what a float16 file must not hold as it is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, helper, numpy_helper

from engine.onnx.view import used_names

Array = np.ndarray[Any, np.dtype[Any]]

LARGEST, SMALLEST = float(np.finfo(np.float16).max), float(np.finfo(np.float16).smallest_normal)
"""65504, and 2**-14, the smallest number that float16 holds with all its bits and that every device keeps."""

TOLERATED = 0.1
"""Largest part of a tensor's size (its root sum of squares) that may lie in numbers below :data:`SMALLEST`.

Normally distributed weights of a standard deviation of 3e-4 are just there; folding a batch norm with a variance of 1e7
into weights takes nearly all of them below.
"""

_LINEAR = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_SCALING = ("Mul", "Div")
_STEPS = range(7)
"""Powers of 2 by which a batch norm's scale may be raised, its square root of the variance being raised with it."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What a tensor's numbers become in float16.

    Attributes:
        elements: how many there are.
        infinite: become infinite. zero: become 0, and are not. subnormal: lose bits, and are 0 on devices that flush.
        part: of the tensor's size (root sum of squares), what lies in numbers that are zero or subnormal; 0 to 1.
    """

    elements: int
    infinite: int
    zero: int
    subnormal: int
    part: float

    @property
    def share(self) -> float:
        """The share of elements that are not kept, 0 to 1."""
        return (self.infinite + self.zero + self.subnormal) / max(self.elements, 1)

    @property
    def vanishes(self) -> bool:
        """Whether a device that flushes subnormals would change the tensor as a whole."""
        return self.part > TOLERATED


def loss(values: Array) -> Loss:
    """Return what float numbers of any width lose in float16; what is infinite before is lost, too."""
    with np.errstate(over="ignore"):
        half = np.asarray(values).astype(np.float16)
    size = np.abs(np.asarray(values, np.float64))
    tiny = (size < SMALLEST) & (size > 0)
    finite = np.where(np.isfinite(size), size, 0.0)
    largest = finite.max(initial=0.0) or 1.0  # squares of tiny numbers would be 0
    total = float(np.square(finite / largest).sum())
    return Loss(
        elements=half.size,
        infinite=int(np.isinf(half).sum()),
        zero=int((tiny & (half == 0)).sum()),
        subnormal=int((tiny & (half != 0)).sum()),
        part=float(np.sqrt(np.square(np.where(tiny, finite, 0.0) / largest).sum() / total)) if total else 0.0,
    )


def surely_kept(values: Array) -> bool:
    """Say whether float32 weights cannot vanish, at a small part of what :func:`loss` takes; false: it has to tell.

    If every number were just below :data:`SMALLEST`, these would still be less than :data:`TOLERATED` of the whole.
    """
    flat = values.reshape(-1)
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        total = float(np.dot(flat, flat)) / 2  # half of it: whatever sums in float32 lose
    return bool(np.isfinite(total)) and flat.size * SMALLEST**2 < TOLERATED**2 * total


def folded_loss(before: Array, after: Array) -> Loss | None:
    """Return what folded weights would lose, where they vanish in float16 and did not before; else ``None``."""
    lost = loss(after)
    return lost if lost.vanishes and not loss(before).vanishes else None


def vanishing(graph: GraphProto) -> dict[str, Loss]:
    """Return the weights of convolutions and matrix products that vanish in float16, by the name of their node."""
    constants = constant_tensors(graph)
    found: dict[str, Loss] = {}
    for node in graph.node:
        values = _floats(constants.get(node.input[1])) if node.op_type in _LINEAR and not node.domain else None
        lost = None if values is None or surely_kept(values) else loss(values)
        if lost is not None and lost.vanishes:
            found[node.name or node.output[0]] = lost
    return found


def fusing_harm(before: GraphProto, after: GraphProto) -> str:
    """Return in one line what fused batch norms did to weights that vanish in float16; "" where they did nothing."""
    if not any(node.op_type == "BatchNormalization" for node in before.node):
        return ""
    lost = vanishing(after)
    return "" if not lost or lost.keys() <= vanishing(before).keys() else worst_of(lost)


def worst_of(lost: Mapping[str, Loss]) -> str:
    """Return in words which node's weights lose most."""
    name, worst = max(lost.items(), key=lambda item: item[1].share)
    return f"{worst.share:.0%} of the weights of {name} are below float16's smallest normal"


def constant_tensors(graph: GraphProto) -> dict[str, TensorProto]:
    """Return the constants of a graph by name: initialisers, and what Constant nodes give as a tensor or as floats."""
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
    """Say whether a node scales by a constant that float16 cannot hold, so that it has to compute in float32.

    Args:
        node: the node. constants: by name.
        clamp: numbers below -65504 become that and fit: they are a mask's, and saturate.
    """
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
    """Rewrite in place the parameters of batch norms that float16 cannot hold.

    ``scale * (x - mean) / sqrt(variance + epsilon)`` stays what it is where scale and variance shrink together: the
    variance becomes 1, or a power of 4 where the scale needs it.

    Args:
        graph: of a float32 model. keep: says which nodes stay float32 anyway.

    Returns:
        The first outputs of batch norms that cannot be rewritten, and have to compute in float32.
    """
    constants = constant_tensors(graph)
    left: set[str] = set()
    replaced: set[str] = set()
    for node in graph.node:
        if node.op_type != "BatchNormalization" or node.domain or keep(node):
            continue
        parameters = [_floats(constants.get(name)) for name in node.input[1:]]
        arrays = [array for array in parameters if array is not None and array.ndim == 1]
        if len(arrays) < len(parameters) or not _lost(arrays):
            continue
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
    """Return the values of a float32 constant; ``None`` where it is none, or its values are elsewhere."""
    if tensor is None or tensor.data_type != TensorProto.FLOAT or tensor.data_location == TensorProto.EXTERNAL:
        return None
    return numpy_helper.to_array(tensor)


def _lost(parameters: list[Array]) -> bool:
    """Say whether float16 changes what a batch norm does: any infinity, or a variance with bits lost."""
    losses = [loss(array) for array in parameters]
    return any(one.infinite for one in losses) or bool(losses[3].zero + losses[3].subnormal)


def _fitted(parameters: list[Array], epsilon: float) -> dict[int, Array] | None:
    """Return scale and variance by their place among the inputs, or ``None`` where float16 cannot hold any."""
    gamma, beta, mean, variance = (array.astype(np.float64) for array in parameters)
    if loss(beta).infinite or loss(mean).infinite or not (variance + epsilon > 0).all():
        return None
    exact = gamma / np.sqrt(variance + epsilon)
    roots = np.ones_like(exact)
    for _ in _STEPS:
        roots = np.where(np.abs(exact) * roots < SMALLEST, roots * 2, roots)
    scale = exact * np.sqrt(roots**2 + epsilon)
    if loss(scale).infinite:
        return None
    return {1: scale.astype(np.float32), 4: (roots**2).astype(np.float32)}


def drop_unread(graph: GraphProto, names: Collection[str]) -> None:
    """Remove constants of these names that nothing reads any more."""
    read = {name for node in graph.node for name in used_names(node)} | {info.name for info in graph.output}
    gone = set(names) - read
    for kept, field in (
        ([tensor for tensor in graph.initializer if tensor.name not in gone], graph.initializer),
        ([info for info in graph.input if info.name not in gone], graph.input),
        ([node for node in graph.node if not gone.issuperset(node.output) or not node.output], graph.node),
    ):
        del field[:]
        field.extend(kept)
