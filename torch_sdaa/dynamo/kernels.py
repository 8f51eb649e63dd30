"""The card's launches for a compiled graph: ATen operators grouped into kernels, as a compiler fuses them.

1. The decomposition of one operator of the traced network is one launch, like the operator on the device.
2. A chain of pointwise operators over the same number of elements is one launch, including a final reduction. A matrix
   product or convolution is fused with the following pointwise operators that are its only readers, up to an
   activation.
3. Views and constants launch nothing.

A kernel reads its inputs and writes its outputs once; its arithmetic is the sum of its operators', counted as on the
device (:mod:`torch_sdaa.cost.predicted_cost`). So a kernel takes no longer than its operators separately.

An operator joins a kernel only if its inputs were made in that kernel or before, which keeps kernels in an executable
order. Pointwise operators that read only inputs of the graph are deferred to the kernel of their first reader.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.node import map_arg

from engine.sdaa import Kernel, ShardWork
from torch_sdaa.cost import prices
from torch_sdaa.cost.predicted_cost import launches_of
from torch_sdaa.dynamo.sizes import Sizes

_INPUT = -1
"""Kernel index of inputs: before the first."""

_CALL = "sdaa_call"
"""Key in a node's ``meta``: number of the operator of the traced network that the node is a part of."""

_WHOLE = ("scaled_dot_product_attention",)
"""Functions that the device launches as one operator, and PyTorch traces as several."""

_POINTWISE = ("_to_copy", "copy", "native_dropout", "hardswish", "where", "masked_fill")
_REDUCING = (
    "_softmax",
    "_log_softmax",
    "native_layer_norm",
    "native_group_norm",
    "native_batch_norm",
    "argmax",
    "argmin",
)
_LINEAR = ("mm", "bmm", "addmm", "baddbmm", "convolution")
_ACTIVATIONS = ("relu", "gelu", "sigmoid", "tanh", "silu", "hardswish", "hardsigmoid", "hardtanh", "leaky_relu", "elu")


_NAMED = 4
"""Maximum number of operators in a kernel's title."""


@dataclass
class _Group:
    """A kernel during grouping: ``open`` to pointwise operators and a reduction, ``linear`` to its end, or closed."""

    kind: str
    space: int
    nodes: list[fx.Node] = field(default_factory=list)


def work_of(graph: fx.Graph, sizes: Sizes) -> ShardWork:
    """Return the card's work for a partition: its kernels, and the peak bytes of values between them.

    Args:
        graph: operators of ATen. sizes: values of its symbols.
    """
    grouping = _Grouping(graph, sizes)
    kernels = [grouping.kernel(place) for place in range(len(grouping.groups))]
    ends = [node for node in graph.nodes if node.op == "placeholder" and isinstance(node.meta["val"], torch.Tensor)]
    halves = any(_is_half(value) for node in graph.nodes for value in _values(node))
    return ShardWork(
        float16=halves,
        inputs=len(ends),
        outputs=len(grouping.results),
        bytes_in=sum(map(grouping.bytes, ends)),
        bytes_out=sum(map(grouping.bytes, grouping.results)),
        weights=0,
        activations=grouping.peak(),
        kernels=tuple(kernels),
    )


