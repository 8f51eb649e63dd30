"""Replacement of single nodes of a model by those of another model with the same node names."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from engine import ModelError

if TYPE_CHECKING:
    from onnx import ModelProto


def grafted(model: ModelProto, donor: ModelProto, names: Collection[str]) -> ModelProto:
    """Return a copy of a model with the named nodes and their weights replaced by the donor's."""
    from engine.onnx import copy_model

    copy = copy_model(model)
    weights = {tensor.name: tensor for tensor in donor.graph.initializer}
    donors = {node.name: node for node in donor.graph.node}
    added: set[str] = set()
    for node in copy.graph.node:
        if node.name not in names:
            continue
        node.CopyFrom(donors[node.name])
        for i, name in enumerate(node.input):
            if name in weights:
                node.input[i] = f"{name}:donor"
                added.add(name)
    for name in sorted(added):
        tensor = copy.graph.initializer.add()
        tensor.CopyFrom(weights[name])
        tensor.name = f"{name}:donor"
    del copy.graph.value_info[:]
    return copy


def check_twins(model: ModelProto, donor: ModelProto, where: str) -> None:
    """Raise ModelError if two models differ in their node or tensor names."""
    ours, theirs = ({node.name: list(node.output) for node in m.graph.node} for m in (model, donor))
    if ours != theirs:
        lone = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
        raise ModelError(
            f"{where}: node {lone[0]!r} differs between the models ({len(lone)} nodes differ), so nodes cannot be "
            "exchanged; export both with the same exporter"
        )
