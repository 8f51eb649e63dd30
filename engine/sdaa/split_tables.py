"""A model split so that its tables' rows are on several SPA: one part per SPA that looks up rows, and the rest.

The part of SPA ``k`` has consecutive rows of every table, and a row of zeros at each end inside the table. An index
outside its rows returns zeros, so that the sum over all SPA is the requested row.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from engine.onnx.large import add_tensors
from engine.onnx.shapes import infer_shapes
from engine.onnx.view import graph_inputs, used_names
from engine.sdaa.tables import looked_up
from tecoinfer_modelzoo.errors import ConfigError

SMALL = 0.01  # minimum size of a split table relative to the largest one: small ones are faster on each SPA
MIN_OPSET = 12  # oldest opset whose ``Clip`` supports integers


class Parts(NamedTuple):
    """The parts of a model."""

    lookups: list[ModelProto]  # for each SPA a model from some of the inputs to its rows, and zeros for others
    rest: ModelProto  # the model from the rows and the other inputs to the outputs
    rows: list[str]  # names of the rows: outputs of each lookup, in order, and inputs of the rest
    tables: list[str]  # names of the tables that were split


def split_tables(model: ModelProto, count: int, where: Path) -> Parts:
    """Split the rows of a model's tables over several SPA.

    A table stays whole if another node reads it too, if it is much smaller than the largest (:data:`SMALL`) or has
    fewer rows than there are SPA, or if its indices depend on another table's rows.

    Args:
        model: with its data, nodes in topological order. count: number of SPA. where: the model's file, for messages.

    Raise ConfigError if no table can be split, or the model's opset is too old.
    """
    opset = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 0)
    if opset < MIN_OPSET:
        raise ConfigError(f"{where}: opset {opset} is too old for --shard_tables; export it with {MIN_OPSET} or later")
    graph = infer_shapes(model).graph
    shapes = {tensor.name: tensor.dims for tensor in graph.initializer}
    found = _independent(graph)
    least = SMALL * max((prod(shapes[node.input[0]]) for node in found), default=0)
    large = {name for name, shape in shapes.items() if len(shape) and shape[0] >= count and prod(shape) >= least}
    nodes = [node for node in found if node.input[0] in large]
    if not nodes:
        raise ConfigError(f"{where}: has no table to split; remove --shard_tables")
    names = [node.output[0] for node in nodes]
    tables = list(dict.fromkeys(node.input[0] for node in nodes))
    lookups = [_lookup(model, graph, nodes, spa, count) for spa in range(count)]
    return Parts(lookups, _rest(model, graph, nodes), [_fed(graph, name) for name in names], tables)


def _independent(graph: GraphProto) -> list[NodeProto]:
    """Return the lookups in tables without other readers, whose indices do not depend on another table's rows."""
    found = looked_up(graph)
    readers = [name for node in graph.node for name in used_names(node)] + [info.name for info in graph.output]
    alone = {table for table in {node.input[0] for node in found}
             if readers.count(table) == sum(node.input[0] == table for node in found)}  # fmt: skip
    after: set[str] = {node.output[0] for node in found}
    for node in graph.node:
        if not after.isdisjoint(used_names(node)):
            after.update(node.output)
    first = [node for node in found if node.input[0] in alone and node.input[1] not in after]
    kept = {node.output[0] for node in first}
    whole = {node.input[0] for node in found if node.output[0] not in kept}
    return [node for node in first if node.input[0] not in whole]


def _fed(graph: GraphProto, name: str) -> str:
    """Return the name of the rows as input of the rest: an output of the model needs another name."""
    return f"{name}:rows" if any(info.name == name for info in graph.output) else name


def _typed(graph: GraphProto, name: str, called: str) -> ValueInfoProto:
    """Return the type and shape of a value inside the graph, with a new name."""
    found = ValueInfoProto()
    found.CopyFrom(next(info for info in (*graph.value_info, *graph.output) if info.name == name))
    found.name = called
    return found


def _needed(nodes: Sequence[NodeProto], wanted: set[str]) -> list[NodeProto]:
    """Return the nodes that some values depend on, in order; add their inputs to ``wanted``."""
    kept = []
    for node in reversed(nodes):
        if not wanted.isdisjoint(node.output):
            kept.append(node)
            wanted.update(used_names(node))
    return kept[::-1]


def _model(model: ModelProto, graph: GraphProto, tensors: Iterable[TensorProto]) -> ModelProto:
    """Return a graph with initializers as a model of the same opsets, functions and metadata."""
    made = ModelProto()
    made.ir_version = model.ir_version
    made.opset_import.extend(model.opset_import)
    made.functions.extend(model.functions)
    made.metadata_props.extend(model.metadata_props)
    made.graph.CopyFrom(graph)
    add_tensors(made.graph, tensors)
    return made


