"""Kernels that the card launches for a graph: groups of nodes, with the arithmetic and the bytes of each.

A convolution or matrix product includes the bias, batch norm and activation that only it feeds; any other node includes
its activation. A kernel reads its inputs once, writes its outputs once and rounds once, at its end. Nodes that only
rename or reshape launch nothing, and values that depend only on constants and shapes are computed when the engine is
built.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod, sqrt
from typing import TYPE_CHECKING

from tecoinfer_modelzoo.errors import ModelError
from tecoinfer_modelzoo.text import shape_text

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

    from engine.onnx.shapes import NodeView

ACTIVATIONS = frozenset(("Relu", "Clip", "LeakyRelu", "PRelu", "Sigmoid", "HardSigmoid", "HardSwish", "Tanh", "Elu"))
LINEAR = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul"))
VIEWS = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout", "Constant", "Shape", "Size"))
SELECTING = frozenset(("Gather", "GatherElements", "GatherND", "Slice"))
"""Operators that read no more of their data than they write."""
RECURRENT = {"LSTM": 4, "GRU": 3, "RNN": 1}  # recurrent operators and their number of gates
_SHAPES = frozenset(("Constant", "Shape", "Size"))
_CONTROL = frozenset(("If", "Loop", "Scan"))
_POOLING = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
_REDUCING = frozenset((*_POOLING, "Softmax", "ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2"))
HEAVY = {"Exp": 4, "Log": 4, "Sqrt": 2, "Softmax": 8, "Erf": 8, "Gelu": 10, "Tanh": 6, "Sigmoid": 5, "Pow": 8}
HEAVY |= {"BiasGelu": 11, "FastGelu": 10, "QuickGelu": 7, "Swish": 6, "Mish": 12, "Softplus": 8, "LogSoftmax": 8}
HEAVY |= dict.fromkeys(("LayerNormalization", "GroupNormalization", "InstanceNormalization"), 7)
HEAVY |= {"RMSNormalization": 4, "SimplifiedLayerNormalization": 4, "LpNormalization": 4}
HEAVY |= {"SkipLayerNormalization": 8, "SkipSimplifiedLayerNormalization": 5, "RotaryEmbedding": 3}
"""Operations per output element of elementwise operators where that is not about 1; rough, and rarely what binds.

A LayerNormalization sums, subtracts, squares, sums, multiplies, scales and shifts each element once; an RMS one
squares, sums, multiplies and scales it.
"""

_PAST = {"Attention": 4, "MultiHeadAttention": 6, "GroupQueryAttention": 3}
"""Attention operators and the index of their past keys among the inputs."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch."""

    name: str  # of its first node
    op_type: str  # of that node
    nodes: tuple[str, ...]  # names of all its nodes
    reads: tuple[str, ...]  # names of the tensors it reads, weights included
    writes: tuple[str, ...]  # names of the tensors it writes
    flops: float  # floating-point operations, a multiply-add counting two
    read: int  # bytes read, as stored
    written: int  # bytes written, as stored
    launches: int = 1  # sequential kernels inside it (the time steps of a recurrent operator), else 1
    known: bool = True  # whether all shapes are known; costs that depend on unknown sizes are omitted
    float32: bool = False  # whether it computes in float32 in a float16 model


def inner_tensors(graph: GraphProto, keep: Callable[[NodeProto], bool]) -> set[str]:
    """Return the tensors that never leave their kernel; float32 nodes (``keep``) share none with others."""
    from engine.onnx.view import used_names

    readers: dict[str, int] = dict.fromkeys((info.name for info in graph.output), 1)
    for node in graph.node:
        for name in used_names(node):
            readers[name] = readers.get(name, 0) + 1
    return fused([node for node in graph.node if not keep(node)], readers, folded(graph))


def fused(nodes: Iterable[NodeProto], readers: Mapping[str, int], constants: Collection[str]) -> set[str]:
    """Return the tensors that the reading node, in topological order, fuses into its kernel.

    ``readers``: number of nodes and graph outputs that read a tensor. ``constants``: tensors known at build time.
    """
    inner: set[str] = set()
    stage: dict[str, str] = {}  # output of a kernel so far -> what it can still include
    for node in nodes:
        source = next((name for name in node.input if name in stage), "")
        fits = readers.get(source) == 1 and _follows(node, stage[source], constants)
        if fits:
            inner.add(source)
        still = _takes_in(node, stage[source] if fits else "")
        if still and node.output and node.output[0]:
            stage[node.output[0]] = still
    return inner


