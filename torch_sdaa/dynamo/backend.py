"""Backend ``sdaa`` of ``torch.compile``: forward and backward graphs, partitioned, each partition one launch."""

from __future__ import annotations

import operator
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import default_partition, min_cut_rematerialization_partition
from torch._guards import CompileContext, TracingContext
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from engine import ModelError
from engine.backends import refusal
from torch_sdaa.dynamo import records
from torch_sdaa.dynamo.convert import alone, why_not
from torch_sdaa.dynamo.decompositions import decompositions
from torch_sdaa.dynamo.draws import hoisted
from torch_sdaa.dynamo.kernels import mark_calls
from torch_sdaa.dynamo.measured import asked_first
from torch_sdaa.dynamo.options import Options, read
from torch_sdaa.dynamo.plans import Numbers, Partition, label
from torch_sdaa.dynamo.sizes import Sizes, bound, is_dynamic

_aten = torch.ops.aten
_WRITES_BACK = (_aten.copy_.default,)
_ROUNDS = 4
_VIEW = "its result shares the memory of an input or of another result"
"""How often a graph is partitioned again without operators for which ONNX Runtime has no kernel."""


def aot_backend(gm: fx.GraphModule, inputs: Sequence[Any], **given: Any) -> Callable[..., Any]:
    """Compile a graph traced by ``torch.compile(model, backend="sdaa")``.

    Raises:
        ConfigError: an option does not exist.
    """
    options = read(given.pop("options", {}), given)
    made = aot_autograd(
        fw_compiler=partial(_compiled, stage="forward", options=options),
        bw_compiler=partial(_compiled, stage="backward", options=options),
        inference_compiler=partial(_compiled, stage="inference", options=options),
        decompositions=decompositions(),
        partition_fn=min_cut_rematerialization_partition if options.recompute else default_partition,
        keep_inference_input_mutations=True,
    )
    compiled: Callable[..., Any] = made(gm, inputs)
    return compiled


class _Support(OperatorSupportBase):
    """Decides which nodes a partition may contain; records the reason for others."""

    def __init__(self, sizes: Sizes, device: torch.device) -> None:
        self._sizes, self._device = sizes, device
        self.refused: dict[fx.Node, str] = {}
        self._known: dict[fx.Node, bool] = {}

    def is_node_supported(self, submodules: Any, node: fx.Node) -> bool:
        """Return whether a node has an ONNX form."""
        if node not in self._known:
            reason = self.refused.get(node) or self._why_not(node)
            self._known[node] = not reason
            if reason:
                self.refused[node] = reason
        return self._known[node]

    def refuse(self, node: fx.Node, reason: str) -> None:
        """Exclude a node from partitions, and the nodes that unpack its results."""
        for each in (node, *(user for user in node.users if user.target is operator.getitem)):
            self.refused[each], self._known[each] = reason, False

    def _why_not(self, node: fx.Node) -> str:
        if node.op != "call_function":
            return "not an operator"
        values = node.meta.get("val")
        tensors = [v for v in (values if isinstance(values, (tuple, list)) else [values]) if v is not None]
        if not all(isinstance(value, torch.Tensor) for value in tensors):
            return "a number, not a tensor"
        if any(value.device != self._device for value in tensors):
            return f"its result is not on {self._device}"
        return why_not(node, self._sizes)