def _constants(graph: GraphProto, names: set[str]) -> Iterator[TensorProto]:
    return (tensor for tensor in graph.initializer if tensor.name in names)


def _rest(model: ModelProto, graph: GraphProto, lookups: Sequence[NodeProto]) -> ModelProto:
    gone = {node.output[0] for node in lookups}
    left = [node for node in graph.node if not gone.intersection(node.output)]
    renamed = [
        helper.make_node("Identity", [_fed(graph, name)], [name], f"{name}:fed") for name in sorted(gone)
        if _fed(graph, name) != name
    ]  # fmt: skip
    wanted = {info.name for info in graph.output}
    kept = _needed([*renamed, *left], wanted)
    fed = [_typed(graph, node.output[0], _fed(graph, node.output[0])) for node in lookups]
    inputs = [*(info for info in graph_inputs(model) if info.name in wanted), *fed]
    return _model(model, helper.make_graph(kept, graph.name, inputs, graph.output), _constants(graph, wanted))


def _lookup(model: ModelProto, graph: GraphProto, lookups: Sequence[NodeProto], spa: int, count: int) -> ModelProto:
    wanted = {node.input[1] for node in lookups}
    before = _needed(graph.node, wanted)
    tables = {tensor.name: tensor for tensor in _constants(graph, {node.input[0] for node in lookups})}
    nodes, tensors = list(before), list(_constants(graph, wanted))
    for name, tensor in tables.items():
        tensors += _slice(tensor, spa, count)
        tensors.append(numpy_helper.from_array(np.array(tensor.dims[0], np.int64), f"{name}:count"))
    if lookups:
        tensors.append(numpy_helper.from_array(np.array(0, np.int64), "tables:zero"))
    for node in lookups:
        nodes += _steps(node, _fed(graph, node.output[0]), last=spa == count - 1)
    inputs = [info for info in graph_inputs(model) if info.name in wanted]
    outputs = [_typed(graph, node.output[0], _fed(graph, node.output[0])) for node in lookups]
    return _model(model, helper.make_graph(nodes, f"{graph.name}_rows", inputs, outputs), tensors)


def _slice(table: TensorProto, spa: int, count: int) -> list[TensorProto]:
    """Return a SPA's rows, and offset and limits of its indices; the last one refuses an index beyond the table."""
    rows = table.dims[0]
    start, stop = rows * spa // count, rows * (spa + 1) // count
    values = numpy_helper.to_array(table)
    zero = np.zeros((1, *values.shape[1:]), values.dtype)
    first, last = spa == 0, spa == count - 1
    own = np.concatenate([*([] if first else [zero]), values[start:stop], *([] if last else [zero])])
    shift = start - (0 if first else 1)
    whole = {"shift": shift, "low": 0, "high": np.iinfo(np.int64).max if last else len(own) - 1}
    return [
        numpy_helper.from_array(own, f"{table.name}:own"),
        *(numpy_helper.from_array(np.array(v, np.int64), f"{table.name}:{k}") for k, v in whole.items()),
    ]


def _steps(lookup: NodeProto, result: str, last: bool) -> list[NodeProto]:
    """Return a lookup's nodes; negative indices count from the end, and the ``last`` SPA refuses large ones."""
    table, index = lookup.input[0], lookup.input[1]
    zero, count = "tables:zero", f"{table}:count"
    steps: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Cast", [index], "whole", {"to": TensorProto.INT64}),
        ("Less", ["whole", zero], "below", {}),
        ("Add", ["whole", count], "wrapped", {}),
        ("Where", ["below", "wrapped", "whole"], "place", {}),
        ("Sub", ["place", f"{table}:shift"], "moved", {}),
        ("Clip", ["moved", f"{table}:low", f"{table}:high"], "limited", {}),
        ("Gather", [f"{table}:own", "limited"], result, {"axis": 0}),
    ]
    if last:  # an index still below 0 becomes one beyond the table
        steps[4:4] = [("Less", ["place", zero], "beyond", {}), ("Where", ["beyond", count, "place"], "asked", {})]
        steps[6] = ("Sub", ["asked", f"{table}:shift"], "moved", {})
    inner = {output for _, _, output, _ in steps[:-1]}
    own = {name: f"{result}:{name}" for name in inner}
    return [
        helper.make_node(kind, [own.get(i, i) for i in inputs], [own.get(output, output)], f"{result}:{output}", **more)
        for kind, inputs, output, more in steps
    ]