class _Grouping:
    """Assigns each operator of a graph to a kernel, in one pass."""

    def __init__(self, graph: fx.Graph, sizes: Sizes) -> None:
        self._sizes = sizes
        self.groups: list[_Group] = []
        self._home: dict[fx.Node, int] = {}
        """Tensor that is not a view -> its kernel."""
        self._root: dict[fx.Node, fx.Node] = {}
        self._waiting: dict[fx.Node, None] = {}
        self._known: set[fx.Node] = set()
        """Nodes that depend on constants only."""
        self._launches: dict[fx.Node, list[prices.Launch]] = {}
        self._homes: dict[int, int] = {}
        """Operator of the traced network -> the kernel with its last part."""
        self._kinds = _kinds(graph)
        for node in graph.nodes:
            if node.op == "placeholder":
                self._home[node] = _INPUT
            elif node.op == "call_function":
                self._take(node)
        (given,) = graph.output_node().args
        self.results = [self.root(node) for node in _nodes([given])]
        for node in self.results:
            if node in self._known and node not in self._home:
                self._new(node, "closed", 0)
            elif node in self._waiting:
                self._materialised(node)

    # ------------------------------------------------------------------------------------------------------- grouping

    def root(self, node: fx.Node) -> fx.Node:
        """Return the base tensor of a view."""
        return self._root.get(node, node)

    def _take(self, node: fx.Node) -> None:
        read = list(dict.fromkeys(self.root(each) for each in node.all_input_nodes))
        if node.target is operator.getitem:
            self._part(node, node.all_input_nodes[0])
            return
        if read and _is_view(node):
            self._root[node] = read[0]
            return
        if all(each in self._known or not _values(each) for each in read):
            self._known.add(node)
            return
        launches = self._launches[node] = self._launched(node)
        if not launches:  # memory alone
            self._root[node] = read[0]
            return
        self._placed(node, [each for each in read if each not in self._known])

    def _part(self, node: fx.Node, source: fx.Node) -> None:
        if source in self._known:
            self._known.add(node)
        elif source in self._root:  # views of one tensor
            self._root[node] = self._root[source]
        else:
            self._home[node] = self._home[source]

    def _placed(self, node: fx.Node, read: list[fx.Node]) -> None:
        call = node.meta[_CALL]
        kind = self._kinds[call]
        space = self._space(node, kind)
        for each in [each for each in read if each in self._waiting]:
            if each.meta[_CALL] != node.meta[_CALL] and not (
                kind in ("pointwise", "reduction") and self._elements(each) == space
            ):
                self._materialised(each)
        last = max((self._home[each] for each in read if each not in self._waiting), default=_INPUT)
        if self._homes.get(call, _INPUT) >= max(last, 0):  # rule 1
            self._join(node, self._homes[call])
        elif last == _INPUT and _kind(node) == "pointwise" and not _several(node):
            self._waiting[node] = None
        elif last != _INPUT and self._fits(node, kind, space, self.groups[last], last, read):
            group = self.groups[last]
            if kind == "reduction" or (group.kind == "linear" and _base(node) in _ACTIVATIONS):
                group.kind = "closed"
            self._join(node, last)
        else:
            self._new(node, {"pointwise": "open", "linear": "linear"}.get(kind, "closed"), space)

    def _fits(self, node: fx.Node, kind: str, space: int, group: _Group, last: int, read: list[fx.Node]) -> bool:
        """Return whether an operator joins the kernel of the last of its inputs (rule 2)."""
        if group.space != space or kind not in ("pointwise", "reduction"):
            return False
        made = [each for each in read if self._home.get(each) == last]
        if any(self._elements(each) != space for each in (*made, *self._shown(node, made))):
            return False
        if group.kind == "open":
            return True
        if group.kind != "linear" or kind != "pointwise" or len(made) != 1 or made[0] is not self._tail(group):
            return False
        others = [each for each in read if each is not made[0]]
        return len(made[0].users) == 1 and all(self._elements(each) < space for each in others)

    def _shown(self, node: fx.Node, made: list[fx.Node]) -> list[fx.Node]:
        """Return the views through which an operator reads."""
        return [each for each in node.all_input_nodes if self.root(each) in made]

    def _tail(self, group: _Group) -> fx.Node:
        return group.nodes[-1]

    def _join(self, node: fx.Node, place: int) -> None:
        """Add an operator to a kernel, preceded by the deferred operators that it reads."""
        for each in node.all_input_nodes:
            if (source := self.root(each)) in self._waiting:
                del self._waiting[source]
                self._join(source, place)
        self.groups[place].nodes.append(node)
        self._home[node] = place
        self._homes[node.meta[_CALL]] = place

    def _new(self, node: fx.Node, kind: str, space: int) -> None:
        self.groups.append(_Group(kind, space))
        self._join(node, len(self.groups) - 1)

    def _materialised(self, node: fx.Node) -> None:
        del self._waiting[node]
        self._new(node, "open", self._elements(node))

    # ----------------------------------------------------------------------------------------------------------- cost

    def kernel(self, place: int) -> Kernel:
        """Return a kernel: its inputs, outputs and arithmetic."""
        nodes = self.groups[place].nodes
        works = [[(launch, prices.work(*launch)) for launch in self._launches.get(node, [])] for node in nodes]
        flops = [sum(work.operations for _, work in each) for each in works]
        heaviest = max(range(len(nodes)), key=flops.__getitem__)
        read, written = self._entering(place), self._leaving(place)
        return Kernel(
            name=nodes[0].name,
            op_type=_title(nodes),
            nodes=tuple(node.name for node in nodes),
            reads=tuple(node.name for node in read),
            writes=tuple(node.name for node in written),
            flops=sum(flops),
            read=sum(read.values()),
            written=sum(map(self.bytes, written)),
            float32=not any(prices.computed_in(*launch[1:3]) in ("Half", "BFloat16") for launch, _ in works[heaviest]),
        )

    def _entering(self, place: int) -> dict[fx.Node, int]:
        """Return the tensors that a kernel reads, and their bytes: for views the viewed part, at most the whole."""
        seen: dict[fx.Node, dict[fx.Node, int]] = {}
        for node in self.groups[place].nodes:
            moved = [prices.work(*launch).read for launch in self._launches.get(node, [])]
            for each in node.all_input_nodes:
                source = self.root(each)
                if _values(each) and self._home.get(source, _INPUT) != place:
                    size = min(self.bytes(each), max(moved, default=0))  # for a selection, the selected part
                    shown = seen.setdefault(source, {})
                    shown[each] = max(size, shown.get(each, 0))
        return {source: min(self.bytes(source), sum(shown.values())) for source, shown in seen.items()}

    def _leaving(self, place: int) -> list[fx.Node]:
        found = []
        for node in self._tensors_of(place):
            if node in self.results or any(self._home[each] != place for each in self._readers(node)):
                found.append(node)
        return found

    def _tensors_of(self, place: int) -> Iterable[fx.Node]:
        for node in self.groups[place].nodes:
            if _several(node):
                yield from (user for user in node.users if user.target is operator.getitem)
            else:
                yield node

    def _readers(self, node: fx.Node) -> Iterable[fx.Node]:
        """Yield the operators that read a tensor, also through views."""
        for user in node.users:
            if user.op != "call_function":
                continue
            if user in self._root:
                yield from self._readers(user)
            elif user in self._home:
                yield user

    def peak(self) -> int:
        """Return the peak bytes of values between kernels, without the results of the graph."""
        last: dict[fx.Node, int] = {}
        for place in range(len(self.groups)):
            for node in self._entering(place):
                last[node] = place
        alive = most = 0
        ending: dict[int, int] = {}
        for place in range(len(self.groups)):
            for node in self._leaving(place):
                if node not in self.results and node in last:
                    alive += self.bytes(node)
                    ending[last[node]] = ending.get(last[node], 0) + self.bytes(node)
            most = max(most, alive)
            alive -= ending.get(place, 0)
        return most

    def bytes(self, node: fx.Node) -> int:
        """Return the bytes of a tensor."""
        return sum(prod(self._sizes.shape(value.shape)) * value.element_size() for value in _values(node))

    def _elements(self, node: fx.Node) -> int:
        return max((prod(self._sizes.shape(value.shape)) for value in _values(node)), default=0)

    def _space(self, node: fx.Node, kind: str) -> int:
        """Return the number of elements that an operator iterates over."""
        if kind != "reduction":
            return self._elements(node)
        return max((self._elements(each) for each in node.all_input_nodes), default=0)

    def _launched(self, node: fx.Node) -> list[prices.Launch]:
        """Return the launches of the device for an operator by itself."""
        args, kwargs = map_arg((node.args, node.kwargs), lambda each: self._concrete(each.meta["val"]))
        made = node.meta["val"]
        made = [self._concrete(each) for each in made] if isinstance(made, (tuple, list)) else self._concrete(made)
        return launches_of(node.target, _plain(args, self._sizes), _plain(kwargs, self._sizes), made)

    def _concrete(self, value: Any) -> Any:
        """Return a traced value with numbers for its sizes."""
        if isinstance(value, torch.Tensor) and any(isinstance(size, torch.SymInt) for size in value.shape):
            with FakeTensorMode():
                return torch.empty(self._sizes.shape(value.shape), dtype=value.dtype, device=value.device)
        return self._sizes.number(value) if isinstance(value, torch.SymInt) else value