def _compiled(gm: fx.GraphModule, inputs: Sequence[Any], *, stage: str, options: Options) -> Callable[..., Any]:
    """Return the function that runs a graph of ATen operators."""
    began = time.perf_counter()
    device = _device(gm)
    places = [node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")]
    numbers, dynamic = Numbers(), any(map(is_dynamic, places))
    hints = _hints(places) if dynamic else {}
    numbers.set(hints)
    kept = records.Graph(stage, _compile_id(), sum(node.op == "call_function" for node in gm.graph.nodes))
    if device is None:
        return _finished(gm, kept, began)
    for node in gm.graph.nodes:  # results of a partition are contiguous, whatever was traced
        if node.target is _aten.view.default:
            node.target = _aten.reshape.default
    asked_first(gm, numbers)
    mark_calls(gm.graph)
    kept.draws = hoisted(gm, numbers)
    fused = _divided(gm, device, numbers, stage, options, kept)
    left = [node for node in fused.graph.nodes if node.op == "call_function" and node.target is not operator.getitem]
    kept.written_back += sum(node.target in _WRITES_BACK for node in left)
    return _finished(fused, kept, began, (places, numbers) if dynamic else None)


def _divided(
    gm: fx.GraphModule, device: torch.device, numbers: Numbers, stage: str, options: Options, kept: records.Graph
) -> fx.GraphModule:
    """Return the graph with partitions."""
    support = _Support(numbers.sizes, device)
    visible = _visible(stage)
    refused: list[tuple[Any, str]] = [
        (node, _VIEW) for node in ([] if stage == "backward" else _views(gm.graph, visible))
    ]
    for _ in range(_ROUNDS):
        kept.partitions.clear()
        kept.written_back = 0
        twins: dict[fx.Node, fx.Node] = {}
        graph = fx.Graph()
        graph.output(graph.graph_copy(gm.graph, twins))
        copied = fx.GraphModule(gm, graph)
        support = _Support(numbers.sizes, device)
        for node, reason in refused:
            support.refuse(twins[node], reason)
        partitioner = CapabilityBasedPartitioner(copied, support, allows_single_node_partition=True)
        proposed = partitioner.propose_partitions()
        fused = partitioner.fuse_partitions(proposed)
        back = {twin.name: node for node, twin in twins.items()}
        culprits = _opened(fused, device, numbers, stage, options, kept, visible)
        if not culprits:
            break
        refused += [(back[name], reason) for name, reason in culprits if name in back]
    counted = {node: reason for node, reason in support.refused.items() if reason != _VIEW and _counts(node)}
    why = Counter((str(node.target), reason) for node, reason in counted.items())
    kept.fallbacks = [records.Fallback(op, reason, number) for (op, reason), number in why.most_common()]
    fused.recompile()
    return fused


def _opened(
    fused: fx.GraphModule,
    device: torch.device,
    numbers: Numbers,
    stage: str,
    options: Options,
    kept: records.Graph,
    visible: int,
) -> list[tuple[str, str]]:
    """Replace the fused modules by partitions; return names and reasons of operators without a kernel."""
    culprits: list[tuple[str, str]] = []
    for node in list(fused.graph.find_nodes(op="call_module")):
        if not node.target.startswith("fused_"):
            continue
        graph = getattr(fused, node.target).graph
        held = records.Partition(node.target, sum(each.op == "call_function" for each in graph.nodes))
        name = label(f"{stage}_{kept.compile_id}_{len(kept.partitions)}")
        partition = Partition(graph, name, device, numbers, options, _strided(node, visible), held)
        try:
            partition._plans[numbers.key] = partition.plan(numbers.sizes)
        except ModelError as error:
            found = _without_kernel(graph, numbers.sizes)
            culprits += found or [(each.name, str(error)) for each in graph.nodes if each.op == "call_function"]
            continue
        kept.partitions.append(held)
        setattr(fused, node.target, partition)
        kept.written_back += _written_back(node, partition)
    return culprits


def _written_back(node: fx.Node, partition: Partition) -> int:
    """Let a partition write results to the mutated inputs of the graph; return their number."""
    parts = {user: int(user.args[1]) for user in node.users if user.target is operator.getitem} or {node: 0}
    found = 0
    for part, place in parts.items():
        for copy in [user for user in part.users if user.target in _WRITES_BACK and user.args[1] is part]:
            changed = copy.args[0]
            if copy.users or not _only_read_by(changed, node, copy) or not _alike(changed, part):
                continue
            partition.write(place)
            node.args = (*node.args, changed)
            copy.graph.erase_node(copy)
            found += 1
    return found


def _only_read_by(changed: Any, partition: fx.Node, copy: fx.Node) -> bool:
    """Return whether no other node can observe when an input is mutated."""
    return changed.op == "placeholder" and all(
        user in (partition, copy) or user.op == "output" for user in changed.users
    )


def _alike(changed: fx.Node, result: fx.Node) -> bool:
    mine, other = changed.meta.get("val"), result.meta.get("val")
    if not isinstance(mine, torch.Tensor) or not isinstance(other, torch.Tensor):
        return False
    return mine.dtype == other.dtype and mine.shape == other.shape and mine.device == other.device


def _without_kernel(graph: fx.Graph, sizes: Sizes) -> list[tuple[str, str]]:
    """Return the operators of a partition that ONNX Runtime cannot run, with reasons."""
    found, known = [], dict[str, str]()
    for node in graph.nodes:
        if node.op != "call_function" or node.target is operator.getitem:
            continue
        dtypes = [str(getattr(each.meta.get("val"), "dtype", "")) for each in node.all_input_nodes]
        key = f"{node.target} {dtypes} {getattr(node.meta.get('val'), 'dtype', '')}"
        if key not in known:
            known[key] = refusal(alone(node, sizes))
        if known[key]:
            found.append((node.name, known[key]))
    return found


def _strided(node: fx.Node, visible: int) -> set[int]:
    """Return the indices of a partition's results that must have the traced strides."""
    values = node.meta.get("val")
    several = {user: user.args[1] for user in node.users if user.target is operator.getitem}
    found = set()
    for user, place in several.items() if several else [(node, 0)]:
        traced = user.meta.get("val")
        if traced is None and not isinstance(values, (tuple, list)):
            traced = values
        outside = any(_sees_strides(user, reader, visible) for reader in user.users)
        if outside and (traced is None or not traced.is_contiguous()):
            found.add(int(place))
    return found


def _sees_strides(value: fx.Node, reader: fx.Node, visible: int) -> bool:
    if reader.op == "output":
        (given,) = reader.args
        return value in list(given)[:visible]
    return reader.target in (_aten.as_strided.default,)


def _visible(stage: str) -> int:
    """Return how many of a graph's results the caller sees; the others are for the backward pass."""
    context = TracingContext.try_get()
    metadata = getattr(context, "fw_metadata", None)
    if stage != "forward" or metadata is None:
        return 1 << 30
    return int(metadata.num_forward_returns)


def _finished(
    gm: fx.GraphModule, kept: records.Graph, began: float, dynamic: tuple[Sequence[Any], Numbers] | None = None
) -> Callable[..., Any]:
    kept.seconds = time.perf_counter() - began
    records.add(kept)

    def run(arguments: list[Any]) -> Any:
        if dynamic is not None:
            places, numbers = dynamic
            numbers.set(bound(places, arguments))
        given = list(arguments)
        arguments.clear()  # allow freeing of unused inputs
        return gm(*given)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _device(gm: fx.GraphModule) -> torch.device | None:
    """Return the device of a graph; ``None`` if it has no tensor on the card."""
    for node in gm.graph.nodes:
        values = node.meta.get("val")
        for value in values if isinstance(values, (tuple, list)) else [values]:
            if isinstance(value, torch.Tensor) and value.device.type == "sdaa":
                return value.device
    return None


def _hints(places: Sequence[Any]) -> dict[Any, int]:
    """Return the sizes with which a dynamic graph was traced, without unbacked ones (``mark_unbacked``)."""
    symbols: dict[Any, int] = {}
    for place in places:
        sizes = [place] if isinstance(place, torch.SymInt) else place.shape if isinstance(place, torch.Tensor) else []
        for size in sizes:
            if isinstance(size, torch.SymInt):
                known = size.node.shape_env.backed_var_to_val
                symbols |= {each: int(known[each]) for each in size.node.expr.free_symbols if each in known}
    return symbols


def _compile_id() -> str:
    found = CompileContext.current_compile_id()
    return "" if found is None else str(found)


def _counts(node: fx.Node) -> bool:
    """Return whether a refused node is an operator that the device runs: not a number, final write, or unpacking."""
    if node.op != "call_function" or node.target is operator.getitem or node.target in _WRITES_BACK:
        return False
    return not isinstance(node.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool, int))


def _views(graph: fx.Graph, visible: int) -> list[fx.Node]:
    """Return the operators between a result that is a view and its base, an input or a result.

    Views launch nothing on the device. An operator that is not a view ends a chain.

    Args:
        visible: number of results that the caller sees.
    """
    (given,) = graph.output_node().args
    ends = list(given)[:visible] if isinstance(given, (tuple, list)) else [given]
    found: dict[fx.Node, None] = {}
    for end in ends:
        chain, node = [], end
        while isinstance(node, fx.Node) and _is_view(node):
            chain.append(node)
            node = node.args[0]
            if node in ends:
                break
        if chain and isinstance(node, fx.Node) and (node.op == "placeholder" or node in ends):
            found.update(dict.fromkeys(chain))
    return list(found)


def _is_view(node: fx.Node) -> bool:
    if node.target is operator.getitem:
        source: Any = node.args[0]
        return isinstance(source, fx.Node) and _is_view(source)
    if not isinstance(node.target, torch._ops.OpOverload) or node.target is torch.ops.aten.reshape.default:
        return node.target is torch.ops.aten.reshape.default
    return any(each.alias_info is not None and not each.alias_info.is_write for each in node.target._schema.arguments)
