"""Cost of a model on a card: time and memory of one SPA for one shard, from a walk over its kernels.

The time of a kernel is a launch plus the longer of its arithmetic at the layout's compute rate and its bytes at the
layout's memory rate (a roofline, Williams et al., CACM 52(4), 2009); a shard's compute time is the sum over its
kernels. The cost does not depend on which model it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from engine.batching.settle import settled
from engine.sdaa.card import CardDescription, Layout
from engine.sdaa.kernels import Kernel, folded, inner_tensors, kernels_of

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

    from engine.onnx.shapes import NodeView
    from engine.onnx.whole_numbers import Exact

FLOAT = 1  # ``onnx.TensorProto.FLOAT``
IO_BUFFERS = 2  # sets of input and output buffers: one is computed on while the next is copied


@dataclass(frozen=True, slots=True)
class ShardCost:
    """Simulated cost of one shard on one SPA: seconds and bytes."""

    copy_in: float  # seconds
    compute: float  # seconds
    copy_out: float  # seconds
    weights: int  # bytes
    activations: int  # bytes at their peak
    io: int  # bytes of all buffers
    kernels: tuple[Kernel, ...]  # in launch order
    kernel_seconds: tuple[float, ...]  # the time of each

    @property
    def unknown(self) -> list[str]:
        """Names of the kernels on data of unknown size: only their launch is counted."""
        return [kernel.name for kernel in self.kernels if not kernel.known]

    @property
    def compute_share(self) -> float:
        """Fraction of a single call in which the SPA computes, 0 to 1; the rest is copying."""
        whole = self.copy_in + self.compute + self.copy_out
        return self.compute / whole if whole else 0.0

    @property
    def memory(self) -> int:
        """Bytes of device memory one engine instance takes."""
        return self.weights + self.activations + self.io


@dataclass(frozen=True, slots=True)
class ShardWork:
    """Work of a SPA for one shard, independent of the card; bytes are those stored."""

    float16: bool  # whether floats are stored in float16 (else float32)
    inputs: int  # number of arrays copied in
    outputs: int  # number of arrays copied out
    bytes_in: int  # their bytes
    bytes_out: int  # their bytes
    weights: int  # bytes
    activations: int  # bytes at their peak
    kernels: tuple[Kernel, ...]  # in launch order


def shard_cost(
    model: ModelProto,
    card: CardDescription,
    layout: Layout,
    float16: bool,
    keep: Callable[[NodeProto], bool] | None = None,
) -> ShardCost:
    """Return the cost of a model with the shapes of one shard; see :func:`shard_work` and :func:`price`."""
    return price(shard_work(model, float16, keep), card, layout)


def shard_work(model: ModelProto, float16: bool, keep: Callable[[NodeProto], bool] | None = None) -> ShardWork:
    """Return the work of a model whose inputs have the shapes of one shard.

    Args:
        model: after binding and passes, before the conversion to the card's storage.
        float16: whether floats are stored in float16 (else float32).
        keep: returns whether a node stays float32.
    """
    return weighed_work(model, float16, keep)[0]


def weighed_work(
    model: ModelProto,
    float16: bool,
    keep: Callable[[NodeProto], bool] | None = None,
    wide: ModelProto | None = None,
) -> tuple[ShardWork, dict[str, int]]:
    """Return the result of :func:`shard_work`, and the bytes of every constant by name; ``wide``: the widened model."""
    from engine.onnx.shapes import view  # here: a saved engine is priced without onnx
    from engine.onnx.view import graph_inputs  # here: a saved engine is priced without onnx
    from engine.onnx.whole_numbers import exact_parts
    from engine.sdaa.float16 import exact_ends, keeping, widened

    wide = settled(widened(model) if wide is None else wide)
    known = folded(wide.graph)
    parts = exact_parts(wide.graph) if float16 else None
    kept = keeping(parts, keep) if parts else keep or (lambda node: False)
    walk, sizes = _walk(view(wide), wide.graph, known, parts, kept)
    inputs, outputs = graph_inputs(wide), list(wide.graph.output)
    exact = exact_ends(parts, model) if parts else frozenset()
    ends = {info.name for info in (*inputs, *outputs)}
    weights = {name: sizes.get(name, 0) for name in {name for kernel in walk for name in kernel.reads} & known}
    work = ShardWork(
        float16=float16,
        inputs=len(inputs),
        outputs=len(outputs),
        bytes_in=sum(_copied(info, float16 and info.name not in exact) for info in inputs),
        bytes_out=sum(_copied(info, float16 and info.name not in exact) for info in outputs),
        weights=sum(weights.values()),
        activations=peak_bytes(walk, sizes, known | ends),
        kernels=tuple(walk),
    )
    return work, weights


def _walk(
    views: Iterable[NodeView],
    graph: GraphProto,
    known: set[str],
    exact: Exact | None,
    keep: Callable[[NodeProto], bool],
) -> tuple[list[Kernel], dict[str, int]]:
    """Return the kernels in order, and the stored bytes of every tensor by name (0 if unknown).

    ``exact``: the tensors of the graph that stay float32 in float16 storage; ``None``: floats are stored in float32.
    """
    float32 = {name for node in graph.node if keep(node) for name in node.output}
    halved = set() if exact is None else _floats(graph) - float32 - _parameters(graph, exact)
    nodes = [_stored(node, halved) for node in views]
    sizes = {name: size or 0 for node in nodes for name, size in node.bytes.items()}
    return kernels_of(nodes, inner_tensors(graph, keep), known, float32), sizes


def _floats(graph: GraphProto) -> set[str]:
    values = {i.name: i.type.tensor_type.elem_type for i in (*graph.input, *graph.value_info, *graph.output)}
    values |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    return {name for name, kind in values.items() if kind == FLOAT}


def _parameters(graph: GraphProto, exact: Exact) -> set[str]:
    """Return the names of the tensors that operators take in float32 for any storage."""
    from engine.sdaa.float16 import float32_inputs, scalar_constants

    scalars = scalar_constants(graph, exact)
    return {node.input[i] for node in graph.node for i in float32_inputs(node, scalars) if i < len(node.input)}


def _copied(info: ValueInfoProto, float16: bool) -> int:
    """Return the bytes of an input or output between host and card; 0 if its size depends on data."""
    from onnx import helper

    from engine.onnx.view import dims

    kind = info.type.tensor_type.elem_type
    size = 2 if float16 and kind == FLOAT else int(helper.tensor_dtype_to_np_dtype(kind).itemsize)
    return size * prod(d if isinstance(d, int) else 0 for d in dims(info))


def _stored(node: NodeView, halved: set[str]) -> NodeView:
    return replace(node, bytes={k: size // 2 if size and k in halved else size for k, size in node.bytes.items()})


def price(work: ShardWork, card: CardDescription, layout: Layout) -> ShardCost:
    """Return the cost of a shard's work on a card."""
    rates = [1.0 if work.float16 and not kernel.float32 else card.float32_rate for kernel in work.kernels]
    seconds = tuple(kernel_seconds(k, layout, rate) for k, rate in zip(work.kernels, rates, strict=True))
    return ShardCost(
        copy_in=_copy(work.bytes_in, work.inputs, card.host_to_device_gb_s, card),
        compute=sum(seconds),
        copy_out=_copy(work.bytes_out, work.outputs, card.device_to_host_gb_s, card),
        weights=work.weights,
        activations=work.activations,
        io=IO_BUFFERS * (work.bytes_in + work.bytes_out),
        kernels=work.kernels,
        kernel_seconds=seconds,
    )