# -------------------------------------------------------------------------------------------------------------- nodes


def mark_calls(graph: fx.Graph) -> None:
    """Mark each node with the operator of the traced network that it is a part of, in traced order.

    Consecutive nodes of one origin belong to one operator; views between them belong to none.
    """
    before = ""
    call = 0
    for place, node in enumerate(graph.nodes):
        if node.op != "call_function" or _is_view(node):
            continue
        of = _origin(node) or str(place)
        call += of != before
        before = of
        node.meta[_CALL] = call


def _origin(node: fx.Node) -> str:
    """Return an identifier of the operator that a node is a part of; "" if it is an operator itself."""
    backward = bool(node.meta.get("autograd_backward"))
    for source in ("source_fn_stack", "fwd_source_fn_stack"):
        for name, function in node.meta.get(source) or ():
            if getattr(function, "__name__", "") in _WHOLE:
                return f"{name} {backward}"
    origin = node.meta.get("original_aten")
    if origin is None or str(origin) == str(node.target):
        return ""
    return f"{origin} {node.meta.get('seq_nr')} {backward}"


def _title(nodes: Iterable[fx.Node]) -> str:
    """Return the operators of the traced network in a kernel: ``addmm + mul``."""
    names = []
    for node in nodes:
        origin = _origin(node).partition(" ")[0] or str(node.target)
        names.append(origin.removeprefix("aten.").partition(".")[0])
    found = list(dict.fromkeys(names))
    return " + ".join(found[:_NAMED]) + (f" + {len(found) - _NAMED} more" if len(found) > _NAMED else "")


