"""Unique names of inputs and outputs, for graphs of any exporter."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TYPE_CHECKING

from engine import ModelError

if TYPE_CHECKING:
    import onnx_ir as ir


def give_names(model: ir.Model, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Rename the inputs and outputs of a graph in place; inner values with these names get other names.

    An output that is also an input, a constant or another output is copied by an Identity node. Raises ModelError if
    the graph has another number of inputs or outputs.
    """
    graph = model.graph
    for what, values, names in (("inputs", graph.inputs, inputs), ("outputs", graph.outputs, outputs)):
        if len(values) != len(names):
            raise ModelError(
                f"the exported graph has {len(values)} {what} ({', '.join(str(value.name) for value in values)}), "
                f"the model has {len(names)} ({', '.join(names)}); the model's code may not use, or may add, one"
            )
    _separate(graph)
    ends = [*graph.inputs, *graph.outputs]
    _set_aside(graph, ends, {*inputs, *outputs})
    for number, value in enumerate(ends):
        value.name = f"{number}/end"  # first, so that names can be exchanged
    for value, name in zip(ends, (*inputs, *outputs), strict=True):
        value.name = name


def _separate(graph: ir.Graph) -> None:
    """Insert Identity nodes so that each output is a separate value written by a node."""
    import onnx_ir as ir

    seen: set[int] = set()
    for i, value in enumerate(graph.outputs):
        if value.producer() is None or id(value) in seen:
            copy = ir.node("Identity", [value])
            [made] = copy.outputs
            made.type, made.shape = value.type, value.shape
            graph.append(copy)
            graph.outputs[i] = made
        seen.add(id(value))


def _set_aside(graph: ir.Graph, ends: Sequence[ir.Value], wanted: set[str]) -> None:
    """Rename inner values that have one of the wanted names."""
    import onnx_ir as ir

    kept = {id(value) for value in ends}
    inside = [value for node in ir.traversal.RecursiveGraphIterator(graph) for value in node.outputs]
    bodies = {id(node.graph): node.graph for node in ir.traversal.RecursiveGraphIterator(graph) if node.graph}
    weights = [value for one in (graph, *bodies.values()) for value in getattr(one, "initializers", {}).values()]
    taken = {value.name for value in (*inside, *weights, *ends)} | wanted
    for value in dict.fromkeys((*inside, *weights)):
        if value.name in wanted and id(value) not in kept:
            value.name = next(f"{value.name}_{n}" for n in count(1) if f"{value.name}_{n}" not in taken)
            taken.add(value.name)
