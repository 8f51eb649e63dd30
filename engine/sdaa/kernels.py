"""What the card launches for a graph: nodes grouped into kernels, with the arithmetic and the bytes of each.

A convolution or matrix product takes the bias, batch norm and activation that only it feeds into its kernel; so does
any other node its activation. A kernel reads its inputs once, writes its outputs once and rounds once, at its end.
Nodes that only rename or reshape launch nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import TYPE_CHECKING

from engine.onnx_graph import NodeView

if TYPE_CHECKING:
    from onnx import NodeProto

ACTIVATIONS = frozenset(("Relu", "Clip", "LeakyRelu", "PRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Elu"))
LINEAR = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul"))
VIEWS = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout", "Constant", "Shape"))
RECURRENT = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""Recurrent operators and their number of gates."""

_HEAVY = {"Exp": 4, "Log": 4, "Sqrt": 2, "Softmax": 8, "Erf": 8, "Gelu": 10, "Tanh": 6, "Sigmoid": 5, "Pow": 8}
"""Operations per output element of elementwise operators where that is not about 1; rough, and rarely what binds."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch.

    Attributes:
        name: of the node that leads it. op_type: its operator. nodes: names of all nodes in it.
        flops: floating-point operations, a multiply-add counting two.
        reads, writes: names of the tensors it reads (weights included) and writes.
        read, written: their bytes, floats counted as the model holds them.
        launches: kernels one after another inside it (the time steps of a recurrent operator), else 1.
        known: whether all shapes are known; where a size follows from data, what it costs is left out.
    """

    name: str
    op_type: str
    nodes: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    flops: float
    read: int
    written: int
    launches: int = 1
    known: bool = True


def fused_followers(
    nodes: Sequence[NodeProto | NodeView], readers: Mapping[str, int], constants: Iterable[str]
) -> dict[str, str]:
    """Map a tensor that never leaves its kernel to the operator that takes it in.

    Args:
        nodes: in topological order, with ``op_type`` and their inputs and outputs.
        readers: how many nodes (and graph outputs) read a tensor.
        constants: names of constant tensors.
    """
    constant = set(constants)
    inner: dict[str, str] = {}
    stage: dict[str, str] = {}
    """Output of a kernel so far -> what it still takes in: ``linear``, or ``activation`` only."""
    for node in nodes:
        inputs, outputs = _names(node)
        if not outputs:
            continue
        source = next((name for name in inputs if name in stage and name not in constant), None)
        fits = source is not None and readers.get(source) == 1 and _follows(node, stage[source], inputs, constant)
        if fits and source is not None:
            inner[source] = node.op_type
        if node.op_type in ACTIVATIONS:
            continue  # a kernel ends with its activation
        if fits and source is not None:
            stage[outputs[0]] = stage[source]
        elif node.op_type not in VIEWS:
            stage[outputs[0]] = "linear" if node.op_type in LINEAR else "activation"
    return inner


def _names(node: NodeProto | NodeView) -> tuple[Sequence[str], Sequence[str]]:
    if isinstance(node, NodeView):
        return node.inputs, node.outputs
    return list(node.input), list(node.output)


def _follows(node: NodeProto | NodeView, stage: str, inputs: Sequence[str], constant: set[str]) -> bool:
    if node.op_type in ACTIVATIONS:
        return True
    if stage != "linear" or node.op_type not in ("Add", "Mul", "BatchNormalization"):
        return False
    return all(name in constant for name in inputs[1:]) or all(name in constant for name in inputs[:1])


def kernels(nodes: Sequence[NodeView], constants: Iterable[str], outputs: Iterable[str]) -> list[Kernel]:
    """Group a graph's nodes into the kernels the card launches."""
    constants = set(constants)
    readers: dict[str, int] = dict.fromkeys(outputs, 1)
    for node in nodes:
        for name in node.inputs:
            readers[name] = readers.get(name, 0) + 1
    inner = fused_followers(nodes, readers, constants)
    groups: dict[str, list[NodeView]] = {}
    """Tensor inside a kernel -> the kernel's nodes so far."""
    alias: dict[str, str] = {}
    """Output of a view -> the tensor it views."""
    done: list[list[NodeView]] = []
    for node in nodes:
        if node.op_type in VIEWS or not node.outputs:
            if node.inputs and node.outputs:
                alias[node.outputs[0]] = alias.get(node.inputs[0], node.inputs[0])
            continue
        source = next((name for name in node.inputs if name in inner and name in groups), None)
        group = groups.pop(source) if source is not None else []
        if not group:
            done.append(group)
        group.append(node)
        groups[node.outputs[0]] = group
    return [_kernel(group, alias) for group in done]


def _kernel(group: list[NodeView], alias: Mapping[str, str]) -> Kernel:
    inside = {name for node in group for name in node.outputs}
    read = {name: node for node in group for name in node.inputs if name and name not in inside}
    first, last = group[0], group[-1]
    writes = tuple(name for name in last.outputs if name)
    return Kernel(
        name=first.name,
        op_type=first.op_type,
        nodes=tuple(node.name for node in group),
        reads=tuple(alias.get(name, name) for name in read),
        writes=writes,
        flops=sum(_flops(node) for node in group if _known(node)),
        read=sum(node.bytes.get(name) or 0 for name, node in read.items()),
        written=sum(last.bytes.get(name) or 0 for name in writes),
        launches=_shape(first.inputs[0], first)[0] if first.op_type in RECURRENT and _known(first) else 1,
        known=all(_known(node) for node in group),
    )


def _known(node: NodeView) -> bool:
    """Say whether the shape of everything a node reads and writes is known; sizes that follow from data are not."""
    return all(None not in node.shapes.get(name, (None,)) for name in (*node.inputs, *node.outputs) if name)


def _shape(name: str, node: NodeView) -> tuple[int, ...]:
    return tuple(d or 0 for d in node.shapes[name])


def _flops(node: NodeView) -> float:
    """Count operations by operator; anything unknown counts one operation per element written."""
    written = sum(prod(_shape(name, node)) for name in node.outputs if name)
    if node.op_type in ("Conv", "ConvTranspose"):
        weight = _shape(node.inputs[1], node)
        spatial = prod(_shape(node.inputs[0] if node.op_type == "ConvTranspose" else node.outputs[0], node))
        # Every output (input, for the transposed one) element meets the whole kernel of its group once.
        return 2.0 * spatial * prod(weight[1:])
    if node.op_type == "Gemm":
        a, b = _shape(node.inputs[0], node), _shape(node.inputs[1], node)
        return 2.0 * written * _inner(a, b, written)
    if node.op_type == "MatMul":
        return 2.0 * written * _shape(node.inputs[0], node)[-1]
    if node.op_type in RECURRENT:
        steps, batch, width = _shape(node.inputs[0], node)
        directions, gates, _ = _shape(node.inputs[1], node)
        hidden = gates // RECURRENT[node.op_type]
        return 2.0 * steps * batch * directions * gates * (width + hidden)
    if node.op_type in (
        "MaxPool",
        "AveragePool",
        "ReduceMean",
        "ReduceSum",
        "ReduceMax",
        "GlobalAveragePool",
        "Softmax",
    ):
        return float(max(written, prod(_shape(node.inputs[0], node)))) * _HEAVY.get(node.op_type, 1)
    return float(written) * _HEAVY.get(node.op_type, 1)


def _inner(a: tuple[int, ...], b: tuple[int, ...], written: int) -> float:
    """Return the summed dimension K of an (M, K) x (K, N) product, whichever way its operands are transposed."""
    return sqrt(prod(a) * prod(b) / written)
