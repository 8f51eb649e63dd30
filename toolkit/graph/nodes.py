"""Nodes of a model with unique names, inputs, outputs and source modules, and groups of nodes that fit into memory."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine import ModelError

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto


MEMORY = 2 * 2**30  # default limit of the bytes of node outputs held at once


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the original model."""

    index: int  # position in topological order
    name: str  # unique; derived from the index if the file has none
    op: str  # operator
    inputs: tuple[str, ...]  # tensor names, "" if omitted
    outputs: tuple[str, ...]  # tensor names, "" if omitted
    module: str  # source module such as ``layer1.0.conv1``, or ""


def load_named(path: Path) -> ModelProto:
    """Load a model, functions inlined and main nodes named uniquely; raise ModelError if invalid, or tensors clash."""
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


def modules_of(graph: GraphProto) -> list[str]:
    """Return every node's module, or "": from metadata, or the name of a weight only it reads (``conv1.weight``)."""
    weights = {tensor.name for tensor in graph.initializer}
    readers = Counter(name for node in graph.node for name in {*node.input} & weights)
    found = []
    for node in graph.node:
        owners = (name.rpartition(".")[0] for name in node.input if readers.get(name) == 1)
        found.append(module_of(node) or next(filter(None, owners), ""))
    return found


def module_of(node: NodeProto) -> str:
    """Return the dotted name of the module a node was exported from, or "".

    The dynamo-based PyTorch exporter writes it into the node's metadata, the older one into the node's name.
    """
    notes = {entry.key: entry.value for entry in node.metadata_props}
    scopes = notes.get("pkg.torch.onnx.name_scopes", "")
    if scopes:
        try:
            found = ast.literal_eval(scopes)
        except (ValueError, SyntaxError):
            return str(scopes)
        return str(found[-2]) if isinstance(found, list) and len(found) > 1 else ""
    if not node.name.startswith("/"):
        return ""
    path = last = ""
    for part in node.name.strip("/").split("/")[:-1]:
        # A module in a container is written as container/container.0; the last part is complete.
        path = path.removesuffix(last) + part if last and part.startswith(f"{last}.") else f"{path}.{part}".lstrip(".")
        last = part
    return path


def grouped(nodes: Iterable[Node], sizes: Mapping[str, int], limit: int) -> Iterator[list[Node]]:
    """Split nodes, in topological order, into groups whose inputs and outputs together take at most ``limit`` bytes.

    A larger node forms a group alone; a tensor that ``sizes`` lacks counts as 0 bytes.
    """
    group: list[Node] = []
    held: set[str] = set()
    total = 0
    for node in nodes:
        names = {*node.inputs, *node.outputs}
        more = sum(sizes.get(name, 0) for name in names - held)
        if group and total + more > limit:
            yield group
            group, held, total = [], set(), 0
            more = sum(sizes.get(name, 0) for name in names)
        group.append(node)
        held |= names
        total += more
    if group:
        yield group
