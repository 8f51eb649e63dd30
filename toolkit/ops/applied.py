"""A model with verified equivalents in place of the nodes that a target lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from engine import ModelError
from toolkit.ops.judge import Judgement, judge_file, rewrite_of
from toolkit.ops.rewrites import Rewrite
from toolkit.ops.table import LACKING, Table

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

    from toolkit.graph.inputs import Dims
    from toolkit.ops.trial import Trial


LISTED = 3
"""Number of nodes of an operator that an error lists."""


def rewrites_of(path: Path, table: Table, trial: Trial, dims: Dims) -> dict[str, Rewrite]:
    """Return a verified equivalent for each node of the main graph that the target lacks and that has one, by name.

    Arguments and errors as of :func:`toolkit.ops.judge.judge_file`.
    """
    found, _ = judge_file(path, table, 1, None, trial, dims)
    return rewrites_for(path, found, table, trial)


def rewrites_for(path: Path, found: Sequence[Judgement], table: Table, trial: Trial) -> dict[str, Rewrite]:
    """Return what :func:`rewrites_of` returns, for the judgements on the file."""
    made: dict[str, Rewrite] = {}
    for one in found:
        if one.level not in LACKING or one.rewrite is None or one.need.first is None:
            continue
        made[one.need.nodes[0]] = one.rewrite
        for name in one.need.nodes[1:]:
            other = rewrite_of(path, name, one, table, trial)
            if other is not None:
                made[name] = other
    return {name: rewrite for name, rewrite in made.items() if "/" not in name or _is_main(path, name)}


def no_rewrite(found: Sequence[Judgement], target: str) -> str:
    """Return in one line the operators that a target lacks without a verified equivalent: with nodes, evidence and
    advice; empty if there are none.
    """
    lacking = [one for one in found if one.level in LACKING and one.rewrite is None]
    if not lacking:
        return ""
    others = ", ".join(dict.fromkeys(one.lacks for one in lacking[1:]))
    return _reason(lacking[0], target) + (f"; likewise {others}: teco ops shows all" if others else "")


def _reason(one: Judgement, target: str) -> str:
    nodes = one.need.nodes
    names = ", ".join(map(repr, nodes[:LISTED])) + (", ..." if len(nodes) > LISTED else "")
    where = f"node{'' if len(nodes) == 1 else 's'} {names}"
    return f"{target} lacks {one.lacks} ({where}: {one.source}), and no rewrite of it is known: {one.fix}"


def _is_main(path: Path, name: str) -> bool:
    from toolkit.graph.nodes import load_named

    return any(node.name == name for node in load_named(path).graph.node)


def with_rewrites(model: ModelProto, rewrites: Mapping[str, Rewrite]) -> ModelProto:
    """Return a copy of a model in which nodes are replaced by their equivalents.

    Args:
        model: with unique node names (:func:`toolkit.graph.nodes.load_named`). rewrites: by node name.

    Raises:
        ModelError: the result is not a valid model.
    """
    from onnx import checker, shape_inference

    from engine.onnx import copy_model

    copy = copy_model(model)
    held = {tensor.name: tensor for tensor in copy.graph.initializer}
    nodes: list[NodeProto] = []
    for node in copy.graph.node:
        rewrite = rewrites.get(node.name)
        nodes += [node] if rewrite is None else _spliced(node.name, rewrite, held)
    kept = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del copy.graph.node[:]
    copy.graph.node.extend(kept)
    added = [tensor for name, tensor in held.items() if name not in {one.name for one in copy.graph.initializer}]
    copy.graph.initializer.extend(added)
    known = {entry.domain for entry in copy.opset_import}
    for rewrite in rewrites.values():
        for entry in rewrite.model.opset_import:
            if entry.domain not in known:
                known.add(entry.domain)
                copy.opset_import.append(entry)
    del copy.graph.value_info[:]
    try:
        checker.check_model(copy)
        made: ModelProto = shape_inference.infer_shapes(copy)
    except (checker.ValidationError, shape_inference.InferenceError) as error:
        raise ModelError(f"the rewritten model is invalid: {str(error).splitlines()[0]}") from error
    return made


def _spliced(name: str, rewrite: Rewrite, held: dict[str, TensorProto]) -> list[NodeProto]:
    """Return the nodes of an equivalent with inner names of their own; new constants are added to ``held``."""
    graph = rewrite.model.graph
    outer = {info.name for info in (*graph.input, *graph.output)}
    names: dict[str, str] = {}
    for tensor in graph.initializer:
        same = held.get(tensor.name)
        if same is not None and same.SerializeToString() == tensor.SerializeToString():
            continue
        names[tensor.name] = f"{name}/{tensor.name}"
        own = type(tensor)()
        own.CopyFrom(tensor)
        own.name = names[tensor.name]
        held[own.name] = own
    nodes = []
    for place, node in enumerate(graph.node):
        own_node = type(node)()
        own_node.CopyFrom(node)
        own_node.name = f"{name}/{place}_{node.op_type}"
        for output in node.output:
            if output and output not in outer:
                names[output] = f"{name}/{output}"
        for values in (own_node.input, own_node.output):
            for i, value in enumerate(values):
                values[i] = names.get(value, value)
        nodes.append(own_node)
    return nodes
