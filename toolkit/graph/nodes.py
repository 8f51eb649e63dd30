"""Nodes of a model with unique names, inputs, outputs and source modules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine import ModelError
from toolkit.graph.modules import modules_of

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the original model.

    Attributes:
        index: position in topological order. name: unique; derived from the index if the file has none.
        op: operator. inputs, outputs: tensor names, "" if omitted.
        module: source module such as ``layer1.0.conv1``, or "".
    """

    index: int
    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    module: str


def load_named(path: Path) -> ModelProto:
    """Load a model with inlined functions and unique node names in the main graph.

    Raises:
        ModelError: the file is invalid, or two nodes write the same tensor.
    """
    from engine.onnx import load_model
    from engine.sdaa import inlined

    model = inlined(load_model(path))
    written = Counter(name for node in model.graph.node for name in node.output if name)
    twice = next((name for name, count in written.items() if count > 1), None)
    if twice is not None:
        raise ModelError(f"{path}: tensor {twice!r} is written by {written[twice]} nodes; export the model again")
    _name_all(model.graph.node)
    return model


def _name_all(nodes: Sequence[NodeProto]) -> None:
    """Rename nodes without a unique name by their position."""
    used = Counter(node.name for node in nodes)
    taken = set(used)
    for i, node in enumerate(nodes):
        if not node.name or used[node.name] > 1:
            node.name = _free(f"{node.name}#{i}" if node.name else f"{node.op_type}_{i}", taken)
            taken.add(node.name)


def _free(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name += "_"
    return name


def nodes_of(model: ModelProto) -> list[Node]:
    """Return the nodes of the main graph, without those in the bodies of If, Loop and Scan."""
    modules = modules_of(model.graph)
    return [
        Node(i, node.name, node.op_type, tuple(node.input), tuple(node.output), modules[i])
        for i, node in enumerate(model.graph.node)
    ]
