"""Analysis of a graph: properties of each node's outputs derived from those of its inputs."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from engine.batching.counting import counted, places
from engine.batching.elementwise import Rule
from engine.batching.folding import constant_content, fold
from engine.batching.random_operators import RANDOM
from engine.batching.rules import PARAMETERS, RULES, SIZED
from engine.batching.sizes import BATCH_SYMBOL, Size, bound, product, symbol
from engine.batching.value import Call, Fault, Sizes, UnprovenError, Value, constant, content_of, from_content
from engine.onnx.functions import inlined
from engine.onnx.shapes import infer_shapes
from engine.onnx.view import dims, graph_inputs, sort_nodes, subgraphs, used_names
from engine.signature import Array, Dim
from tecoinfer_modelzoo.errors import ModelError

_SMALL = 1024  # maximum number of elements of a constant that is passed to ONNX's shape inference
_FOLLOWED = frozenset(("If", "Loop", "Scan"))


@dataclass(frozen=True, slots=True)
class View:
    """A model prepared for analysis: functions inlined, nodes sorted, shapes inferred.

    ``graph`` lacks the data of large constants, ``constants`` are those of the main graph with data, ``shapes`` are
    declared and inferred ones, ``inputs`` and ``outputs`` have declared shapes.
    """

    graph: GraphProto
    constants: dict[str, TensorProto]
    shapes: dict[str, list[Dim]]
    inputs: list[tuple[str, list[Dim]]]
    outputs: list[tuple[str, list[Dim]]]
    opset: int

    @property
    def declared(self) -> frozenset[str]:
        """Names of the outputs, whose shapes were written by the exporter."""
        return frozenset(name for name, _ in self.outputs)


def view_of(model: ModelProto) -> View:
    """Return a model prepared for analysis, without copies of large constants."""
    light = _light(model)
    light = sort_nodes(inlined(light))
    try:
        light = infer_shapes(light)
    except ModelError:  # shapes are unknown
        del light.graph.value_info[:]
    shapes = {info.name: dims(info) for info in _infos(light.graph) if info.type.tensor_type.HasField("shape")}
    opset = max((entry.version for entry in light.opset_import if entry.domain in ("", "ai.onnx")), default=0)
    return View(
        light.graph,
        {tensor.name: tensor for tensor in model.graph.initializer},
        shapes,
        [(info.name, dims(info)) for info in graph_inputs(model)],
        [(info.name, dims(info)) for info in model.graph.output],
        opset,
    )


def _light(model: ModelProto) -> ModelProto:
    light = ModelProto(ir_version=model.ir_version)
    light.opset_import.extend(model.opset_import)
    light.functions.extend(model.functions)
    graph = light.graph
    graph.name = model.graph.name
    graph.node.extend(model.graph.node)
    graph.input.extend(model.graph.input)
    graph.output.extend(model.graph.output)
    graph.sparse_initializer.extend(model.graph.sparse_initializer)
    for tensor in model.graph.initializer:
        if prod(tensor.dims) <= _SMALL:
            graph.initializer.append(tensor)
        else:
            graph.initializer.add(name=tensor.name, dims=tensor.dims, data_type=tensor.data_type)
    return light


def _infos(graph: GraphProto) -> Iterable[onnx.ValueInfoProto]:
    yield from (*graph.input, *graph.value_info, *graph.output)
    for node in graph.node:
        for inner in subgraphs(node):
            yield from _infos(inner)


_NOT_VALID = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors that rules raise for invalid nodes: inconsistent shapes, missing attributes or attributes of a wrong type."""