def _takes_in(node: NodeProto, joined: str) -> str:
    """Return what a kernel can include after its node: ``linear``, ``activation`` only, or "" (as ``joined``)."""
    if node.op_type in ACTIVATIONS:
        return ""  # a kernel ends with its activation
    if joined or node.op_type in VIEWS:
        return joined
    return "linear" if node.op_type in LINEAR else "activation"


def _follows(node: NodeProto, stage: str, constants: Collection[str]) -> bool:
    if node.op_type in ACTIVATIONS:
        return True
    if stage != "linear" or node.op_type not in ("Add", "Mul", "BatchNormalization"):
        return False
    return all(name in constants for name in node.input[1:]) or all(name in constants for name in node.input[:1])


def folded(graph: GraphProto) -> set[str]:
    """Return the names of all tensors known when the engine is built: constants, shapes, and what depends on them."""
    known = {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        given = any(node.input) and known.issuperset(filter(None, node.input)) and node.op_type not in _CONTROL
        if given or node.op_type in _SHAPES:
            known.update(filter(None, node.output))
    return known


def kernels_of(
    nodes: Iterable[NodeView], inner: Collection[str], known: set[str], float32: Collection[str] = ()
) -> list[Kernel]:
    """Group a graph's nodes, in topological order with bytes as stored, into the kernels the card launches.

    Args:
        inner: tensors that never leave their kernel. known: tensors known when the engine is built (:func:`folded`).
        float32: tensors written by nodes that stay float32.
    """
    groups: dict[str, list[NodeView]] = {}  # tensor inside a kernel -> the kernel's nodes so far
    alias: dict[str, str] = {}  # output of a view -> the tensor it views
    done: list[list[NodeView]] = []
    for node in _launched(nodes, known, alias):
        source = next((name for name in node.inputs if name in groups), None)
        group = groups.pop(source) if source is not None else []
        if not group:
            done.append(group)
        group.append(node)
        groups |= {name: group for name in node.outputs if name in inner}
    return [_kernel(group, inner, alias, float32) for group in done]


def _launched(nodes: Iterable[NodeView], known: set[str], alias: dict[str, str]) -> Iterator[NodeView]:
    """Yield the nodes that launch something; add the tensors that views view to ``alias``."""
    for node in nodes:
        if known.issuperset(filter(None, node.outputs)):
            continue
        if node.op_type in VIEWS:
            alias[node.outputs[0]] = alias.get(node.inputs[0], node.inputs[0])
        else:
            yield node


def _kernel(
    group: list[NodeView], inner: Collection[str], alias: Mapping[str, str], float32: Collection[str]
) -> Kernel:
    read = _beyond(inner, group, _read_names)
    written = _beyond(inner, group, lambda node: filter(None, node.outputs))
    known = [node for node in group if _known(node)]
    first = group[0]
    return Kernel(
        name=first.name,
        op_type=first.op_type,
        nodes=tuple(node.name for node in group),
        reads=tuple(alias.get(name, name) for name in read),
        writes=tuple(written),
        flops=sum(_flops(node) for node in known),
        read=sum(_read(name, node) for name, node in read.items()),
        written=sum(node.bytes.get(name) or 0 for name, node in written.items()),
        launches=_launches(first),
        known=len(known) == len(group),
        float32=any(name in float32 for name in first.outputs),
    )


def _beyond(
    inner: Collection[str], group: Iterable[NodeView], names: Callable[[NodeView], Iterable[str]]
) -> dict[str, NodeView]:
    """Return the tensors of a kernel's nodes that are not inside it, each with the last node that has it."""
    return {name: node for node in group for name in names(node) if name not in inner}


def _launches(node: NodeView) -> int:
    """Return the number of time steps of a recurrent operator, else 1."""
    return _shape(node.inputs[0], node)[0] if node.op_type in RECURRENT and _known(node) else 1


def _read_names(node: NodeView) -> Iterator[str]:
    """Yield the tensors that a node reads, captures of the bodies of If, Loop and Scan included."""
    yield from filter(None, node.inputs)
    yield from sorted(node.shapes.keys() - {*node.inputs, *node.outputs})


def _read(name: str, node: NodeView) -> int:
    size = node.bytes.get(name) or 0
    if node.op_type in SELECTING and name == node.inputs[0]:
        return min(size, node.bytes.get(node.outputs[0]) or 0)
    return size


def _known(node: NodeView) -> bool:
    """Return whether the shapes of all tensors of a node are known; sizes that depend on data are not."""
    return all(None not in node.shapes.get(name, (None,)) for name in (*node.inputs, *node.outputs) if name)


def _shape(name: str, node: NodeView) -> tuple[int, ...]:
    return tuple(d or 0 for d in node.shapes[name])


def _flops(node: NodeView) -> float:
    """Return the operations of a node; unknown operators count one per element written."""
    written = sum(prod(_shape(name, node)) for name in node.outputs if name)
    if not written:
        return 0.0
    try:
        return _COUNTS.get(node.op_type, _elementwise)(node, written)
    except (IndexError, KeyError, ValueError, ZeroDivisionError) as error:
        shapes = ", ".join(shape_text(node.shapes.get(name, ())) for name in node.inputs)
        what = f"node {node.name!r}: no {node.op_type} reads inputs of the shapes {shapes}"
        raise ModelError(f"{what}; export the model again") from error


def _elementwise(node: NodeView, written: int) -> float:
    return float(written) * HEAVY.get(node.op_type, 1)


def _reduction(node: NodeView, written: int) -> float:
    return float(max(written, prod(_shape(node.inputs[0], node)))) * HEAVY.get(node.op_type, 1)


def _conv(node: NodeView, written: int) -> float:
    """Return the operations of a convolution: each output (transposed: input) element meets its group's kernel once."""
    spatial = prod(_shape(node.inputs[0] if node.op_type == "ConvTranspose" else node.outputs[0], node))
    return 2.0 * spatial * prod(_shape(node.inputs[1], node)[1:])


def _gemm(node: NodeView, written: int) -> float:
    """Return two operations for each step along the summed dimension K of an (M, K) x (K, N) product."""
    a, b = _shape(node.inputs[0], node), _shape(node.inputs[1], node)
    return 2.0 * written * sqrt(prod(a) * prod(b) / written)


def _recurrent(node: NodeView, written: int) -> float:
    steps, batch, width = _shape(node.inputs[0], node)
    directions, gates, _ = _shape(node.inputs[1], node)
    hidden = gates // RECURRENT[node.op_type]
    return 2.0 * steps * batch * directions * gates * (width + hidden)


def _attention(node: NodeView, written: int) -> float:
    """Return the operations of the two products of scaled dot-product attention (Vaswani et al., 2017, section 3.2.1).

    ``Q @ K.T`` and the product with V take 2 * B * H * Sq * Skv * D operations each, and B * H * Sq * D is the number
    of elements of the query (of the output) in any layout of the heads. Shapes as in ONNX's Attention and in
    com.microsoft's MultiHeadAttention, GroupQueryAttention and Attention; the last projects its input first.
    """
    query, output = _shape(node.inputs[0], node), _shape(node.outputs[0], node)
    given = [_shape(name, node) if name else () for name in (*node.inputs, *[""] * 7)]
    key, past = given[1], given[_PAST[node.op_type]]
    asked, projection = float(prod(query)), 0.0
    positions = key[2] if len(key) == 4 else key[1] if key else query[1]
    if len(key) == 2:  # the weights of query, key and value
        projection, positions = 2 * asked * key[1], query[1]
        asked *= (key[1] - output[-1]) / 2 / query[-1]
    elif not key:  # all three in one
        asked = float(prod(output))
    return projection + 2 * (asked + prod(output)) * (positions + (past[-2] if past else 0))


_COUNTS: dict[str, Callable[[NodeView, int], float]] = {
    **dict.fromkeys(_PAST, _attention),
    **dict.fromkeys(("Conv", "ConvTranspose"), _conv),
    "Gemm": _gemm,
    "MatMul": lambda node, written: 2.0 * written * _shape(node.inputs[0], node)[-1],
    **dict.fromkeys(RECURRENT, _recurrent),
    **dict.fromkeys(_REDUCING, _reduction),
}
"""Operator -> function that counts its operations, given the elements it writes; others do about one per element."""