def _kinds(graph: fx.Graph) -> dict[int, str]:
    """Return the kind of each operator of the traced network: that of the heaviest part of its decomposition."""
    order = ("pointwise", "reduction", "linear", "other")
    parts: dict[int, list[str]] = {}
    for node in graph.nodes:
        if _CALL in node.meta:
            parts.setdefault(node.meta[_CALL], []).append(_kind(node))
    return {
        call: "other" if "linear" in kinds and len(kinds) > 1 else max(kinds, key=order.index)
        for call, kinds in parts.items()
    }


def _kind(node: fx.Node) -> str:
    """Return the kind of an operator: ``pointwise``, ``reduction``, ``linear`` or ``other``."""
    base, tags = _base(node), getattr(node.target, "tags", ())
    if torch.Tag.pointwise in tags or base in _POINTWISE:
        return "pointwise"
    if base in _LINEAR:
        return "linear"
    if torch.Tag.reduction in tags or base.removeprefix("_").startswith(tuple(n.removeprefix("_") for n in _REDUCING)):
        return "reduction"
    return "other"


def _base(node: fx.Node) -> str:
    return str(node.target._schema.name).rpartition("::")[2] if hasattr(node.target, "_schema") else ""


def _is_view(node: fx.Node) -> bool:
    return hasattr(node.target, "_schema") and prices.is_view(str(node.target._schema.name))


def _several(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (tuple, list))


def _values(node: fx.Node) -> list[torch.Tensor]:
    made = node.meta.get("val")
    return [each for each in (made if isinstance(made, (tuple, list)) else [made]) if isinstance(each, torch.Tensor)]


def _is_half(value: torch.Tensor) -> bool:
    return value.dtype in (torch.float16, torch.bfloat16)


def _nodes(value: Any) -> list[fx.Node]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, fx.Node)]


def _plain(given: Any, sizes: Sizes) -> Any:
    """Return arguments with numbers instead of symbols."""
    return torch.utils._pytree.tree_map(
        lambda leaf: sizes.number(leaf) if isinstance(leaf, torch.SymInt) else leaf, given
    )
