"""Isolated error of every node: the error of its outputs given correct inputs.

One graph contains the correct model and a twin of every node: the node with the card's storage precision, or the node
of the suspect model. A twin reads the outputs of correct nodes. The graph returns two norms per tensor, which keeps
memory small; masked elements are excluded. A twin inside a fused kernel reads its predecessor in the kernel, and the
error at the end of the kernel is assigned to all nodes of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine import Array
from toolkit.fix.masked import MaskedElements
from toolkit.fix.samples import in_parts
from toolkit.graph.inputs import batched_specs

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

FLOAT, HALF = 1, 10
"""``onnx.TensorProto`` element types."""

TWIN, ROUNDED, STORED, ERROR, SIZE = "@twin", "@rounded", "@stored", "@error", "@size"


def isolated_errors(
    right: ModelProto,
    suspect: ModelProto | None,
    *calls: Sequence[Array],
    batch: int | None = None,
    keep: Callable[[NodeProto], bool] = lambda node: False,
) -> dict[str, float]:
    """Return by node name sqrt(sum (a-b)^2 / sum b^2) of its worst output; ``inf`` if not finite; nodes without float
    outputs or twin are absent.

    Args:
        right: the float32 model, with unique node names.
        suspect: a model with the same node and tensor names; ``None`` takes ``right`` in float16 storage.
        calls: one array per input for each call; the error is over all calls.
        batch: fixed batch of the model; ``None`` runs each call unchanged.
        keep: returns whether a node stays float32; such nodes have no twin and are not fused.
    """
    from engine.backends import HostSession

    twins = _Twins(right, suspect, keep)
    session, specs = HostSession(twins.model), batched_specs(right)
    squares = np.zeros((len(twins.nodes), 2))
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        for part in (part for call in calls for part in in_parts(call, specs, batch)):
            feed = [np.asarray(a, spec.dtype) for a, spec in zip(part, session.inputs, strict=True)]
            squares += np.square([float(v) for v in session.run(feed)]).reshape(-1, 2)
        errors = np.sqrt(squares[:, 0] / np.where(squares[:, 1] > 0, squares[:, 1], 1.0))
    found: dict[str, float] = {}
    for nodes, error in zip(twins.nodes, np.where(np.isfinite(errors), errors, np.inf), strict=True):
        for name in nodes:
            found[name] = max(found.get(name, 0.0), float(error))
    return found


class _Twins:
    """Builder of the graph; ``nodes`` has the node names of every pair of outputs."""

    def __init__(self, right: ModelProto, suspect: ModelProto | None, keep: Callable[[NodeProto], bool]) -> None:
        from engine.onnx import graph_inputs, infer_shapes
        from engine.sdaa import inner_tensors, keeping_exact, scalar_constants, widen

        self.model = infer_shapes(widen(right))
        graph = self.model.graph
        self.half = suspect is None
        self.floats, self.scalars = _floats(graph), scalar_constants(graph)
        other = self.model if suspect is None else widen(suspect)
        self.twins = {node.name: node for node in other.graph.node}
        self.keep = keeping_exact(graph, keep) if self.half else keep
        self.inner = inner_tensors(graph, self.keep) & self.floats if self.half else set()
        self.kernel: dict[str, list[str]] = {}
        self.own = {} if self.half else {t.name: t for t in other.graph.initializer}
        self.made: set[str] = set()
        self.nodes: list[list[str]] = []
        self.masked = MaskedElements(self.model, self.floats)
        self.added: list[NodeProto] = list(self.masked.nodes)
        fed = graph_inputs(self.model)
        for node in list(graph.node):
            self._add(node)
        self.model.ir_version = max(self.model.ir_version, 4)
        del graph.input[:]
        graph.input.extend(fed)
        self._finish()

    def _add(self, node: NodeProto) -> None:
        """Add the twin of a node, if it has one, and the norms of its outputs."""
        from engine.onnx import subgraphs

        twin = self.twins.get(node.name)
        outputs = [name for name in node.output if name in self.floats]
        if twin is None or not outputs or (self.half and self.keep(node)):
            return
        if list(twin.output) != list(node.output) or any(True for _ in subgraphs(node)):
            return
        # with the nodes in the kernel of its inputs
        group = [node.name, *(one for name in twin.input if name in self.inner for one in self.kernel.get(name, ()))]
        self.added.append(self._copy(twin, node))
        for name in outputs:
            if name in self.inner:
                self.kernel[name] = group
            else:
                self._measure(name, group)

    def _copy(self, twin: NodeProto, node: NodeProto) -> NodeProto:
        copy = type(node)()
        copy.CopyFrom(twin)
        copy.name = f"{node.name}{TWIN}"
        for i, name in enumerate(twin.input):
            copy.input[i] = self._input(name, i, node)
        copy.output[:] = [f"{name}{TWIN}" if name else "" for name in twin.output]
        return copy

    def _input(self, name: str, position: int, node: NodeProto) -> str:
        """Return the tensor that the twin reads for an input of the node."""
        from engine.sdaa import float32_inputs

        if name in self.own:
            return f"{name}{TWIN}:weight"
        if name in self.inner:
            return f"{name}{TWIN}"
        if not self.half or name not in self.floats or position in float32_inputs(node, self.scalars):
            return name
        return self._stored(name, f"{name}{ROUNDED}")

    def _stored(self, source: str, target: str) -> str:
        """Return the name of a value rounded to float16."""
        from onnx import helper

        if target not in self.made:
            self.made.add(target)
            self.added.append(helper.make_node("Cast", [source], [f"{target}:half"], f"{target}:narrow", to=HALF))
            self.added.append(helper.make_node("Cast", [f"{target}:half"], [target], f"{target}:back", to=FLOAT))
        return target

    def _measure(self, name: str, group: list[str]) -> None:
        from onnx import helper

        twin = self._stored(f"{name}{TWIN}", f"{name}{STORED}") if self.half else f"{name}{TWIN}"
        first = len(self.masked.nodes)
        right, twin = self.masked.pair(name, twin)
        self.added += self.masked.nodes[first:]
        self.added += [
            helper.make_node("Sub", [twin, right], [f"{name}:difference"], f"{name}:difference"),
            helper.make_node("ReduceL2", [f"{name}:difference"], [f"{name}{ERROR}"], f"{name}{ERROR}", keepdims=0),
            helper.make_node("ReduceL2", [right], [f"{name}{SIZE}"], f"{name}{SIZE}", keepdims=0),
        ]
        self.nodes.append(group)
        self.made |= {f"{name}{ERROR}", f"{name}{SIZE}"}

    def _finish(self) -> None:
        from onnx import helper

        graph = self.model.graph
        graph.node.extend(self.added)
        for name, tensor in self.own.items():
            copy = graph.initializer.add()
            copy.CopyFrom(tensor)
            copy.name = f"{name}{TWIN}:weight"
        del graph.value_info[:]
        del graph.output[:]
        ends = [node.output[0] for node in self.added if node.output[0].endswith((ERROR, SIZE))]
        graph.output.extend(helper.make_tensor_value_info(name, FLOAT, []) for name in ends)


def _floats(graph: GraphProto) -> set[str]:
    """Return the names of all float32 tensors of a graph."""
    infos = (*graph.input, *graph.value_info, *graph.output)
    floats = {info.name for info in infos if info.type.tensor_type.elem_type == FLOAT}
    return floats | {tensor.name for tensor in graph.initializer if tensor.data_type == FLOAT}