def kernel_seconds(kernel: Kernel, layout: Layout, rate: float) -> float:
    """Return seconds: launch plus the longer of arithmetic (``rate`` times the layout's) and memory traffic."""
    arithmetic = kernel.flops / (layout.compute_tflop_s * 1e12 * rate)
    traffic = (kernel.read + kernel.written) / (layout.memory_gb_s * 1e9)
    return kernel.launches * layout.launch_us * 1e-6 + max(arithmetic, traffic)


def _copy(size: int, count: int, gb_s: float, card: CardDescription) -> float:
    return count * card.copy_launch_us * 1e-6 + size / (gb_s * 1e9)


def peak_bytes(walk: Sequence[Kernel], sizes: dict[str, int], elsewhere: set[str]) -> int:
    """Return the largest sum of live activations in bytes; each lives from its writing kernel to its last reader.

    ``sizes``: stored bytes by tensor name. ``elsewhere``: tensors in weights or input and output buffers.
    """
    last_read = {name: i for i, kernel in enumerate(walk) for name in kernel.reads}
    alive: dict[str, int] = {}
    peak = 0
    for i, kernel in enumerate(walk):
        alive |= {name: sizes.get(name, 0) for name in kernel.writes if name not in elsewhere}
        peak = max(peak, sum(alive.values()))
        for name in [name for name in alive if last_read.get(name, i) <= i]:
            del alive[name]
    return peak
