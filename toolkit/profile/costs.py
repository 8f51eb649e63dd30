"""Cost of a model: parameters and multiply-adds of its graph, and time and memory on the simulated card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from engine import EngineSpec, TensorSpec, find_pass
from engine.sdaa import ShardCost, kernels_of, load_card, price, settled, spa_count
from toolkit.graph.inputs import Shapes
from toolkit.profile.card import prepare
from toolkit.profile.sizes import Sizes, sizes_of
from utils.stored import ModelMetadata

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

    from engine.onnx import NodeView

PRODUCTS = frozenset(
    (
        *("Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "GRU", "RNN"),
        *("Attention", "MultiHeadAttention", "GroupQueryAttention"),
    )
)
"""Operators whose multiply-adds are counted: convolutions and matrix products."""

_STATISTICS = (3, 4)  # inputs of a BatchNormalization that are not parameters: mean and variance
_FLOATS = (1, 10, 11, 16)  # ``onnx.TensorProto.FLOAT``, ``FLOAT16``, ``DOUBLE`` and ``BFLOAT16``


@dataclass(frozen=True)
class BatchCost:
    """Simulated cost of calls of one batch."""

    batch: int  # samples per call, over all SPA
    latency: float  # seconds of a single call: copy in, compute and copy out of its shard
    throughput: float  # samples per second of queued calls, with copies overlapping the computation
    memory: int  # bytes per SPA: weights, peak activations, and input and output buffers


@dataclass(frozen=True)
class ModelCost:
    """Cost of a model."""

    name: str  # of the file
    source: str  # from the metadata, or ""
    weights: str  # from the metadata, or ""
    inputs: Shapes  # shapes of a call of one sample by input
    sizes: str  # source of these shapes; see :class:`Sizes`
    parameters: int  # number of elements of float weights, without batch norm statistics
    multiply_adds: int  # per sample
    unknown: tuple[str, ...]  # nodes of data-dependent size, which are not counted
    dtype: str  # storage on the card
    simulated: tuple[BatchCost, ...]  # costs by batch


def parameters_of(graph: GraphProto) -> int:
    """Return the elements of a graph's float weights, without batch norm statistics.

    Slightly fewer than in the source framework, since most batch norms of exported files are folded into convolutions.
    """
    statistics = {
        node.input[place] for node in graph.node if node.op_type == "BatchNormalization" for place in _STATISTICS
    }
    weights = (one for one in graph.initializer if one.data_type in _FLOATS and one.name not in statistics)
    return sum(prod(weight.dims) for weight in weights)


def multiply_adds_of(model: ModelProto) -> tuple[int, tuple[str, ...]]:
    """Count multiply-adds of convolutions and products (attention, recurrence too); name data-dependent nodes."""
    from engine.onnx import infer_shapes

    graph = settled(infer_shapes(model)).graph
    known = {tensor.name for tensor in graph.initializer}
    alone = [one for one in kernels_of(_views(graph), (), known) if one.op_type in PRODUCTS]
    return round(sum(one.flops for one in alone) / 2), tuple(one.name for one in alone if not one.known)


def _views(graph: GraphProto) -> Iterator[NodeView]:
    """Yield the products of a graph with the shapes of their inputs and outputs."""
    from engine.onnx import NodeView, dims

    shapes: dict[str, tuple[int | None, ...]] = {one.name: tuple(one.dims) for one in graph.initializer}
    for info in (*graph.input, *graph.value_info, *graph.output):
        if not info.type.tensor_type.HasField("shape"):
            continue  # unknown rank
        shapes[info.name] = tuple(size if isinstance(size, int) else None for size in dims(info))
    for place, node in enumerate(graph.node):
        if node.op_type in PRODUCTS:
            own = {name: shapes[name] for name in (*node.input, *node.output) if name in shapes}
            name = node.name or f"{node.op_type}_{place}"
            yield NodeView(name, node.op_type, tuple(node.input), tuple(node.output), own, dict.fromkeys(own, 0))


def cost_of(path: Path, batches: Sequence[int] = (1, 16, 64), dtype: str | None = None) -> ModelCost:
    """Return a model's cost with ``default_pass.py``, as in the scripts.

    ``batches``: of the whole card, ascending. Raise TecoInferError if the model is unreadable or refuses a batch.
    """
    from engine.onnx import load_model, metadata
    from toolkit.fix.opening import SampleRequest
    from toolkit.graph.inputs import batched_specs

    model = load_model(path)
    stored = ModelMetadata(metadata(model), path)
    sizes = sizes_of(model, path, 1, SampleRequest(None))
    one = prepare(EngineSpec(path, 1, dtype=dtype), sizes.shapes, compare=False)
    counted, unknown = multiply_adds_of(one.shaped)
    specs: list[TensorSpec] = batched_specs(model)
    fixed = any(spec.batch_axis is not None and spec.shape[spec.batch_axis] is not None for spec in specs)
    batches = [1] if fixed else list(batches)
    return ModelCost(
        name=path.name,
        source=str(stored.provenance.get("source", "")),
        weights=str(stored.provenance.get("weights", "")),
        inputs=one.inputs,
        sizes=sizes.note or sizes.source,
        parameters=parameters_of(model.graph),
        multiply_adds=counted // one.batch,
        unknown=unknown,
        dtype="float16" if one.half else "float32",
        simulated=tuple(_simulated(path, model, batch, dtype) for batch in batches),
    )


def _simulated(path: Path, model: ModelProto, batch: int, dtype: str | None) -> BatchCost:
    from toolkit.fix.opening import SampleRequest

    spec = EngineSpec(path, batch, dtype=dtype, pass_path=find_pass("default_pass.py"))
    shard = -(-batch // spa_count(spec))
    sizes: Sizes = sizes_of(model, path, shard, SampleRequest(None))
    loaded = prepare(spec, sizes.shapes, compare=False)
    card = load_card()
    cost: ShardCost = price(loaded.work, card, card.layout(loaded.options.layout))
    slowest = max(cost.copy_in, cost.compute, cost.copy_out)
    return BatchCost(batch, cost.copy_in + cost.compute + cost.copy_out, batch / slowest, cost.memory)
