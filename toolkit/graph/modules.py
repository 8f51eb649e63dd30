"""Source modules from which nodes were exported."""

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto


def modules_of(graph: GraphProto) -> list[str]:
    """Return the dotted name of every node's module, or "".

    Without exporter metadata, the name is that of a weight read by this node only, such as ``conv1.weight``.
    """
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
