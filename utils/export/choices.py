"""Near ties: where a file ranks two values the other way round because they are as good as equal, it is not wrong.

A float16 file that picks another of two such values answers as the float32 model does that picks the same one. So the
float32 model is run with the picks of the file, and each pick is judged by the value it points to.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from engine import Array, Engine, EngineSpec, open_engine
from engine.onnx import infer_shapes

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

_MASKED = 1e4
"""Numbers as large as this stand for what is masked: they say nothing of the scale of the others."""

_SAME = frozenset({"Identity", "Cast", "Squeeze", "Unsqueeze", "Reshape"})
"""Operators that leave picks what they are."""


class Choice(NamedTuple):
    """A node that picks places by value; ``picks``: the value with the places, of shape ``info``."""

    node: NodeProto
    picks: str
    ranked: ValueInfoProto
    info: ValueInfoProto


def choices(model: ModelProto) -> list[Choice]:
    """Return the TopK, ArgMax and ArgMin nodes of a model's main graph whose sizes are known."""
    inferred = infer_shapes(model).graph
    known = {one.name: one for one in (*inferred.value_info, *inferred.input, *inferred.output)}
    found = []
    for node in model.graph.node:
        if node.op_type in ("TopK", "ArgMax", "ArgMin") and not node.domain:
            index = node.output[-1]
            if index in known and node.input[0] in known:
                found.append(Choice(node, index, known[node.input[0]], known[index]))
    return found


def picks_inside(model: ModelProto, made: Sequence[Choice], inputs: Sequence[Array], dtype: str) -> dict[str, Array]:
    """Return what each of these nodes picks in a model on these inputs, by the name of its index."""
    from engine.onnx import copy_model

    shown = copy_model(model)
    has = {one.name for one in shown.graph.output}
    shown.graph.output.extend(one.info for one in made if one.picks not in has)
    outputs = dict(zip([one.name for one in shown.graph.output], answers(shown, inputs, dtype), strict=True))
    return {one.picks: outputs[one.picks] for one in made}


def picks_given(model: ModelProto, made: Sequence[Choice], wanted: Sequence[Array]) -> dict[str, Array]:
    """Return the picks among a source model's outputs, by the name of the index; no others are known."""
    ends = {one.name: array for one, array in zip(model.graph.output, wanted, strict=True)}
    writers = {name: node for node in model.graph.node for name in node.output}
    shapes = {one.picks: len(one.info.type.tensor_type.shape.dim) for one in made}
    found = {}
    for name, array in ends.items():
        source = name
        while source not in shapes and source in writers and writers[source].op_type in _SAME:
            source = writers[source].input[0]
        if source in shapes and array.ndim == shapes[source]:
            found[source] = array.astype(np.int64)
    return found


def with_picks(
    model: ModelProto, made: Sequence[Choice], inputs: Sequence[Array], picks: Mapping[str, Array]
) -> tuple[list[Array], float]:
    """Run a model that makes these picks instead of its own.

    Args:
        model: a float32 model. made: its choices. inputs: one array per input.
        picks: by the name of the index; int64.

    Returns:
        Its outputs, and the largest gap between a value picked and the one that should have been, relative to the
        largest of the latter; infinite where the picks are none of that node's.
    """
    taken = [one for one in made if one.picks in picks]
    told = _told(model, taken)
    found = answers(told, [*inputs, *(picks[one.picks] for one in taken)], "float32")
    count = len(model.graph.output)
    gaps = [_gap(one.node, ranked, picks[one.picks]) for one, ranked in zip(taken, found[count:], strict=True)]
    return found[:count], max(gaps, default=np.inf)


def _told(model: ModelProto, taken: Sequence[Choice]) -> ModelProto:
    """Return a copy in which the picks are further inputs, and what is ranked further outputs."""
    from onnx import TensorProto, helper

    from engine.onnx import copy_model

    told = copy_model(model)
    nodes = {node.output[-1]: node for node in told.graph.node}
    ends = {one.name for one in told.graph.output}
    for number, one in enumerate(taken):
        node = nodes[one.picks]
        place = list(told.graph.node).index(node)
        rank = len(one.info.type.tensor_type.shape.dim)
        fed = f"pick{number}"
        told.graph.input.append(
            helper.make_tensor_value_info(fed, TensorProto.INT64, [f"{fed}_{axis}" for axis in range(rank)])
        )
        values = [name for name in node.output[:-1] if name]
        made = [helper.make_node("Identity", [fed], [one.picks])]
        made += [helper.make_node("GatherElements", [node.input[0], fed], [name], axis=_axis(node)) for name in values]
        shown = told.graph.output.add()
        shown.CopyFrom(one.ranked)
        shown.name = f"{fed}_ranked"
        made.append(helper.make_node("Identity", [node.input[0]], [shown.name]))
        del told.graph.node[place]
        for new in reversed(made):
            told.graph.node.insert(place, new)
    assert ends <= {one.name for one in told.graph.output}  # noqa: S101 - outputs are only added
    return told


def answers(model: ModelProto, inputs: Sequence[Array], dtype: str) -> list[Array]:
    """Return what a model computes on the baseline; its floating-point inputs are brought to this dtype."""
    from engine.onnx import save_model

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        save_model(model, path)
        with open_engine("onnx", EngineSpec(ckpt=path, dtype=dtype)) as engine:
            return run(engine, inputs, dtype)


def run(engine: Engine, inputs: Sequence[Array], dtype: str) -> list[Array]:
    """Return an engine's outputs as a list; float32 inputs are brought to the engine's dtype."""
    half = [dtype == "float16" and tensor.dtype == np.float16 for tensor in engine.inputs]  # whole numbers may not be
    both = zip(inputs, half, strict=True)
    found = engine([x.astype(np.float16) if narrow and x.dtype == np.float32 else x for x, narrow in both])
    return found if isinstance(found, list) else [found]


def _axis(node: NodeProto) -> int:
    default = -1 if node.op_type == "TopK" else 0
    return next((attribute.i for attribute in node.attribute if attribute.name == "axis"), default)


def _gap(node: NodeProto, ranked: Array, picked: Array) -> float:
    """Return the largest gap of the values picked to the best ones, relative to the largest of those."""
    flags = {attribute.name: attribute.i for attribute in node.attribute}
    axis = _axis(node)
    if node.op_type != "TopK" and not flags.get("keepdims", 1):
        picked = np.expand_dims(picked, axis)
    values, index = np.moveaxis(ranked.astype(np.float64), axis, -1), np.moveaxis(picked, axis, -1)
    size, count = values.shape[-1], index.shape[-1]
    if values.shape[:-1] != index.shape[:-1] or not ((index >= 0) & (index < size)).all() or np.isnan(values).any():
        return float("inf")
    if (np.diff(np.sort(index, axis=-1), axis=-1) == 0).any():
        return float("inf")  # one place twice
    upward = node.op_type == "ArgMin" or (node.op_type == "TopK" and not flags.get("largest", 1))
    best = np.sort(values, axis=-1)
    best = best[..., :count] if upward else best[..., ::-1][..., :count]
    found = np.take_along_axis(values, index, axis=-1)
    if not flags.get("sorted", 1):
        found = np.sort(found, axis=-1) if upward else np.sort(found, axis=-1)[..., ::-1]
    with np.errstate(invalid="ignore"):
        gap = float(np.where(found == best, 0.0, np.abs(found - best)).max(initial=0.0))
    usual = np.abs(best)[np.abs(best) < _MASKED]
    scale = float((usual if usual.size else np.abs(best)).max(initial=0.0))
    return gap / scale if scale else (np.inf if gap else 0.0)