@dataclass(slots=True)
class Trace:
    """An analysis; ``batch``, ``number``: symbol or number of samples in declared shapes, or ``None``."""

    view: View
    batch: str | None
    number: int | None
    opset: int = field(init=False)

    def __post_init__(self) -> None:
        self.opset = self.view.opset

    def inferred(self, name: str) -> Sizes | None:
        """Return the shape inferred by ONNX, with a symbol for every dynamic size."""
        shape = self.view.shapes.get(name)
        return None if shape is None else tuple(self.size(name, axis, dim) for axis, dim in enumerate(shape))

    def size(self, name: str, axis: int, dim: Dim) -> Size:
        """Return a declared dimension as a size."""
        if isinstance(dim, int):
            return dim
        own = dim is None or dim == self.batch
        return symbol(f"{name}.{axis}" if own else f"'{dim}'".replace(BATCH_SYMBOL, "\\"))

    def run(self, inputs: Sequence[Value]) -> list[Value]:
        """Return the properties of the graph's outputs, given those of its inputs."""
        constants = {name: constant(name, tensor) for name, tensor in self.view.constants.items()}
        return self.follow(self.view.graph, inputs, constants)

    def follow(self, graph: GraphProto, inputs: Sequence[Value], outer: Mapping[str, Value]) -> list[Value]:
        """Return the properties of a graph's outputs; ``outer`` contains the tensors of the enclosing graphs."""
        own: dict[str, Value] = {}
        scope = ChainMap(own, dict(outer))
        for tensor in graph.initializer:
            if graph is not self.view.graph:
                own[tensor.name] = constant(tensor.name, tensor)
        for sparse in graph.sparse_initializer:
            own[sparse.values.name] = Value(sparse.values.name, tuple(sparse.dims))
        own.update((value.name, value) for value in inputs)
        for node in graph.node:
            own.update((value.name, value) for value in self._step(node, scope) if value.name)
        return [_lookup(scope, info.name) for info in graph.output]

    def _step(self, node: NodeProto, scope: Mapping[str, Value]) -> list[Value]:
        inputs = [_lookup(scope, name) if name else None for name in node.input]
        fault = next((value.fault for value in inputs if value is not None and value.fault), None)
        if fault is None:
            try:
                return self._agreed(self._results(node, inputs, scope))
            except UnprovenError as error:
                fault = error.fault
            except _NOT_VALID:
                fault = Call(node, inputs, self, scope).unknown().fault
        return [Value(name, fault=fault) for name in node.output]

    def _agreed(self, results: list[Value]) -> list[Value]:
        """Return the results, or raise the fault of the first one whose shape contradicts ONNX's inference."""
        for fault in map(self._disagreement, results):
            if fault is not None:
                raise UnprovenError(fault)
        return results

    def _disagreement(self, value: Value) -> Fault | None:
        """Return a fault if a shape contradicts ONNX's inference: proofs must not rely on either."""
        shape = self.view.shapes.get(value.name)
        if shape is None or value.dims is None or value.name in self.view.declared:
            return None
        sizes = [size if self.number is None else bound(size, self.number) for size in value.dims]
        pairs = zip(shape, sizes, strict=False)
        if len(shape) == len(sizes) and all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int)):
            return None
        return Fault(f"'{value.name}' has a contradictory shape", False)

    def _results(self, node: NodeProto, inputs: list[Value | None], scope: Mapping[str, Value]) -> list[Value]:
        computed = self._computed(node, inputs)
        if computed is not None:
            return [computed]
        call = Call(node, inputs, self, scope)
        domain, rule = _domain(node), _rule(node)
        if domain == "" and node.op_type in RANDOM:
            raise call.fault("draws random numbers", depends=False)
        if domain != "" and rule is None:
            raise call.unknown()
        picked = counted(call)
        if picked is not None:
            return picked
        if self._is_shared(node, inputs, scope):
            return self._shared(node, call)
        if rule is None:
            raise call.unknown()
        self._check(call, node)
        counting = places(call) if node.op_type == "Range" and domain == "" else None
        return rule(call) if counting is None else [counting]

    def _computed(self, node: NodeProto, inputs: list[Value | None]) -> Value | None:
        """Return the output of a node that computes a constant, a shape or a small tensor from known elements."""
        if _domain(node) != "" or len(node.output) != 1:
            return None
        name = node.output[0]
        if node.op_type == "Constant":
            return self._constant(node, name)
        if node.op_type in ("Shape", "Size") and inputs[0] is not None:
            return self._shape(node, inputs[0])
        contents: list[Array | None] = []
        for value in inputs:
            contents.append(None if value is None else content_of(value))
            if contents[-1] is None:
                return None
        result = fold(node, contents)
        return None if result is None else from_content(name, result)

    def _constant(self, node: NodeProto, name: str) -> Value:
        held = constant_content(node)
        if held is None:
            return Value(name, self.inferred(name))
        return constant(name, held) if isinstance(held, TensorProto) else from_content(name, held)

    def _shape(self, node: NodeProto, value: Value) -> Value:
        name = node.output[0]
        if value.dims is None:
            return Value(name, self.inferred(name), sized=not value.shared)
        if node.op_type == "Size":
            return from_content(name, _objects([product(value.dims)]).reshape(()))
        numbers = {attribute.name: attribute.i for attribute in node.attribute}
        return from_content(name, _objects(value.dims[numbers.get("start", 0) : numbers.get("end")]))

    def _is_shared(self, node: NodeProto, inputs: list[Value | None], scope: Mapping[str, Value]) -> bool:
        if not all(value is None or value.shared for value in inputs):
            return False
        bodies = list(subgraphs(node))
        if not bodies:
            return node.op_type != "Dropout"
        return not any(map(_is_random, bodies)) and all(_lookup(scope, name).shared for name in used_names(node))

    def _shared(self, node: NodeProto, call: Call) -> list[Value]:
        """Return the outputs of a node whose inputs do not depend on the samples."""
        known = [Value(name, self.inferred(name)) for name in node.output]
        rule = _rule(node)
        if rule is None:
            return known
        try:
            return [replace(value, rows=None) for value in rule(call)]
        except (UnprovenError, *_NOT_VALID):
            return known  # the rule only serves to find shapes

    def _check(self, call: Call, node: NodeProto) -> None:
        """Reject parameters that depend on the samples, and their number used as an ordinary value."""
        parameters = PARAMETERS.get(node.op_type, ())
        for i, value in enumerate(call.inputs):
            if value is None or node.op_type in _FOLLOWED:
                continue
            if i in parameters and value.rows:
                raise call.fault(f"has a parameter '{value.name}' that depends on the samples", depends=False)
            if value.sized and not (i in parameters and node.op_type in SIZED):
                raise call.fault(f"computes with the number of samples in '{value.name}'", depends=True)


def _domain(node: NodeProto) -> str:
    """Return a node's operator set; the default one has two names."""
    return "" if node.domain == "ai.onnx" else node.domain


def _rule(node: NodeProto) -> Rule | None:
    return RULES.get((_domain(node), node.op_type))


def _objects(sizes: Sequence[Size]) -> Array:
    result = np.empty(len(sizes), dtype=object)
    result[:] = sizes
    return result


def _lookup(scope: Mapping[str, Value], name: str) -> Value:
    found = scope.get(name)
    return Value(name, fault=Fault(f"'{name}' is read but not computed", False)) if found is None else found


def _is_random(graph: GraphProto) -> bool:
    return any(
        node.op_type in RANDOM or node.op_type == "Dropout" or any(map(_is_random, subgraphs(node)))
        for node in graph.node
    )
